"""What services ask of the log of events: the audit log in the order in which its rows were given their places."""

from collections.abc import Sequence
from typing import Protocol

from controlplane.core.facts.events import EventFact
from controlplane.core.ids import WorkloadId


class EventStore(Protocol):
    """`uow.events`."""

    def after(self, position: int, limit: int) -> Sequence[EventFact]:
        """All that follows, in order, at most `limit`; positions have no gaps."""

    def of_workload(self, workload: WorkloadId, position: int, limit: int) -> Sequence[EventFact]:
        """The same of one Workload and its Attempts, from an index of its own."""
