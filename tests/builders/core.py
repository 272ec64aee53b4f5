"""Chainable builders of core values, valid by default: a test names only what matters to it."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from controlplane.core.capacity import Cluster, Node
from controlplane.core.demand import (
    Earmark,
    Exclusion,
    NodeShare,
    PodNeeds,
    PodSet,
    RunningAttempt,
    StrategyName,
    TopologyMode,
    Workload,
)
from controlplane.core.ids import AttemptNumber, ClusterId, FlavorName, NodeId, PoolId, QueueId, WorkloadId
from controlplane.core.lifecycle import AttemptState, ClusterState
from controlplane.core.plan import Admit
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Queue, Quota, Spent

H100 = FlavorName("nvidia-h100-80gb")
A100 = FlavorName("nvidia-a100-80gb")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEVELS = ("block", "rack", "host")
_NEEDS = ("cpu_milli", "memory_bytes", "pods", "rdma", "hugepages_bytes", "local_storage_bytes")


def a_pod_set(replicas: int = 1, devices: int = 8, *flavors: FlavorName) -> PodSet:
    """Pods that each want that many devices."""
    return PodSet("main", replicas, devices, flavors or (H100,))


@dataclass(frozen=True)
class AWorkload:
    """A waiting Workload in the making; `build` numbers it by its name."""

    name: str
    queue: str = "team"
    priority: int = 0
    minutes: int = 0
    pod_sets: tuple[PodSet, ...] = (PodSet("main", 1, 8, (H100,)),)
    changes: dict[str, object] = field(default_factory=dict)

    def asking(self, replicas: int, devices: int = 8, *flavors: FlavorName) -> "AWorkload":
        """One PodSet of that size."""
        return replace(self, pod_sets=(a_pod_set(replicas, devices, *flavors),))

    def with_sets(self, *pod_sets: PodSet) -> "AWorkload":
        """These PodSets."""
        return replace(self, pod_sets=pod_sets)

    def needing(self, cpu_milli: int = 0, memory_bytes: int = 0) -> "AWorkload":
        """CPU and memory for each pod."""
        needs = PodNeeds(cpu_milli, memory_bytes)
        return replace(self, pod_sets=tuple(replace(each, needs=needs) for each in self.pod_sets))

    def required(self, level: str) -> "AWorkload":
        """One domain at that level or nothing."""
        return self._together(TopologyMode.REQUIRED, level)

    def preferred(self, level: str) -> "AWorkload":
        """One domain at that level if there is one."""
        return self._together(TopologyMode.PREFERRED, level)

    def spread(self) -> "AWorkload":
        """Emptiest first."""
        return self.having(strategy=StrategyName.SPREAD)

    def in_queue(self, path: str) -> "AWorkload":
        """Where it waits."""
        return replace(self, queue=path)

    def at(self, minutes: int) -> "AWorkload":
        """When it was submitted."""
        return replace(self, minutes=minutes)

    def with_priority(self, priority: int) -> "AWorkload":
        """High first."""
        return replace(self, priority=priority)

    def having(self, **changes: object) -> "AWorkload":
        """Any other field of a Workload."""
        return replace(self, changes={**self.changes, **changes})

    def build(self, queue: QueueId) -> Workload:
        """The value."""
        workload = Workload(
            id=WorkloadId(self.name),
            name=self.name,
            queue=queue,
            owner="someone",
            priority=self.priority,
            submitted_at=NOW - timedelta(hours=10) + timedelta(minutes=self.minutes),
            next_attempt=AttemptNumber(1),
            pod_sets=self.pod_sets,
        )
        return replace(workload, **self.changes)  # type: ignore[arg-type]  # a test names real fields

    def _together(self, mode: TopologyMode, level: str) -> "AWorkload":
        sets = tuple(replace(each, topology_mode=mode, topology_level=level) for each in self.pod_sets)
        return replace(self, pod_sets=sets)


def a_workload(name: str = "job") -> AWorkload:
    """One pod of 8 cards in Queue `team`."""
    return AWorkload(name)


class AWorld:
    """A Snapshot in the making. Queues are named by path, parents first; ids are given in order."""

    def __init__(self) -> None:
        self.clusters: dict[ClusterId, Cluster] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.queues: dict[str, Queue] = {}
        self.waiting: dict[WorkloadId, Workload] = {}
        self.running: dict[WorkloadId, RunningAttempt] = {}
        self.earmarks: dict[WorkloadId, Earmark] = {}
        self.exclusions: list[Exclusion] = []
        self.spent: list[Spent] = []

    def cluster(self, name: str, levels: tuple[str, ...] = LEVELS, **changes: object) -> "AWorld":
        """A ready Cluster with a fresh inventory and the namespace `team`."""
        new = Cluster(ClusterId(len(self.clusters) + 1), name, ClusterState.READY, levels, (), frozenset({"team"}), NOW)
        self.clusters[new.id] = replace(new, **changes)  # type: ignore[arg-type]  # a test names real fields
        return self

    def racks(self, racks: int, nodes: int, devices: int = 8, flavor: FlavorName = H100, block: str = "b0") -> "AWorld":
        """Racks of equal nodes in the last Cluster, named r0, r1… and r0-n0…"""
        first = len({node.domains[1] for node in self.nodes.values() if node.domains[0] == block})
        for rack in range(first, first + racks):
            for number in range(nodes):
                self.node(f"{block}-r{rack}-n{number}", (block, f"r{rack}"), {flavor: devices})
        return self

    def node(
        self, name: str, domains: tuple[str, ...] = (), devices: dict[FlavorName, int] | None = None, **changes: object
    ) -> "AWorld":
        """One Node of the last Cluster with 64 cores and 1 TiB."""
        cluster = max(self.clusters)
        units = {H100: 8} if devices is None else devices
        new = Node(
            NodeId(len(self.nodes) + 1), cluster, name, (*domains, name), True, units, units, {}, 64_000, 2**40, 0, 0
        )
        self.nodes[new.id] = replace(new, **changes)  # type: ignore[arg-type]  # a test names real fields
        return self

    def change_node(self, name: str, **changes: object) -> "AWorld":
        """Change a Node that is there."""
        node = self.node_named(name)
        self.nodes[node.id] = replace(node, **changes)  # type: ignore[arg-type]  # a test names real fields
        return self

    def queue(
        self,
        path: str,
        nominal: int | None = 0,
        borrow: int | None = None,
        lend: int | None = None,
        weight: int = 1,
        flavor: FlavorName = H100,
    ) -> "AWorld":
        """A Queue with one Quota."""
        return self.queue_of(path, Quota(flavor, nominal, borrow, lend), weight=weight)

    def queue_of(self, path: str, *quotas: Quota, weight: int = 1, namespace: str = "") -> "AWorld":
        """A Queue with these Quotas."""
        parent = self.queues[path.rpartition("/")[0]].id if "/" in path else None
        self.queues[path] = Queue(QueueId(len(self.queues) + 1), path, parent, weight, quotas, namespace)
        return self

    def waits(self, *workloads: AWorkload) -> "AWorld":
        """Workloads that wait."""
        for each in workloads:
            queue = self.queues[each.queue].id if each.queue in self.queues else QueueId(999)
            self.waiting[WorkloadId(each.name)] = each.build(queue)
        return self

    def runs(
        self,
        name: str,
        queue: str,
        nodes: dict[str, int],
        *,
        minutes: int = 0,
        flavor: FlavorName = H100,
        state: AttemptState = AttemptState.RUNNING,
    ) -> "AWorld":
        """A running Attempt that holds these units on these nodes; the nodes' counters follow."""
        shares = []
        for node_name, units in nodes.items():
            node = self.node_named(node_name)
            self.nodes[node.id] = replace(node, held={**node.held, flavor: node.held.get(flavor, 0) + units})
            shares.append(NodeShare(node.id, flavor, units))
        self.running[WorkloadId(name)] = RunningAttempt(
            WorkloadId(name),
            name,
            AttemptNumber(1),
            self.queues[queue].id,
            0,
            state,
            NOW - timedelta(hours=5) + timedelta(minutes=minutes),
            tuple(sorted({self.nodes[share.node].cluster for share in shares})),
            ((flavor, sum(nodes.values())),),
            tuple(shares),
        )
        return self

    def stops(self, name: str) -> "AWorld":
        """A running Attempt was told to stop and still holds everything."""
        running = self.running[WorkloadId(name)]
        self.running[WorkloadId(name)] = replace(running, state=AttemptState.STOPPING)
        return self

    def ends(self, name: str) -> "AWorld":
        """A running Attempt has gone."""
        for share in self.running.pop(WorkloadId(name)).shares:
            self._hold(share, -1)
        return self

    def admits(self, decision: Admit, minutes: int = 0) -> "AWorld":
        """Carry an Admit out: the Workload runs where the Plan says, with all that its pods ask for."""
        waiting = self.waiting.pop(decision.workload)
        needs = {each.name: each.needs for each in waiting.pod_sets}
        shares: dict[tuple[NodeId, FlavorName], NodeShare] = {}
        for pod in [pod for placement in decision.placements for pod in placement.pods]:
            asked, before = needs[pod.pod_set], shares.get((pod.node, pod.flavor), NodeShare(pod.node, pod.flavor, 0))
            shares[pod.node, pod.flavor] = NodeShare(
                pod.node,
                pod.flavor,
                before.amount + pod.amount,
                before.cpu_milli + asked.cpu_milli,
                before.memory_bytes + asked.memory_bytes,
                before.pods + 1,
                before.rdma + asked.rdma,
                before.hugepages_bytes + asked.hugepages_bytes,
                before.local_storage_bytes + asked.local_storage_bytes,
            )
        for share in shares.values():
            self._hold(share, 1)
        self.running[decision.workload] = RunningAttempt(
            decision.workload,
            waiting.name,
            decision.attempt,
            decision.queue,
            waiting.priority,
            AttemptState.RUNNING,
            NOW - timedelta(hours=5) + timedelta(minutes=minutes),
            tuple(placement.cluster for placement in decision.placements),
            decision.charges,
            tuple(shares.values()),
            waiting.owner,
        )
        return self

    def _hold(self, share: NodeShare, sign: int) -> None:
        """Count a share among what its Node has given away, or no longer."""
        node = self.nodes[share.node]
        more = {f"{name}_held": getattr(node, f"{name}_held") + sign * getattr(share, name) for name in _NEEDS}
        held = {**node.held, share.flavor: node.held.get(share.flavor, 0) + sign * share.amount}
        held = {flavor: units for flavor, units in held.items() if units or flavor in node.held}
        self.nodes[share.node] = replace(node, held=held, **more)

    def keeps(self, workload: str, nodes: dict[str, int], *, minutes: int = 10, flavor: FlavorName = H100) -> "AWorld":
        """An Earmark."""
        shares = tuple(NodeShare(self.node_named(node).id, flavor, units) for node, units in nodes.items())
        cluster = self.nodes[shares[0].node].cluster
        self.earmarks[WorkloadId(workload)] = Earmark(
            WorkloadId(workload), cluster, shares, NOW + timedelta(minutes=minutes)
        )
        return self

    def excludes(self, shape: str, node: str, words: str = "no", minutes: int = 10) -> "AWorld":
        """A node that its scheduler refused for that shape."""
        self.exclusions.append(Exclusion(shape, self.node_named(node).id, NOW + timedelta(minutes=minutes), words))
        return self

    def node_named(self, name: str) -> Node:
        """The Node of that name."""
        return next(node for node in self.nodes.values() if node.name == name)

    def build(self) -> Snapshot:
        """The value."""
        return Snapshot(
            pool=PoolId(1),
            clusters=dict(self.clusters),
            nodes=dict(self.nodes),
            queues={queue.id: queue for queue in self.queues.values()},
            waiting=dict(self.waiting),
            running=dict(self.running),
            earmarks=dict(self.earmarks),
            exclusions=tuple(self.exclusions),
            spent=tuple(self.spent),
        )


def a_world() -> AWorld:
    """Nothing in it yet."""
    return AWorld()
