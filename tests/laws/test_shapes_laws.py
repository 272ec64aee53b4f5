"""Laws of gangs with a shape: slices, leaders beside their group, elastic PodSets, pieces in several clusters."""

from collections import Counter
from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.cycle import explain, plan_cycle
from controlplane.core.demand import PodNeeds, PodSet, StrategyName, TopologyMode, Workload
from controlplane.core.ids import FlavorName, NodeId, WorkloadId
from controlplane.core.index import FleetIndex
from controlplane.core.placement.registry import STRATEGIES
from controlplane.core.plan import Admit, PodPlacement
from controlplane.core.policy import Policy
from controlplane.core.records import plan_hash
from controlplane.core.scenario import tree_of
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Quota
from tests.builders.core import NOW, AWorld, a_workload
from tests.laws.worlds import FLAVORS, LAW, fleets

each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
LEVELS = ("block", "rack", "host", "no-such-level")


@st.composite
def shaped_sets(draw: st.DrawFn, name: str, others: tuple[str, ...]) -> PodSet:
    """A PodSet of any shape; beside one of the others, or with a level and slices of its own."""
    devices = draw(st.sampled_from((0, 1, 2, 4)))
    flavors = draw(st.lists(st.sampled_from(FLAVORS), min_size=1, max_size=2, unique=True)) if devices else []
    needs = PodNeeds(draw(st.sampled_from((0, 0, 0, 20_000))))
    size = draw(st.sampled_from((0, 0, 1, 2, 3)))
    count = draw(st.integers(1, 4))
    made = PodSet(name, count * (size or 1), devices, tuple(flavors), needs)
    if draw(st.booleans()):
        made = replace(made, min_replicas=draw(st.integers(1, count)) * (size or 1))
    if draw(st.booleans()) and others:
        return replace(made, with_pod_set=draw(st.sampled_from(others)))
    mode = draw(st.sampled_from(TopologyMode))
    level = "" if mode is TopologyMode.NONE else draw(st.sampled_from(LEVELS))
    slice_level = draw(st.sampled_from(LEVELS[:3])) if size else ""
    return replace(made, topology_mode=mode, topology_level=level, slice_size=size, slice_level=slice_level)


@st.composite
def shaped_worlds(draw: st.DrawFn, strategy: StrategyName) -> AWorld:
    """A fleet whose clusters reach each other or not, and up to four gangs of any shape."""
    world = draw(fleets())
    for cluster in list(world.clusters):
        domain = draw(st.sampled_from(("", "a", "a", "b")))
        world.clusters[cluster] = replace(world.clusters[cluster], network_domain=domain)
    for node in list(world.nodes.values()):  # what nodes allow has laws of its own
        world.change_node(node.name, taints=(), labels={}, pods=110, pods_held=0)
    world.queue_of("team", *(Quota(flavor, draw(st.sampled_from((7, 1_000)))) for flavor in FLAVORS))
    for number in range(draw(st.integers(1, 4))):
        names = tuple(f"set-{index}" for index in range(draw(st.integers(1, 3))))
        sets = [draw(shaped_sets(name, names[:index])) for index, name in enumerate(names)]
        job = a_workload(f"job-{number}").with_sets(*sets).at(number)
        world.waits(job.having(strategy=strategy, clusters_max=draw(st.integers(1, 3))))
    return world


def admits(snapshot: Snapshot) -> list[Admit]:
    plan = plan_cycle(snapshot, Policy(), NOW)
    return [decision for decision in plan.decisions if isinstance(decision, Admit)]


