"""What services ask of the rows of attempts, placements, pods, holds and directives.

Every method is one statement or a fixed number of them, whatever the length of its arguments.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from controlplane.core.facts.attempts import (
    AttemptFact,
    NewDirective,
    NodeRefused,
    PlacementChange,
    PodFact,
    WorkloadMove,
)
from controlplane.core.facts.ledger import AttemptKey
from controlplane.core.ids import ClusterId, NodeId, PoolId, WorkloadId
from controlplane.core.policy import Policy


class AttemptStore(Protocol):
    """Attempts with all that belongs to them."""

    def read(self, keys: Collection[AttemptKey]) -> list[AttemptFact]:
        """These Attempts, not locked; unknown ones are left out."""

    def lock(self, keys: Collection[AttemptKey]) -> list[AttemptFact]:
        """These Attempts, their Workloads locked by id before anything is read."""

    def live_of(self, workloads: Collection[WorkloadId]) -> list[AttemptKey]:
        """The live Attempt of each that has one."""

    def take_over(self, cluster: ClusterId, keys: Collection[AttemptKey]) -> int:
        """Order the end of those that are over for a removed Cluster of this one's machines; returns how many.

        They get a Placement here, with what had been told of them, so that the tombstone is heard until it is obeyed.
        """

    def live_in(self, cluster: ClusterId) -> list[AttemptKey]:
        """Live Attempts with a Placement in this cluster that is not gone."""

    def live_on(self, nodes: Collection[NodeId]) -> list[AttemptKey]:
        """Attempts, live or not judged yet, with a pod on one of these nodes."""

    def held_on(self, nodes: Collection[NodeId]) -> list[int]:
        """Pods of ended Attempts on these nodes whose holds are still there."""

    def due(self, limit: int) -> list[AttemptKey]:
        """Attempts whose check is due, the longest due first; nothing is locked."""

    def policies(self, pools: Collection[PoolId]) -> Mapping[PoolId, Policy]: ...

    def write_attempts(self, facts: Sequence[AttemptFact]) -> None: ...

    def write_placements(self, changes: Sequence[PlacementChange]) -> None: ...

    def write_pods(self, pods: Sequence[PodFact]) -> None: ...

    def write_workloads(self, moves: Sequence[WorkloadMove]) -> None: ...

    def add_directives(self, directives: Sequence[NewDirective]) -> None: ...

    def add_exclusions(self, refused: Sequence[NodeRefused]) -> None: ...

    def lock_counters(self, pods: Collection[int]) -> None:
        """Lock the counters that a release of these pods' holds will lower, in order."""

    def release_holds(self, pods: Collection[int]) -> None:
        """Release these pods' holds and lower their nodes' counters, overdraft first, in the same statements."""

    def give_up_earmarks(self, workloads: Collection[WorkloadId]) -> None:
        """End the Earmarks of Workloads that have started or ended."""
