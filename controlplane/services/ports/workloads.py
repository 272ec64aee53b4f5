"""What services ask of the store of Workloads; Attempts and pods have a port of their own."""

from collections.abc import Mapping
from typing import Protocol

from controlplane.core.facts.workloads import NewWorkload, WorkloadChange, WorkloadFact
from controlplane.core.ids import QueueId, WorkloadId


class WorkloadStore(Protocol):
    """`uow.workloads`."""

    def add(self, new: NewWorkload) -> None:
        """Write it and its PodSets as `pending`, due now."""

    def get(self, workload: WorkloadId) -> WorkloadFact | None:
        """Read it without a lock."""

    def lock(self, workload: WorkloadId) -> WorkloadFact | None:
        """Read it and keep its row until this transaction ends."""

    def live_named(self, queue: QueueId, name: str) -> WorkloadFact | None:
        """The Workload of this name that is not in a final state, if there is one."""

    def change(self, change: WorkloadChange) -> None:
        """Write the state of a locked row; its version rises by one."""

    def owned_totals(self) -> Mapping[str, Mapping[str, int]]:
        """By Flavor and cluster name: the units that every enrolled cluster owns, unreachable ones included."""
