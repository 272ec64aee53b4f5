"""The frozen world of one cycle: everything `plan_cycle` may look at, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.core.capacity import Cluster, Node
from controlplane.core.demand import Earmark, Exclusion, RunningAttempt, Workload
from controlplane.core.ids import ClusterId, FlavorName, NodeId, PoolId, QueueId, WorkloadId
from controlplane.core.tenancy import Queue, Spent, Standing


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One Pool at one moment.

    `leaf_usage` is derived from `running` alone (a reservation is the only thing that charges). Usage
    that other Pools charge to the same accounts stands in `usage_elsewhere`, by (leaf Queue, Flavor).
    """

    pool: PoolId
    pool_name: str = "default"
    clusters: Mapping[ClusterId, Cluster] = field(default_factory=dict)
    nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    queues: Mapping[QueueId, Queue] = field(default_factory=dict)
    waiting: Mapping[WorkloadId, Workload] = field(default_factory=dict)
    running: Mapping[WorkloadId, RunningAttempt] = field(default_factory=dict)
    earmarks: Mapping[WorkloadId, Earmark] = field(default_factory=dict)
    exclusions: tuple[Exclusion, ...] = ()
    usage_elsewhere: Mapping[tuple[QueueId, str], int] = field(default_factory=dict)
    owned_elsewhere: Mapping[FlavorName, int] = field(default_factory=dict)  # by clusters, in other Pools
    owned_counted: Mapping[tuple[ClusterId, str], int] = field(default_factory=dict)  # where less is told: see `owned`
    standings: Mapping[QueueId, Standing] = field(default_factory=dict)  # none: its plain weight counts
    owners: Mapping[tuple[QueueId, str], int] = field(default_factory=dict)  # their contended usage, device-seconds
    left_over: tuple[WorkloadId, ...] = ()  # what the work units of the cycle before did not reach
    spent: tuple[Spent, ...] = ()  # of Queues with budgets
    running_elsewhere: Mapping[QueueId, int] = field(default_factory=dict)  # live Attempts in other Pools, by leaf
