"""Does what advice says, by its numbers alone, as people would: a priority is changed, another submit replaces the old
one, a Queue's document is edited, nodes are bought. It shares no code with those who found and tried the advice.
"""

from dataclasses import replace
from datetime import datetime

from controlplane.core.advice import Advice, Step, StepKind
from controlplane.core.capacity import Node
from controlplane.core.demand import PodSet, TopologyMode, Workload
from controlplane.core.ids import AttemptNumber, FlavorName, NodeId, WorkloadId
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Queue, Quota

OF_WORK = {StepKind.PRIORITY, StepKind.FLAVOR, StepKind.TOPOLOGY, StepKind.REPLICAS, StepKind.CLUSTERS}


def done(snapshot: Snapshot, workload: WorkloadId, advice: Advice, now: datetime) -> tuple[Snapshot, WorkloadId]:
    """The world after all steps, and the Workload that is to start in it: a new one where it was submitted again."""
    for each in advice.steps:
        if each.kind in OF_WORK:
            snapshot, workload = _asked_otherwise(snapshot, workload, each, now)
        elif each.kind is StepKind.CAPACITY:
            snapshot = _with_nodes(snapshot, workload, each)
        else:
            snapshot = _edited(snapshot, each)
    return snapshot, workload


def _asked_otherwise(
    snapshot: Snapshot, workload: WorkloadId, step: Step, now: datetime
) -> tuple[Snapshot, WorkloadId]:
    old = snapshot.waiting[workload]
    if step.kind is StepKind.PRIORITY:
        assert old.priority == step.numbers["instead"]
        changed = replace(old, priority=int(step.numbers["priority"]))
        return replace(snapshot, waiting={**snapshot.waiting, workload: changed}), workload
    new = Workload(
        id=WorkloadId(f"{workload}-again"),
        name=old.name,
        queue=old.queue,
        owner=old.owner,
        priority=old.priority,
        submitted_at=now,
        next_attempt=AttemptNumber(1),
        pod_sets=tuple(_set(each, step) for each in old.pod_sets),
        strategy=old.strategy,
        namespace=old.namespace,
        clusters_avoided=old.clusters_avoided,
        cluster_selector=old.cluster_selector,
        shape=old.shape,
        clusters_max=int(step.numbers["most"]) if step.kind is StepKind.CLUSTERS else old.clusters_max,
        requires=old.requires,
    )
    waiting = {name: each for name, each in snapshot.waiting.items() if name != workload}
    kept = {name: each for name, each in snapshot.earmarks.items() if name != workload}
    left = tuple(name for name in snapshot.left_over if name != workload)
    return replace(snapshot, waiting={**waiting, new.id: new}, earmarks=kept, left_over=left), new.id


def _set(pod_set: PodSet, step: Step) -> PodSet:
    if step.kind is StepKind.FLAVOR and pod_set.devices:
        return replace(pod_set, flavors=(FlavorName(str(step.numbers["flavor"])),), speeds=())
    if step.kind is StepKind.TOPOLOGY and pod_set.topology_mode is TopologyMode.REQUIRED:
        return replace(pod_set, topology_mode=TopologyMode.PREFERRED)
    if step.kind is StepKind.REPLICAS and pod_set.name == step.numbers["pod_set"]:
        replicas = int(step.numbers["replicas"])
        assert replicas < int(step.numbers["instead"]) == pod_set.least
        least = None if pod_set.min_replicas is None else min(pod_set.min_replicas, replicas)
        return replace(pod_set, replicas=replicas, min_replicas=least)
    return pod_set


def _edited(snapshot: Snapshot, step: Step) -> Snapshot:
    queue = next(each for each in snapshot.queues.values() if each.path == step.numbers["queue"])
    return replace(snapshot, queues={**snapshot.queues, queue.id: _queue(queue, step)})


def _queue(queue: Queue, step: Step) -> Queue:
    if step.kind is StepKind.MOST_RUNNING:
        return replace(queue, most_running=int(step.numbers["most"]))
    flavor = FlavorName(str(step.numbers["flavor"]))
    if step.kind is StepKind.BUDGET:
        budgets = [
            replace(each, device_hours=int(step.numbers["hours"]))
            if (each.flavor, each.per.value, each.is_hard) == (flavor, step.numbers["period"], True)
            else each
            for each in queue.budgets
        ]
        return replace(queue, budgets=tuple(budgets))
    others = tuple(each for each in queue.quotas if each.flavor != flavor)
    quota = next((each for each in queue.quotas if each.flavor == flavor), Quota(flavor, 0))
    if step.kind is StepKind.NOMINAL:
        assert (quota.nominal or 0) == step.numbers["instead"]
        return replace(queue, quotas=(*others, replace(quota, nominal=int(step.numbers["nominal"]))))
    return replace(queue, quotas=(*others, replace(quota, borrow=int(step.numbers["borrow"]))))


def _with_nodes(snapshot: Snapshot, workload: WorkloadId, step: Step) -> Snapshot:
    told = step.numbers
    cluster = next(each for each in snapshot.clusters.values() if each.name == told["cluster"])
    flavor, level, path = FlavorName(str(told["flavor"])), str(told["level"]), str(told["path"])
    nodes, domains, units = int(told["nodes"]), int(told["domains"]), int(told["on_a_node"])
    assert int(told["units"]) == nodes * domains * units
    like = next(node for node in snapshot.nodes.values() if (node.cluster, node.name) == (cluster.id, told["like"]))
    needs = next(at.needs for at in snapshot.waiting[workload].pod_sets if at.name == told["pod_set"])
    pods = units // next(at.devices for at in snapshot.waiting[workload].pod_sets if at.name == told["pod_set"])
    first = max(snapshot.nodes) + 1_000
    coarse = (cluster.levels or ("host",))[:-1]
    made: dict[NodeId, Node] = {}
    for number in range(nodes * domains):
        labels = [""] * len(coarse)
        if path:
            labels[: path.count("/") + 1] = path.split("/")
        elif level in coarse:
            at = coarse.index(level)
            labels[: at + 1] = [f"bought-{first}"] * at + [f"bought-{first}-{number // nodes}"]
        node, name = NodeId(first + number), f"bought-{first + number}"
        made[node] = Node(
            node, cluster.id, name, (*labels, name), True, {flavor: units}, {flavor: units},
            {}, max(like.cpu_milli, pods * needs.cpu_milli), max(like.memory_bytes, pods * needs.memory_bytes), 0, 0,
            labels=like.labels, taints=like.taints, pods=max(like.pods, pods),
            rdma=max(like.rdma, pods * needs.rdma),
            hugepages_bytes=max(like.hugepages_bytes, pods * needs.hugepages_bytes),
            local_storage_bytes=max(like.local_storage_bytes, pods * needs.local_storage_bytes),
        )  # fmt: skip
    return replace(snapshot, nodes={**snapshot.nodes, **made})
