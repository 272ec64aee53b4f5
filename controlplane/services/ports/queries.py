"""What services ask of the read models: views as the API shows them, made by the database's side; nothing is written.

Everything takes `Scope`: the subtrees that the caller may see. Lists come in pages by key, never by offset.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from controlplane.contract.rest.fleet import ClusterView, DeviceView, NodeView
from controlplane.contract.rest.operations import AuditView, CycleView, RebalanceView
from controlplane.contract.rest.tenancy import QueueView
from controlplane.contract.rest.workloads import WorkloadSummary, WorkloadView
from controlplane.core.facts.queries import (
    AuditFilter,
    FleetFilter,
    Heartbeat,
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

    def rebalance(self, pool: str) -> RebalanceView | None:
        """The latest report of the Pool."""

    def audit(self, scope: Scope, wanted: AuditFilter, before: int | None, limit: int) -> PageOf[AuditView]:
        """Youngest first; of a scope with paths, what belongs to the Queues there."""

    def heartbeats(self) -> Sequence[Heartbeat]:
        """When each process of the plane last made progress."""
