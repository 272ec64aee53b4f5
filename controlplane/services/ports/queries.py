"""What services ask of the read models: views as the API shows them, made by the database's side; nothing is written.

Everything takes `Scope`: the subtrees that the caller may see. Lists come in pages by key, never by offset.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from controlplane.contract.rest.fleet import ClusterView, DeviceView, NodeView
from controlplane.contract.rest.ledger import AccountView, TransferView
from controlplane.contract.rest.operations import AuditView, CycleView, PlanView, RebalanceView
from controlplane.contract.rest.tenancy import QueueView
from controlplane.contract.rest.workloads import WorkloadSummary, WorkloadView
from controlplane.core.facts.queries import (
    AuditFilter,
    FleetFilter,
    Heartbeat,
    LedgerFilter,
    PageOf,
    Scope,
    WaitingFact,
    WorkloadFilter,
)
from controlplane.core.ids import WorkloadId


class QueryStore(Protocol):
    """`uow.queries`."""

    def workloads(
        self, scope: Scope, wanted: WorkloadFilter, after: tuple[datetime, str] | None, limit: int
    ) -> PageOf[WorkloadSummary]:
        """Youngest first."""

    def workload(self, scope: Scope, workload: WorkloadId) -> WorkloadView | None:
        """One, with the history of its Attempts."""

    def waiting(self, scope: Scope, workload: WorkloadId) -> WaitingFact | None:
        """What `explain` needs to know of it."""

    def named(self, scope: Scope, name: str) -> Sequence[WorkloadId]:
        """Workloads of this name, live ones first, then the youngest; at most two."""

    def queues(self, scope: Scope) -> list[QueueView]:
        """Every Queue of the scope with what is in use, parents first."""

    def clusters(self, name: str | None = None) -> list[ClusterView]:
        """Every live Cluster, by name, or the one of this name."""

    def nodes(self, wanted: FleetFilter, after: int, limit: int) -> PageOf[NodeView]:
        """By id."""

    def devices(self, wanted: FleetFilter, after: int, limit: int) -> PageOf[DeviceView]:
        """By id."""

    def cycles(self, pool: str | None, before: int | None, limit: int) -> PageOf[CycleView]:
        """Youngest first."""

    def cycle(self, number: int) -> CycleView | None:
        """One, while it is kept."""

    def plan(self, number: int) -> PlanView | None:
        """What a cycle decided, and why others wait, while it is kept."""

    def accounts(
        self, scope: Scope, wanted: LedgerFilter, after: tuple[str, str] | None, limit: int
    ) -> PageOf[AccountView]:
        """By Queue and Flavor."""

    def transfers(self, scope: Scope, wanted: LedgerFilter, before: int | None, limit: int) -> PageOf[TransferView]:
        """Youngest first; of each, the legs on accounts that are asked for and in sight."""

    def rebalance(self, pool: str) -> RebalanceView | None:
        """The latest report of the Pool."""

    def audit(self, scope: Scope, wanted: AuditFilter, before: int | None, limit: int) -> PageOf[AuditView]:
        """Youngest first; of a scope with paths, what belongs to the Queues there."""

    def heartbeats(self) -> Sequence[Heartbeat]:
        """When each process of the plane last made progress."""
