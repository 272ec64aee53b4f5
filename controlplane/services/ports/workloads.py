"""What services ask of the store of Workloads; Attempts and pods have a port of their own."""

from collections.abc import Mapping
from typing import Protocol

from controlplane.core.facts.ledger import AuditEntry
from controlplane.core.facts.workloads import FleetShape, NewWorkload, SubmissionSite, WorkloadChange, WorkloadFact
from controlplane.core.ids import WorkloadId


class WorkloadStore(Protocol):
    """`uow.workloads`."""

    def add(self, new: NewWorkload, noted: AuditEntry) -> bool:
        """Write it and its PodSets as `pending`, due now, with the note of that; False where its Queue is no leaf."""

    def get(self, workload: WorkloadId) -> WorkloadFact | None:
        """Read it without a lock."""

    def lock(self, workload: WorkloadId) -> WorkloadFact | None:
        """Read it and keep its row until this transaction ends."""

    def site(self, path: str, pool: str, name: str) -> SubmissionSite | None:
        """Where a Workload of this name would stand, its Queue locked for share; None where there is no such Queue."""

    def set_priority(self, workload: WorkloadId, priority: int) -> None:
        """Write it, in the spec too; its version rises. Planners see it of a live Attempt as well."""

    def change(self, change: WorkloadChange) -> None:
        """Write the state of a locked row; its version rises by one."""

    def fleet_shape(self) -> FleetShape:
        """How wide nodes are and which levels there are, over every enrolled cluster."""

    def owned_totals(self) -> Mapping[str, Mapping[str, int]]:
        """By Flavor and cluster name: the units that every enrolled cluster owns, unreachable ones included."""
