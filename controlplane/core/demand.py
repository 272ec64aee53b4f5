"""What people ask for: Workloads, their PodSets and what each pod needs.

Values only. What a body may contain is checked in `contract.rest`; who may ask, in `services`.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from controlplane.core.ids import AttemptNumber, ClusterId, FlavorName, NodeId, QueueId, WorkloadId
from controlplane.core.lifecycle import AttemptState

LEVEL_HOST = "host"  # the finest topology level that every cluster has


class TopologyMode(StrEnum):
    """How strongly a PodSet wants to sit together."""

    NONE = "none"
    PREFERRED = "preferred"  # climb level by level until it fits
    REQUIRED = "required"  # one domain at that level, or nothing


class StrategyName(StrEnum):
    """How free room is chosen among domains that all fit."""

    PACK = "pack"  # fullest first: keeps large holes for large gangs
    SPREAD = "spread"  # emptiest first: limits the blast radius
    COMPACT = "compact"  # all of it in the smallest domain, there on few hosts: short ways
    DYNAMIC = "dynamic"  # one of the three, by how full the Pool is and by what waits


@dataclass(frozen=True, slots=True)
class PodNeeds:
    """What one pod needs beside its devices. CPU in millicores, memory and disk in bytes, RDMA in interfaces."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    rdma: int = 0
    hugepages_bytes: int = 0
    local_storage_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint that a pod puts up with; "" matches any key or any effect."""

    key: str = ""
    operator: str = "Equal"  # or Exists
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class LabelRule:
    """One expression of a node affinity: a label, an operator of Kubernetes, its values."""

    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist, Gt, Lt
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRules:
    """Which nodes a pod's template allows: every pair of `selector`, one of `terms` (each with all its rules)."""

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[LabelRule, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class PodSet:
    """Identical pods. `flavors` in order of preference; `devices` whole units per pod, may be 0.

    `speeds` are thousandths of the first Flavor's, one per Flavor, or empty where all count alike. Elastic ones start
    with `min_replicas` to `replicas` pods. Slices are groups of `slice_size` pods that share a domain of `slice_level`
    each (0: none). `with_pod_set` names the PodSet of this Workload that it sits beside: a leader with its group.
    """

    name: str
    replicas: int
    devices: int
    flavors: tuple[FlavorName, ...]
    needs: PodNeeds = PodNeeds()
    topology_mode: TopologyMode = TopologyMode.NONE
    topology_level: str = ""
    speeds: tuple[int, ...] = ()
    min_replicas: int | None = None
    slice_size: int = 0
    slice_level: str = ""
    with_pod_set: str = ""
    rules: NodeRules = NodeRules()

    @property
    def least(self) -> int:
        """With how many pods it starts at least."""
        return self.replicas if self.min_replicas is None else min(self.min_replicas, self.replicas)

    @property
    def is_elastic(self) -> bool:
        """Whether it may start with fewer pods than it asks for."""
        return self.least < self.replicas


@dataclass(frozen=True, slots=True)
class Workload:
    """A waiting Workload: all of it starts or none of it.

    `shape` names what an exclusion of nodes is keyed by (same template, same shape). `not_before`
    delays the next try after disturbances. `next_attempt` is the number its next Attempt will get.
    """

    id: WorkloadId
    name: str
    queue: QueueId
    owner: str
    priority: int
    submitted_at: datetime
    next_attempt: AttemptNumber
    pod_sets: tuple[PodSet, ...]
    strategy: StrategyName = StrategyName.PACK
    namespace: str = ""
    clusters_avoided: frozenset[str] = frozenset()
    cluster_selector: tuple[tuple[str, str], ...] = ()
    shape: str = ""
    not_before: datetime | None = None
    is_repair: bool = False  # a started gang that lost a part: goes ahead of its leaf's queue
    preferred_nodes: tuple[NodeId, ...] = ()  # its old place, tried first after an infrastructure end
    disturbances: int = 0  # how often it was sent back without fault of its own; said while it backs off
    clusters_max: int = 1  # over how many clusters whole PodSets or slices of it may be divided
    requires: tuple[str, ...] = ()  # facts that its clusters must have, as in "storage/fast-nvme", "data/s3://x"


@dataclass(frozen=True, slots=True)
class NodeShare:
    """Units of one Flavor held on one node."""

    node: NodeId
    flavor: FlavorName
    amount: int
    cpu_milli: int = 0  # what its pods there ask for besides, so that a plan to evict them knows what it frees
    memory_bytes: int = 0
    pods: int = 0
    rdma: int = 0
    hugepages_bytes: int = 0
    local_storage_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """A live Attempt as the planner sees it: what it holds, since when, for whom."""

    workload: WorkloadId
    name: str
    attempt: AttemptNumber
    queue: QueueId
    priority: int
    state: AttemptState
    placed_at: datetime
    clusters: tuple[ClusterId, ...]
    charges: tuple[tuple[FlavorName, int], ...]  # by Flavor, sorted; what its Queue is charged
    shares: tuple[NodeShare, ...]
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Earmark:
    """Freed capacity kept for the Workload for whose sake it was freed, until it runs or `until`.

    It keeps nothing while that Workload has a live Attempt, whose holds are its room; if that ends before it ran,
    it does again.
    """

    workload: WorkloadId
    cluster: ClusterId
    shares: tuple[NodeShare, ...]
    until: datetime


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A node that its cluster's scheduler refused for this shape of pod, with the scheduler's words."""

    shape: str
    node: NodeId
    until: datetime
    words: str
