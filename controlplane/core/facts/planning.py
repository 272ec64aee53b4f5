"""What passes between a planner and the database: changes of the world, leases, cycles.

Values only. `db.snapshot_reader` and `db.stores.planning` make and take them, `services.scheduling` decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from controlplane.core.capacity import Cluster, Node
from controlplane.core.demand import Earmark, Exclusion, NodeShare, PodNeeds, RunningAttempt, Workload
from controlplane.core.ids import AttemptNumber, ClusterId, FlavorName, NodeId, PoolId, QueueId, WorkloadId
from controlplane.core.lifecycle import WorkloadState
from controlplane.core.policy import Policy
from controlplane.core.tenancy import Queue, Spent, Standing


class Table(StrEnum):
    """The tables of a planner's world."""

    CLUSTERS = "clusters"
    NODES = "nodes"
    QUEUES = "queues"
    WAITING = "waiting"
    RUNNING = "running"
    EARMARKS = "earmarks"
    EXCLUSIONS = "exclusions"
    USAGE_ELSEWHERE = "usage_elsewhere"
    OWNED_ELSEWHERE = "owned_elsewhere"
    OWNED_COUNTED = "owned_counted"
    SPENT = "spent"
    RUNNING_ELSEWHERE = "running_elsewhere"
    STANDINGS = "standings"
    OWNERS = "owners"
    LEFT_OVER = "left_over"
    HELD = "held"  # no rows of its own: the counters of one of NODES, where nothing else of it changed


@dataclass(frozen=True, slots=True)
class Held:
    """What our pods hold of one node: units of each of its Flavors, and all else in the units of `PodNeeds`."""

    units: tuple[tuple[FlavorName, int], ...]
    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 0
    rdma: int = 0
    hugepages_bytes: int = 0
    local_storage_bytes: int = 0


Key = int | str | tuple[int, str] | tuple[str, int]
Value = Cluster | Node | Queue | Workload | RunningAttempt | Earmark | Exclusion | Standing | Held | Spent | int


@dataclass(frozen=True, slots=True)
class Change:
    """One row of a planner's world as it is now; None: it is not there (any more)."""

    table: Table
    key: Key
    value: Value | None


@dataclass(frozen=True, slots=True)
class Horizon:
    """Up to where a reading saw everything: rows written by transactions below `xmin` were all visible.

    `own` are transactions at or above it whose rows the reader's world has already, as they were written: commits of
    its own decisions. The nodes and Workloads of `again` were somebody else's just before such a commit wrote them, so
    what is known of them is not what the commit built on: they are read again whoever wrote them last. `spent` says
    when sums of budgets were read last, and of which.
    """

    xmin: int
    own: tuple[int, ...] = ()
    nodes_again: tuple[NodeId, ...] = ()
    workloads_again: tuple[WorkloadId, ...] = ()
    spent: tuple[datetime, object] | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What changed in a Pool since a horizon, read in one REPEATABLE READ transaction."""

    pool: PoolId
    pool_name: str
    changes: Sequence[Change]
    horizon: Horizon
    is_whole: bool
    policy: Policy
    now: datetime
    xmax: int = 0
    in_progress: frozenset[int] = frozenset()

    def is_over(self, transaction: int) -> bool:
        """Whether that transaction had ended, one way or the other, when this was read."""
        return transaction < self.xmax and transaction not in self.in_progress


@dataclass(frozen=True, slots=True)
class PlannerLease:
    """The right to commit plans of one Pool, as long as its epoch is the Pool's."""

    pool: PoolId
    owner: str
    epoch: int
    until: datetime


@dataclass(frozen=True, slots=True)
class CycleRecord:
    """What replay needs of one cycle. `changes` and `plan` are compressed canonical JSON."""

    pool: PoolId
    epoch: int
    base: int | None
    policy_version: int
    now: datetime
    changes: bytes
    plan: bytes
    plan_sha256: bytes
    running_sha256: bytes
    decisions: int
    dropped: int
    work_units: int
    left_over: int
    started_at: datetime


@dataclass(frozen=True, slots=True)
class FreshNode:
    """A node's counters, locked for this transaction: `free` units by Flavor, `room` for what else pods need.

    `pods_free` is what its kubelet still takes; None where nobody asked.
    `written_by` is the newest transaction that wrote the node or one of its counters.
    """

    id: NodeId
    name: str
    cluster: ClusterId
    is_schedulable: bool
    free: Mapping[FlavorName, int]
    room: PodNeeds
    pods_free: int | None = None
    written_by: int = 0


@dataclass(frozen=True, slots=True)
class FreshWorkload:
    """A Workload, locked for this transaction, with what an apply directive is made from."""

    id: WorkloadId
    name: str
    state: WorkloadState
    attempts_made: int
    live_attempt: AttemptNumber | None
    kind: str
    queue_path: str
    spec: Mapping[str, object]
    manifest: Mapping[str, object] | None
    labels: Mapping[str, str]
    on_cluster_loss: str
    written_by: int = 0


@dataclass(frozen=True, slots=True)
class PodDraft:
    """A pod to be written, with what is held for it."""

    cluster: ClusterId
    pod_set: str
    index: int
    rank: int
    node: NodeId
    flavor: FlavorName
    amount: int
    needs: PodNeeds


@dataclass(frozen=True, slots=True)
class AttemptDraft:
    """An Attempt to be written whole: its pods, its charges, and per Cluster the body of its apply directive."""

    workload: WorkloadId
    attempt: AttemptNumber
    queue: QueueId
    charges: tuple[tuple[FlavorName, int], ...]
    pods: tuple[PodDraft, ...]
    bodies: Mapping[ClusterId, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class EarmarkDraft:
    """Shares to keep for a Workload."""

    workload: WorkloadId
    cluster: ClusterId
    shares: tuple[NodeShare, ...]
    until: datetime


@dataclass(frozen=True, slots=True)
class StoredCycle:
    """A cycle as stored; `base` is the id of the cycle that its changes start from, its own if it is one."""

    id: int
    base: int
    policy_version: int
    policy: Mapping[str, object]
    now: datetime
    changes: bytes
    plan: bytes
    plan_sha256: bytes
    running_sha256: bytes
