"""The numbers in a Reason are true: each equals what is counted anew from the Snapshot, node by node."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given

from controlplane.core.capacity import Node
from controlplane.core.cycle import explain
from controlplane.core.demand import PodSet, Workload
from controlplane.core.ids import ClusterId, FlavorName, WorkloadId
from controlplane.core.nodes import is_eligible
from controlplane.core.policy import Policy
from controlplane.core.reasons import Fact, Reason, ReasonCode
from controlplane.core.snapshot import Snapshot
from tests.builders.core import NOW, AWorld
from tests.laws.worlds import LAW, worlds

SLOTS_MAX = 1_024


def alone(world: AWorld) -> tuple[Snapshot, Workload]:
    """One that waits with one PodSet, and nobody before it, nothing kept or left out: all it lacks is countable."""
    snapshot = world.build()
    first = min(snapshot.waiting.values(), key=lambda each: each.id)
    one = replace(first, pod_sets=first.pod_sets[:1], preferred_nodes=())
    return replace(snapshot, waiting={one.id: one}, earmarks={}, exclusions=()), one


def on_node(node: Node, pod_set: PodSet, flavor: FlavorName) -> int:
    """How many pods of it a node takes now."""
    if not node.is_schedulable or not is_eligible(node, pod_set.rules, asks_devices=pod_set.devices > 0):
        return 0
    needs = pod_set.needs
    bounds = [min(node.pods, SLOTS_MAX) - node.pods_held]
    if pod_set.devices:
        bounds.append((node.usable.get(flavor, 0) - node.held.get(flavor, 0)) // pod_set.devices)
    for have, held, need in (
        (node.cpu_milli, node.cpu_milli_held, needs.cpu_milli),
        (node.memory_bytes, node.memory_bytes_held, needs.memory_bytes),
        (node.rdma, node.rdma_held, needs.rdma),
        (node.hugepages_bytes, node.hugepages_bytes_held, needs.hugepages_bytes),
        (node.local_storage_bytes, node.local_storage_bytes_held, needs.local_storage_bytes),
    ):
        if need:
            bounds.append((have - held) // need)
    return max(0, min(bounds))


class Recount:
    """What a Reason's numbers should be."""

    def __init__(self, snapshot: Snapshot, workload: Workload, why: Reason) -> None:
        self.snapshot, self.facts = snapshot, why.facts
        self.pod_set = workload.pod_sets[0]
        told = str(why.facts.get("flavor", ""))
        self.flavor = FlavorName("" if told == "flavor" else told)
        self.cluster = next(
            (each.id for each in snapshot.clusters.values() if each.name == why.facts.get("cluster")), ClusterId(0)
        )
        self.nodes = [node for node in snapshot.nodes.values() if node.cluster == self.cluster]

    def fits(self) -> int:
        """In the whole cluster."""
        return sum(on_node(node, self.pod_set, self.flavor) for node in self.nodes)

    def free(self) -> int:
        return sum(node.free(self.flavor) for node in self.nodes)

    def fits_in_best(self) -> int:
        """In the roomiest domain of the level; a node without a label there is one of its own."""
        levels = self.snapshot.clusters[self.cluster].levels or ("host",)
        at = levels.index(self.pod_set.topology_level)
        rooms: dict[object, int] = {}
        for node in self.nodes:
            labels = node.domains[: at + 1] if at < len(levels) - 1 else ()
            key = tuple(label or node.name for label in labels) if labels else node.name
            rooms[key] = rooms.get(key, 0) + on_node(node, self.pod_set, self.flavor)
        return max(rooms.values())

    def total(self) -> int:
        return sum(node.owned.get(self.flavor, 0) for node in self.nodes)

    def wanted(self) -> int:
        return self.pod_set.devices * self.pod_set.least

    def eligible(self) -> int:
        return sum(
            is_eligible(node, self.pod_set.rules, asks_devices=self.pod_set.devices > 0)
            and (not self.pod_set.devices or node.owned.get(self.flavor, 0) > 0)
            for node in self.nodes
        )

    def empty(self) -> int:
        """Pods whose devices eligible nodes own."""
        allowed = [node for node in self.nodes if is_eligible(node, self.pod_set.rules, asks_devices=True)]
        return sum(node.owned.get(self.flavor, 0) // self.pod_set.devices for node in allowed)


Count = Callable[[Recount], Fact]
PODS: dict[str, Count] = {
    "pods": lambda at: at.pod_set.least,
    "devices": lambda at: at.pod_set.devices,
}
COUNTS: dict[ReasonCode, dict[str, Count]] = {
    ReasonCode.NOT_ENOUGH_FREE: {**PODS, "fits": Recount.fits, "free": Recount.free},
    ReasonCode.ELIGIBLE_NODES_FULL: {**PODS, "fits": Recount.fits, "count": Recount.eligible},
    ReasonCode.TOPOLOGY_TOO_FRAGMENTED: {**PODS, "fits": Recount.fits_in_best},
    ReasonCode.CLUSTER_TOO_SMALL: {"total": Recount.total, "wanted": Recount.wanted},
    ReasonCode.NODES_NOT_ELIGIBLE: {**PODS, "fits": Recount.empty, "count": Recount.eligible},
    ReasonCode.QUOTA_EXCEEDED: {"wanted": Recount.wanted},
    ReasonCode.QUOTA_BEYOND_POTENTIAL: {"wanted": Recount.wanted},
}


@LAW
@given(world=worlds())
def test_every_number_that_is_told_is_true(world: AWorld) -> None:
    snapshot, workload = alone(world)
    for why in explain(snapshot, Policy(), NOW, WorkloadId(workload.id)):
        recount = Recount(snapshot, workload, why)
        for name, count in COUNTS.get(why.code, {}).items():
            assert why.facts[name] == count(recount), (name, why.sentence())
