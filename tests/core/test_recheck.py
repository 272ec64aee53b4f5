"""A Plan on fresher values: what fell, what falls with it, what stays."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from controlplane.core.demand import PodNeeds
from controlplane.core.ids import AttemptNumber, FlavorName, NodeId, WorkloadId
from controlplane.core.plan import Admit, Plan
from controlplane.core.recheck import FreshWorld, Verdict, recheck
from controlplane.core.scenario import tree_of
from tests.builders.core import H100, AWorld, a_workload, a_world
from tests.builders.plans import planned


def fresh(
    world: AWorld,
    free: Mapping[tuple[NodeId, FlavorName], int] | None = None,
    closed: Collection[NodeId] = frozenset(),
) -> FreshWorld:
    """What the database would say now."""
    now = {(node.id, flavor): node.free(flavor) for node in world.nodes.values() for flavor in node.usable}
    return FreshWorld(
        tree=tree_of(world.build()),
        free={**now, **(free or {})},
        waiting={workload.id: workload.next_attempt for workload in world.waiting.values()},
        live={attempt.workload: attempt.attempt for attempt in world.running.values()},
        closed=closed,
    )


def kept(verdict: Verdict) -> list[str]:
    return [decision.workload for decision in verdict.kept]


def why(verdict: Verdict) -> dict[str, str]:
    return {decision.workload: reason.sentence() for decision, reason in verdict.fallen}


def two_jobs() -> AWorld:
    world = a_world().cluster("east").racks(1, 2).queue("org", 16).queue("org/team", 8)
    return world.waits(a_workload("a").in_queue("org/team"), a_workload("b").in_queue("org/team").at(1))


def test_on_the_same_values_all_of_it_holds_and_every_account_has_its_leg() -> None:
    world = two_jobs()
    verdict = recheck(planned(world), fresh(world))
    assert kept(verdict) == ["a", "b"]
    legs = verdict.legs[WorkloadId("a")]
    assert [(leg.queue, leg.amount) for leg in legs] == [(world.queues["org/team"].id, 8), (world.queues["org"].id, 8)]


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("node", "free nvidia-h100-80gb on a node"),
        ("closed", "a node that takes no pods now"),
        ("attempt", "the workload itself"),
        ("cancelled", "the workload itself"),
    ],
)
def test_what_changed_under_one_decision_leaves_the_other(what: str, sentence: str) -> None:
    world = two_jobs()
    plan = planned(world)
    first = plan.decisions[0]
    assert isinstance(first, Admit)
    node = first.placements[0].pods[0].node
    if what == "attempt":
        world.waiting[first.workload] = replace(world.waiting[first.workload], next_attempt=AttemptNumber(2))
    elif what == "cancelled":
        del world.waiting[first.workload]
    now = fresh(world, {(node, H100): 7} if what == "node" else None, {node} if what == "closed" else ())
    verdict = recheck(plan, now)
    assert kept(verdict) == ["b"]
    assert why(verdict) == {"a": f"The decision rested on {sentence}, which had changed; it is planned again."}


@pytest.mark.parametrize(("cpu", "memory", "short"), [(15, 8, "CPU"), (16, 7, "memory")])
def test_cpu_and_memory_of_a_node_are_asked_again_and_kept_decisions_leave_less(
    cpu: int, memory: int, short: str
) -> None:
    world = a_world().cluster("east").racks(1, 1).queue("team", 8)
    world.waits(a_workload("a").in_queue("team").asking(1, 4), a_workload("b").in_queue("team").asking(1, 4).at(1))
    plan = planned(world)
    [node] = world.nodes
    needs = {(workload.id, workload.pod_sets[0].name): PodNeeds(8, 4) for workload in world.waiting.values()}
    now = replace(fresh(world), needs=needs, room={node: PodNeeds(16, 8)})
    assert kept(recheck(plan, now)) == ["a", "b"]
    verdict = recheck(plan, replace(fresh(world), needs=needs, room={node: PodNeeds(cpu, memory)}))
    assert kept(verdict) == ["a"]
    assert f"free {short} on a node" in why(verdict)["b"]


def test_quota_is_asked_again_at_every_ancestor() -> None:
    """T53, between plan and commit: a sibling in another Pool took what the parent had."""
    world = two_jobs()
    plan = planned(world)
    world.queue("org/other", 0)
    now = fresh(world)
    now.tree.charge(world.queues["org/other"].id, H100, 10)
    verdict = recheck(plan, now)
    assert kept(verdict) == ["a"]
    assert "free quota" in why(verdict)["b"]


def test_kept_decisions_leave_less_to_those_after_them() -> None:
    world = two_jobs()
    plan = planned(world)
    doubled = Plan((plan.decisions[0], replace(plan.decisions[0], workload=WorkloadId("b"))))
    assert kept(recheck(doubled, fresh(world))) == ["a"]


def test_a_queue_that_is_gone_takes_its_decision_with_it() -> None:
    world = two_jobs()
    plan = planned(world)
    now = replace(fresh(world), tree=tree_of(replace(world.build(), queues={})))
    assert set(why(recheck(plan, now)).values()) == {
        "The decision rested on a queue that is gone, which had changed; it is planned again."
    }


def reclaiming() -> AWorld:
    world = a_world().cluster("east").racks(1, 2).queue("org", 0).queue("org/a", 0).queue("org/b", 16)
    world.runs("a1", "org/a", {"b0-r0-n0": 8}).runs("a2", "org/a", {"b0-r0-n1": 8}, minutes=1)
    return world.waits(a_workload("b1").in_queue("org/b").asking(2))


def test_stops_and_what_they_are_for_hold_together() -> None:
    world = reclaiming()
    assert kept(recheck(planned(world), fresh(world))) == ["a2", "a1", "b1"]


@pytest.mark.parametrize("gone", ["a1", "b1"])
def test_nobody_is_stopped_when_the_plan_for_the_asker_is_no_longer_whole(gone: str) -> None:
    world = reclaiming()
    plan = planned(world)
    if gone == "b1":
        world.waiting.clear()
    else:
        world.ends(gone)
    verdict = recheck(plan, fresh(world))
    assert kept(verdict) == []
    assert set(why(verdict)) == {"a1", "a2", "b1"}


def test_nobody_is_stopped_for_a_place_that_takes_no_pods_any_more() -> None:
    world = reclaiming()
    verdict = recheck(planned(world), fresh(world, closed=[world.node_named("b0-r0-n1").id]))
    assert kept(verdict) == []
    assert set(why(verdict).values()) == {
        "The decision rested on a node that takes no pods now, which had changed; it is planned again."
    }


def test_a_decision_falls_with_what_it_stands_on() -> None:
    world = two_jobs()
    plan = planned(world)
    first, second = plan.decisions
    assert isinstance(second, Admit)
    standing = Plan((first, replace(second, stands_on=(first.workload,))))
    assert kept(recheck(standing, fresh(world))) == ["a", "b"]
    del world.waiting[first.workload]
    assert kept(recheck(standing, fresh(world))) == []