@each_strategy
@LAW
@given(data=st.data())
def test_a_gang_of_any_shape_is_whole_keeps_its_shape_and_fits(strategy: StrategyName, data: st.DataObject) -> None:
    snapshot = data.draw(shaped_worlds(strategy)).build()
    units: Counter[tuple[NodeId, FlavorName]] = Counter()
    cpu: Counter[NodeId] = Counter()
    tree = tree_of(snapshot)
    for decision in admits(snapshot):
        workload = snapshot.waiting[decision.workload]
        pods = [pod for placement in decision.placements for pod in placement.pods]
        _has_the_pods_that_it_asked_for(workload, pods)
        _is_in_clusters_that_may_share_it(snapshot, workload, decision)
        for pod_set in workload.pod_sets:
            mine = sorted((pod for pod in pods if pod.pod_set == pod_set.name), key=lambda pod: pod.index)
            _keeps_its_levels(snapshot, pod_set, mine)
            _sits_with_its_group(snapshot, workload, pod_set, pods)
            for pod in mine:
                units[pod.node, pod.flavor] += pod.amount
                cpu[pod.node] += pod_set.needs.cpu_milli
        charged = Counter[FlavorName]()
        for pod in pods:
            charged[pod.flavor] += pod.amount
        assert dict(decision.charges) == {flavor: amount for flavor, amount in charged.items() if amount}
        for flavor, amount in decision.charges:
            assert amount <= tree.available(decision.queue, flavor)
            tree.charge(decision.queue, flavor, amount)
    assert all(amount <= snapshot.nodes[node].free(flavor) for (node, flavor), amount in units.items())
    assert all(amount <= snapshot.nodes[node].cpu_milli for node, amount in cpu.items())


def _has_the_pods_that_it_asked_for(workload: Workload, pods: list[PodPlacement]) -> None:
    for pod_set in workload.pod_sets:
        mine = [pod for pod in pods if pod.pod_set == pod_set.name]
        assert pod_set.least <= len(mine) <= pod_set.replicas
        assert sorted(pod.index for pod in mine) == list(range(len(mine)))
        assert len(mine) % (pod_set.slice_size or 1) == 0
        assert len({pod.flavor for pod in mine}) == 1, "identical pods"


def _is_in_clusters_that_may_share_it(snapshot: Snapshot, workload: Workload, decision: Admit) -> None:
    clusters = [snapshot.clusters[placement.cluster] for placement in decision.placements]
    assert len({cluster.id for cluster in clusters}) == len(clusters) <= workload.clusters_max
    for placement in decision.placements:
        assert placement.pods
        assert {snapshot.nodes[pod.node].cluster for pod in placement.pods} == {placement.cluster}
    if len(clusters) > 1:
        assert len({cluster.network_domain for cluster in clusters}) == 1
        assert clusters[0].network_domain


def _keeps_its_levels(snapshot: Snapshot, pod_set: PodSet, pods: list[PodPlacement]) -> None:
    """`pods` by index: slices are consecutive."""
    if pod_set.topology_mode is TopologyMode.REQUIRED:
        assert len({_box(snapshot, pod.node, pod_set.topology_level) for pod in pods}) == 1
    for at in range(0, len(pods), pod_set.slice_size or len(pods) or 1):
        part = pods[at : at + pod_set.slice_size] if pod_set.slice_size else []
        assert len({_box(snapshot, pod.node, pod_set.slice_level) for pod in part}) <= 1
    boxes = [snapshot.nodes[pod.node].cluster for pod in pods]
    assert len([cluster for cluster, _ in groupby(boxes)]) == len(set(boxes)), "ranks go on from cluster to cluster"
    if not pod_set.slice_size and pods:
        assert len(set(boxes)) == 1, "only slices are divided"


def _sits_with_its_group(snapshot: Snapshot, workload: Workload, pod_set: PodSet, pods: list[PodPlacement]) -> None:
    by_name = {each.name: each for each in workload.pod_sets}
    first = pod_set
    while first.with_pod_set:
        first = by_name[first.with_pod_set]
    if first is pod_set or first.topology_mode is not TopologyMode.REQUIRED:
        return
    both = [pod for pod in pods if pod.pod_set in (pod_set.name, first.name)]
    assert len({_box(snapshot, pod.node, first.topology_level) for pod in both}) == 1


def _box(snapshot: Snapshot, node: NodeId, level: str) -> tuple[object, ...]:
    """A node's domain at a level; a node without a label is its own."""
    found = snapshot.nodes[node]
    depth = snapshot.clusters[found.cluster].levels.index(level)
    domains = found.domains[: depth + 1]
    return (found.cluster, *domains, "" if all(domains) else node)


@each_strategy
@LAW
@given(data=st.data())
def test_the_plan_of_any_shape_is_one_plan_and_who_waits_is_told_why(
    strategy: StrategyName, data: st.DataObject
) -> None:
    snapshot = data.draw(shaped_worlds(strategy)).build()
    plan = plan_cycle(snapshot, Policy(), NOW)
    index = FleetIndex(snapshot.clusters, snapshot.nodes)
    assert plan_hash(plan_cycle(snapshot, Policy(), NOW, index)) == plan_hash(plan)
    assert plan_hash(plan_cycle(snapshot, Policy(), NOW, index)) == plan_hash(plan), "the index came back as it was"
    started = {decision.workload for decision in plan.decisions if isinstance(decision, Admit)}
    for workload in snapshot.waiting:
        told = explain(snapshot, Policy(), NOW, workload)
        assert bool(told) == (workload not in started)
        assert all(reason.sentence() for reason in told)


