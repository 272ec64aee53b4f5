"""Counts room node by node, without the index and without the planner: what laws hold the planner to."""

from collections import Counter

from controlplane.core.capacity import Node
from controlplane.core.demand import PodSet, TopologyMode, Workload
from controlplane.core.ids import FlavorName, NodeId
from controlplane.core.lifecycle import ClusterState
from controlplane.core.nodes import is_eligible
from controlplane.core.scenario import tree_of
from controlplane.core.snapshot import Snapshot
from tests.laws.worlds import is_spent

NEEDS = ("cpu_milli", "memory_bytes", "rdma", "hugepages_bytes", "local_storage_bytes")


def box(snapshot: Snapshot, node: NodeId, depth: int) -> tuple[object, ...]:
    """A node's domain at a level, -1 for the whole cluster; a node without a label is one of its own."""
    domains = snapshot.nodes[node].domains[: depth + 1]
    return (*domains, "" if all(domains) else node)


def has_room(snapshot: Snapshot, workload: Workload) -> bool:
    """Whether one cluster has a place for a Workload of one PodSet that its Queue may use."""
    (pod_set,) = workload.pod_sets
    tree = tree_of(snapshot)
    wanted = pod_set.devices * pod_set.replicas
    flavors = [
        flavor
        for flavor in pod_set.flavors
        if tree.available(workload.queue, flavor) >= wanted
        and not any(is_spent(snapshot.spent, snapshot.queues[queue], flavor) for queue in tree.path(workload.queue))
    ]
    excluded = {each.node for each in snapshot.exclusions if each.shape == workload.shape}
    for cluster in snapshot.clusters.values():
        depth = -1
        if pod_set.topology_mode is TopologyMode.REQUIRED:
            if pod_set.topology_level not in cluster.levels:
                continue
            depth = cluster.levels.index(pod_set.topology_level)
        for flavor in flavors if pod_set.devices else [FlavorName("")]:
            room: Counter[tuple[object, ...]] = Counter()
            for node in snapshot.nodes.values():
                if node.cluster == cluster.id and node.is_schedulable and node.id not in excluded:
                    room[box(snapshot, node.id, depth)] += fits(pod_set, node, flavor)
            is_open = cluster.state is ClusterState.READY and not cluster.drain + cluster.cordon
            if is_open and any(pods >= pod_set.replicas for pods in room.values()):
                return True
    return False


def fits(pod_set: PodSet, node: Node, flavor: FlavorName) -> int:
    """How many pods one node takes beside what it holds."""
    if not is_eligible(node, pod_set.rules, asks_devices=pod_set.devices > 0):
        return 0
    limits = [(node.pods - node.pods_held, 1), (node.free(flavor), pod_set.devices)]
    limits += [(getattr(node, name) - getattr(node, f"{name}_held"), getattr(pod_set.needs, name)) for name in NEEDS]
    return min(max(0, have) // asked for have, asked in limits if asked)


def is_crowded(snapshot: Snapshot, workload: Workload) -> bool:
    """Whether a Queue on its way to the root has as many Workloads under way as it may."""
    tree = tree_of(snapshot)
    for queue in tree.path(workload.queue):
        most = snapshot.queues[queue].most_running
        live = sum(queue in tree.path(attempt.queue) for attempt in snapshot.running.values())
        if most is not None and live >= most:
            return True
    return False
