"""What scheduling asks of the database: a world to plan on, and a batch to commit.

Accounts are the ledger's (`ports.ledger`); here is the rest, in the lock order that everybody keeps.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from controlplane.core.facts.planning import (
    AttemptDraft,
    CycleRecord,
    EarmarkDraft,
    FreshNode,
    FreshWorkload,
    Horizon,
    PlannerLease,
    Reading,
    StoredCycle,
)
from controlplane.core.ids import NodeId, PoolId, WorkloadId


class SnapshotReader(Protocol):
    """Reads a Pool's world, whole or only what changed; opens and ends its own transaction."""

    def read(self, pool: PoolId, since: Horizon | None) -> Reading:
        """Return the changes since `since`, or everything if it is None."""
        ...


class PlanningStore(Protocol):
    """`uow.planning`: the planner's lease, and what a commit reads fresh or writes."""

    def pools(self) -> Sequence[tuple[PoolId, str]]:
        """All Pools, by id."""
        ...

    def take_lease(self, pool: PoolId, owner: str, seconds: int) -> PlannerLease | None:
        """Take or renew the planner lease; None if another owner holds it."""
        ...

    def drop_lease(self, pool: PoolId, owner: str) -> None:
        """Let the next planner take over at once."""
        ...

    def due_pools(self, limit: int) -> Sequence[PoolId]:
        """Pools whose next check is due."""
        ...

    def is_due(self, pool: PoolId) -> tuple[int, bool]:
        """The Pool's dirty version, and whether its next check is due."""
        ...

    def settle_pool(self, pool: PoolId, version: int, next_check: datetime | None) -> bool:
        """Note that work up to `version` is planned; False (and nothing noted) if there is newer work."""
        ...

    def lock_pool(self, pool: PoolId, epoch: int) -> bool:
        """Take the Pool's advisory lock for this transaction; False if the epoch is over."""
        ...

    def lock_nodes(self, nodes: Collection[NodeId], crowded: Collection[NodeId] = ()) -> Mapping[NodeId, FreshNode]:
        """Lock these nodes and their counters, and read them."""
        ...

    def lock_workloads(self, workloads: Collection[WorkloadId]) -> Mapping[WorkloadId, FreshWorkload]:
        """Lock these Workloads and read them with their live Attempts."""
        ...

    def write_attempts(self, drafts: Sequence[AttemptDraft], cycle: int, placed_at: datetime) -> None:
        """Write Attempts, placements, pods, holds, counters, reservations and apply directives as one batch.

        `placed_at` is when it was decided: the planner counts on it before anything is written.
        """
        ...

    def transaction(self) -> int:
        """The id that this transaction's rows carry."""
        ...

    def put_off(self, workloads: Collection[WorkloadId], until: datetime) -> None:
        """Let these Workloads, if they still wait, not be tried before `until`."""
        ...

    def write_earmarks(self, pool: PoolId, drafts: Sequence[EarmarkDraft]) -> None:
        """Keep freed shares for their askers; an earmark that a Workload had is replaced."""
        ...

    def expire_earmarks(self, limit: int) -> Sequence[PoolId]:
        """End earmarks whose time has passed; returns their Pools."""
        ...

    def write_reasons(self, reasons: Mapping[WorkloadId, Sequence[Mapping[str, object]]]) -> None:
        """Store why Workloads wait."""
        ...

    def record_cycle(self, record: CycleRecord) -> int:
        """Store what replay needs; returns the cycle's id."""
        ...

    def last_link(self, pool: PoolId) -> tuple[int, bytes] | None:
        """Base and running hash of the newest stored cycle."""
        ...

    def chain(self, cycle: int) -> Sequence[StoredCycle]:
        """The cycle's base, and every cycle after it up to this one, in order."""
        ...

    def drop_cycles_before(self, moment: datetime, limit: int) -> int:
        """Delete cycles older than `moment` whose base no younger cycle needs, nor the next one; returns how many."""
        ...

    def drop_traces_before(self, moment: datetime, limit: int) -> int:
        """Delete old reports, exclusions that are long over, and heartbeats of processes that are; returns how many."""
        ...

    def store_report(self, pool: PoolId, report: Mapping[str, object]) -> None:
        """Keep one report-only rebalancing pass."""
        ...

    def claim_periodic(self, jobs: Mapping[str, int]) -> Sequence[str]:
        """Of these jobs (name, seconds between runs), the ones whose time has come; each is claimed once."""
        ...

    def heartbeat(self, name: str, kind: str) -> None:
        """Note that this process made progress."""
        ...