@each_strategy
@LAW
@given(data=st.data())
def test_counters_of_slices_that_are_kept_warm_plan_as_new_ones_do(strategy: StrategyName, data: st.DataObject) -> None:
    world = data.draw(shaped_worlds(strategy))
    snapshot = world.build()
    index = FleetIndex(snapshot.clusters, snapshot.nodes)
    plan_cycle(snapshot, Policy(), NOW, index)
    for node in data.draw(st.lists(st.sampled_from(list(world.nodes.values())), min_size=1, max_size=3)):
        held = {flavor: data.draw(st.integers(0, units)) for flavor, units in node.usable.items()}
        world.change_node(node.name, held=held, is_schedulable=data.draw(st.booleans()))
    changed = world.build()
    warm = index.refreshed(changed.clusters, changed.nodes)
    assert plan_hash(plan_cycle(changed, Policy(), NOW, warm)) == plan_hash(plan_cycle(changed, Policy(), NOW))


@each_strategy
@LAW
@given(data=st.data())
def test_one_pod_set_alone_starts_with_the_most_pods_that_counting_finds(
    strategy: StrategyName, data: st.DataObject
) -> None:
    world = data.draw(shaped_worlds(strategy))
    job = world.build().waiting[WorkloadId("job-0")]
    alone = replace(job, pod_sets=(replace(job.pod_sets[0], flavors=job.pod_sets[0].flavors[:1]),), clusters_max=1)
    world.waiting = {alone.id: alone}
    snapshot = world.build()
    found = [len(placement.pods) for decision in admits(snapshot) for placement in decision.placements]
    assert found == ([most] if (most := _most_by_counting(snapshot, alone)) else [])


def _most_by_counting(snapshot: Snapshot, workload: Workload) -> int:
    """Node by node, without the index; 0 if not even the least fits."""
    (pod_set,) = workload.pod_sets
    flavor = pod_set.flavors[0] if pod_set.flavors else FlavorName("")
    step, best = pod_set.slice_size or 1, 0
    quota = tree_of(snapshot).available(workload.queue, flavor) if pod_set.devices else 0
    bound = min(pod_set.replicas, quota // pod_set.devices) if pod_set.devices else pod_set.replicas
    for cluster in snapshot.clusters.values():
        needed = [pod_set.topology_level] if pod_set.topology_mode is TopologyMode.REQUIRED else []
        needed += [pod_set.slice_level] if pod_set.slice_size else []
        is_open = cluster.state.value == "ready" and not cluster.drain + cluster.cordon
        if not is_open or any(level not in cluster.levels for level in needed):
            continue
        slices: Counter[tuple[tuple[object, ...], tuple[object, ...]]] = Counter()
        for node in snapshot.nodes.values():
            if node.cluster == cluster.id and node.is_schedulable:
                whole = _box(snapshot, node.id, needed[0]) if pod_set.topology_mode is TopologyMode.REQUIRED else ()
                part = _box(snapshot, node.id, pod_set.slice_level) if pod_set.slice_size else (node.id,)
                limits = [node.pods]
                limits += [node.free(flavor) // pod_set.devices] if pod_set.devices else []
                limits += [node.cpu_milli // pod_set.needs.cpu_milli] if pod_set.needs.cpu_milli else []
                slices[whole, part] += min(limits)
        rooms: Counter[tuple[object, ...]] = Counter()
        for (whole, _), pods in slices.items():
            rooms[whole] += pods - pods % step
        if needed and pod_set.slice_size and pod_set.topology_mode is TopologyMode.REQUIRED:
            finer = cluster.levels.index(needed[0]) > cluster.levels.index(pod_set.slice_level)
            if finer:  # one box inside a slice's domain holds all slices by itself
                rooms = Counter()
                for (whole, _), pods in slices.items():
                    rooms[whole] += pods
        most = min(bound, max(rooms.values(), default=0))
        best = max(best, most - most % step)
    return best if best >= pod_set.least else 0
