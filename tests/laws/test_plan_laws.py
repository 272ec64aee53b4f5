"""Laws of a cycle, for every strategy, on generated worlds."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.cycle import explain, plan_cycle
from controlplane.core.demand import StrategyName, TopologyMode, Workload
from controlplane.core.ids import FlavorName, NodeId, QueueId, WorkloadId
from controlplane.core.index import FleetIndex
from controlplane.core.lifecycle import ClusterState
from controlplane.core.nodes import is_eligible
from controlplane.core.placement.registry import STRATEGIES
from controlplane.core.plan import Admit, Plan, Reclaim, SetEarmark
from controlplane.core.policy import Policy
from controlplane.core.reasons import Reason, ReasonCode
from controlplane.core.recheck import FreshWorld, recheck
from controlplane.core.records import plan_hash
from controlplane.core.scenario import tree_of
from controlplane.core.snapshot import Snapshot
from tests.builders.core import NOW, AWorld, a_workload
from tests.laws.counting import NEEDS, box, has_room, is_crowded
from tests.laws.worlds import LAW, crowded, is_spent, worlds

each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


def plan_of(snapshot: Snapshot) -> Plan:
    return plan_cycle(snapshot, Policy(), NOW)


def admits(plan: Plan) -> list[Admit]:
    return [decision for decision in plan.decisions if isinstance(decision, Admit)]


def turned(snapshot: Snapshot) -> Snapshot:
    """The same world in another order."""
    return replace(
        snapshot,
        clusters=dict(reversed(list(snapshot.clusters.items()))),
        nodes=dict(reversed(list(snapshot.nodes.items()))),
        queues=dict(reversed(list(snapshot.queues.items()))),
        waiting=dict(reversed(list(snapshot.waiting.items()))),
        running=dict(reversed(list(snapshot.running.items()))),
        earmarks=dict(reversed(list(snapshot.earmarks.items()))),
        exclusions=snapshot.exclusions[::-1],
        spent=snapshot.spent[::-1],
    )


@each_strategy
@LAW
@given(data=st.data())
def test_the_same_world_gives_the_same_plan_in_any_order_warm_or_cold(
    strategy: StrategyName, data: st.DataObject
) -> None:
    snapshot = data.draw(worlds(strategy)).build()
    plan = plan_of(snapshot)
    assert plan_hash(plan_of(snapshot)) == plan_hash(plan)
    assert plan_hash(plan_of(turned(snapshot))) == plan_hash(plan)
    index = FleetIndex(snapshot.clusters, snapshot.nodes)
    plan_cycle(snapshot, Policy(), NOW, index)
    assert plan_hash(plan_cycle(snapshot, Policy(), NOW, index)) == plan_hash(plan)


@each_strategy
@LAW
@given(data=st.data())
def test_a_plan_is_whole_fits_nodes_and_accounts_and_keeps_required_levels(
    strategy: StrategyName, data: st.DataObject
) -> None:
    snapshot = data.draw(worlds(strategy)).build()
    plan = plan_of(snapshot)
    _all_in_one_ready_cluster_or_none(snapshot, plan)
    _no_node_is_given_more_than_it_has(snapshot, plan)
    _no_account_is_charged_beyond_its_ancestors(snapshot, plan)
    _a_required_level_is_one_domain(snapshot, plan)
    _no_budget_is_passed(snapshot, plan)


def _all_in_one_ready_cluster_or_none(snapshot: Snapshot, plan: Plan) -> None:
    for decision in admits(plan):
        workload = snapshot.waiting[decision.workload]
        (placement,) = decision.placements
        assert snapshot.clusters[placement.cluster].state is ClusterState.READY
        assert not snapshot.clusters[placement.cluster].drain + snapshot.clusters[placement.cluster].cordon
        assert {snapshot.nodes[pod.node].cluster for pod in placement.pods} == {placement.cluster}
        wanted = Counter({pod_set.name: pod_set.replicas for pod_set in workload.pod_sets})
        assert Counter(pod.pod_set for pod in placement.pods) == wanted
        for pod_set in workload.pod_sets:
            pods = [pod for pod in placement.pods if pod.pod_set == pod_set.name]
            assert [pod.index for pod in pods] == list(range(pod_set.replicas)), "ranks in order"
            assert {pod.amount for pod in pods} == {pod_set.devices}
            assert all(pod.flavor in pod_set.flavors for pod in pods if pod_set.devices)


def _no_node_is_given_more_than_it_has(snapshot: Snapshot, plan: Plan) -> None:
    units: Counter[tuple[NodeId, FlavorName]] = Counter()
    needed: Counter[tuple[NodeId, str]] = Counter()
    for decision in admits(plan):
        sets = {each.name: each for each in snapshot.waiting[decision.workload].pod_sets}
        for pod in decision.placements[0].pods:
            asking = sets[pod.pod_set]
            units[pod.node, pod.flavor] += pod.amount
            needed[pod.node, "pods"] += 1
            for name in NEEDS:
                needed[pod.node, name] += getattr(asking.needs, name)
            assert snapshot.nodes[pod.node].is_schedulable
            assert is_eligible(snapshot.nodes[pod.node], asking.rules, asks_devices=asking.devices > 0)
    for (node, flavor), amount in units.items():
        assert amount <= snapshot.nodes[node].free(flavor)
    for (node, name), amount in needed.items():
        assert amount <= getattr(snapshot.nodes[node], name) - getattr(snapshot.nodes[node], f"{name}_held")


def _no_account_is_charged_beyond_its_ancestors(snapshot: Snapshot, plan: Plan) -> None:
    tree = tree_of(snapshot)
    for decision in admits(plan):
        for flavor, amount in decision.charges:
            assert amount <= tree.available(decision.queue, flavor)
            tree.charge(decision.queue, flavor, amount)
        pods = Counter[FlavorName]()
        for pod in decision.placements[0].pods:
            pods[pod.flavor] += pod.amount
        assert dict(decision.charges) == {flavor: amount for flavor, amount in pods.items() if amount}


def _a_required_level_is_one_domain(snapshot: Snapshot, plan: Plan) -> None:
    for decision in admits(plan):
        for pod_set in snapshot.waiting[decision.workload].pod_sets:
            if pod_set.topology_mode is not TopologyMode.REQUIRED:
                continue
            pods = [pod for pod in decision.placements[0].pods if pod.pod_set == pod_set.name]
            levels = snapshot.clusters[decision.placements[0].cluster].levels
            depth = levels.index(pod_set.topology_level)
            assert len({box(snapshot, pod.node, depth) for pod in pods}) == 1


def _no_budget_is_passed(snapshot: Snapshot, plan: Plan) -> None:
    tree, live = tree_of(snapshot), Counter[QueueId]()
    for attempt in snapshot.running.values():
        live.update(tree.path(attempt.queue))
    for decision in admits(plan):
        live.update(tree.path(decision.queue))
        for queue in tree.path(decision.queue):
            most = snapshot.queues[queue].most_running
            assert most is None or live[queue] <= most
            assert not any(is_spent(snapshot.spent, snapshot.queues[queue], flavor) for flavor, _ in decision.charges)


@each_strategy
@LAW
@given(data=st.data())
def test_a_gang_alone_starts_exactly_if_some_domain_has_room_by_plain_counting(
    strategy: StrategyName, data: st.DataObject
) -> None:
    world = data.draw(worlds(strategy))
    workload = replace(world.build().waiting[WorkloadId("job-0")])
    alone = replace(workload, pod_sets=workload.pod_sets[:1])
    world.waiting = {alone.id: alone}
    world.earmarks.clear()
    snapshot = world.build()
    assert bool(admits(plan_of(snapshot))) == (has_room(snapshot, alone) and not is_crowded(snapshot, alone))


@LAW
@given(st.one_of(worlds(), crowded()))
def test_victims_are_whole_borrowers_and_each_is_chosen_once(world: AWorld) -> None:
    snapshot = world.build()
    plan = plan_of(snapshot)
    stops = [decision for decision in plan.decisions if isinstance(decision, Reclaim)]
    marks = {decision.workload: decision for decision in plan.decisions if isinstance(decision, SetEarmark)}
    assert len({stop.workload for stop in stops}) == len(stops)
    tree = tree_of(snapshot)
    for stop in stops:
        victim, asker = snapshot.running[stop.workload], snapshot.waiting[stop.asker]
        assert stop.workload in marks[stop.asker].stands_on
        assert victim.queue != asker.queue
        flavors = {share.flavor for share in marks[stop.asker].shares}
        used = [tree.account(victim.queue, flavor) for flavor, _ in victim.charges if flavor in flavors]
        assert any(account.u > account.s for account in used), "a Queue within its own share loses nothing"
    for mark in marks.values():
        assert mark.stands_on, "nothing is kept that nothing was stopped for"
        assert mark.workload not in {decision.workload for decision in admits(plan)}


@LAW
@given(st.one_of(worlds(), crowded()))
def test_who_does_not_start_is_told_why_and_explain_agrees(world: AWorld) -> None:
    snapshot = world.build()
    plan = plan_of(snapshot)
    started = {decision.workload for decision in admits(plan)}
    assert started | set(plan.reasons) == set(snapshot.waiting)
    assert not started & set(plan.reasons)
    for workload in snapshot.waiting:
        told = explain(snapshot, Policy(), NOW, workload)
        assert bool(told) == (workload in plan.reasons)
        assert all(reason.sentence() for reason in told)
        if told:
            # The plan words an equal asker's refusal once; `explain` counts again at the asker's own turn.
            assert _kind(plan.reasons[workload][0]) in map(_kind, told)


def _kind(reason: Reason) -> tuple[ReasonCode, object]:
    return reason.code, reason.facts.get("cluster")


@LAW
@given(st.one_of(worlds(), crowded()))
def test_a_plan_holds_on_the_world_it_was_made_from(world: AWorld) -> None:
    snapshot = world.build()
    plan = plan_of(snapshot)
    free = {(node.id, flavor): node.free(flavor) for node in snapshot.nodes.values() for flavor in node.usable}
    waiting = {workload.id: workload.next_attempt for workload in snapshot.waiting.values()}
    live = {attempt.workload: attempt.attempt for attempt in snapshot.running.values()}
    verdict = recheck(plan, FreshWorld(tree_of(snapshot), free, waiting, live))
    assert verdict.kept == plan.decisions
    assert verdict.fallen == ()


@LAW
@given(st.one_of(worlds(), crowded()))
def test_a_world_that_is_carried_out_comes_to_rest(world: AWorld) -> None:
    """Admit, stop, end, again: within a bound nothing more is decided; no two Queues take from each other for ever."""
    for _ in range(40):
        plan = plan_of(world.build())
        if not plan.decisions:
            return
        _carry_out(world, plan)
    raise AssertionError("it is still deciding after 40 cycles")


def _carry_out(world: AWorld, plan: Plan) -> None:
    """What stops waits again, and wants its place back."""
    for decision in plan.decisions:
        if isinstance(decision, Admit):
            workload = world.waiting.pop(decision.workload)
            world.earmarks.pop(decision.workload, None)
            _hold(world, decision, workload)
        elif isinstance(decision, Reclaim):
            victim = world.running[decision.workload]
            world.ends(decision.workload)
            ((flavor, units),) = victim.charges
            again = a_workload(f"{victim.workload}-again").in_queue(_path(world, victim.queue)).asking(1, units, flavor)
            world.waits(again.at(-60))
        else:
            flavor = decision.shares[0].flavor
            units_by_node = {world.nodes[share.node].name: share.amount for share in decision.shares}
            world.keeps(decision.workload, units_by_node, flavor=flavor)


def _path(world: AWorld, queue: QueueId) -> str:
    return next(each.path for each in world.queues.values() if each.id == queue)


def _hold(world: AWorld, decision: Admit, workload: Workload) -> None:
    units: dict[FlavorName, dict[str, int]] = {}
    for pod in decision.placements[0].pods:
        if pod.amount:
            nodes = units.setdefault(pod.flavor, {})
            nodes[world.nodes[pod.node].name] = nodes.get(world.nodes[pod.node].name, 0) + pod.amount
    for flavor, nodes in units.items():
        name = f"{decision.workload}-{flavor}"
        world.runs(name, _path(world, workload.queue), nodes, minutes=60, flavor=flavor)
