"""One cycle as a whole: Reasons with true numbers, budgets, explanations."""

from dataclasses import replace
from datetime import timedelta

import pytest

from controlplane.core.cycle import explain, plan_cycle
from controlplane.core.ids import FlavorName, WorkloadId
from controlplane.core.index import FleetIndex
from controlplane.core.lifecycle import ClusterState
from controlplane.core.plan import Plan
from controlplane.core.policy import Policy
from controlplane.core.scenario import tree_of
from tests.builders.core import A100, H100, NOW, AWorkload, AWorld, a_pod_set, a_workload, a_world
from tests.builders.plans import admitted, codes, planned, sentences, where


def small() -> AWorld:
    """One rack of two nodes, quota for all of it and more."""
    return a_world().cluster("east").racks(1, 2).queue("team", 100)


def refused(workload: AWorkload, world: AWorld | None = None) -> list[str]:
    plan = planned((world or small()).waits(workload))
    assert plan.decisions == ()
    return sentences(plan, workload.name)


REFUSALS = [
    (
        "quota-exceeded",
        small().queue("poor", 4).runs("x", "poor", {"b0-r0-n0": 4}),
        a_workload().in_queue("poor").asking(1, 2),
        "poor may use 0 more nvidia-h100-80gb now, and 2 are asked for (4 of 4 in use at poor).",
    ),
    (
        "quota-beyond-potential",
        small().queue("poor", 4),
        a_workload().in_queue("poor"),
        "poor can never use more than 4 nvidia-h100-80gb, and 8 are asked for.",
    ),
    ("queue-unknown", small(), a_workload().in_queue("gone"), "There is no queue 999."),
    ("no-cluster", a_world().queue("team", 8), a_workload(), "No cluster of pool default is there yet."),
    (
        "cluster-not-ready",
        a_world().cluster("east", state=ClusterState.SUSPECT).racks(1, 2).queue("team", 8),
        a_workload(),
        "east is suspect.",
    ),
    (
        "cluster-not-ready",
        a_world().cluster("east", inventory_at=None).queue("team", 8),
        a_workload(),
        "east is without an inventory.",
    ),
    (
        "cluster-inventory-stale",
        a_world().cluster("east", inventory_at=NOW - timedelta(seconds=901)).racks(1, 2).queue("team", 8),
        a_workload(),
        "east last told its inventory 901 s ago; after 900 s it counts as full.",
    ),
    (
        "cluster-without-flavor",
        a_world().cluster("east").racks(1, 2, flavor=A100).queue("team", 8),
        a_workload(),
        "east has no nvidia-h100-80gb.",
    ),
    (
        "cluster-not-selected",
        small(),
        a_workload().having(cluster_selector=(("region", "eu"),)),
        "east is not among the clusters that the workload selects.",
    ),
    (
        "cluster-not-selected",
        small(),
        a_workload().having(clusters_avoided=frozenset({"east"})),
        "east is not among the clusters that the workload selects.",
    ),
    (
        "cluster-without-namespace",
        small(),
        a_workload().having(namespace="nlp"),
        "east has no namespace nlp for this queue.",
    ),
    (
        "cluster-too-small",
        small(),
        a_workload().asking(3),
        "east owns 16 nvidia-h100-80gb in all, and 24 are asked for.",
    ),
    (
        "not-enough-free",
        small().runs("x", "team", {"b0-r0-n0": 3}),
        a_workload().asking(2),
        "east has room for 1 of 2 pods of 8 nvidia-h100-80gb each (13 free).",
    ),
    (
        "topology-too-small",
        a_world().cluster("east").racks(2, 2).queue("team", 100),
        a_workload().asking(3).required("rack"),
        "east's largest rack holds 2 of 3 pods of 8 nvidia-h100-80gb each, were it empty.",
    ),
    (
        "topology-too-fragmented",
        a_world()
        .cluster("east")
        .racks(2, 3)
        .queue("team", 100)
        .runs("x", "team", {"b0-r0-n1": 1, "b0-r1-n0": 8, "b0-r1-n1": 8}),
        a_workload().asking(3).required("rack"),
        "east has room for 2 of 3 pods of 8 nvidia-h100-80gb each in its best rack (r0).",
    ),
    (
        "topology-level-unknown",
        small(),
        a_workload().required("nvlink-domain"),
        "east has no topology level nvlink-domain.",
    ),
    (
        "nodes-excluded",
        small().excludes("big", "b0-r0-n0"),
        a_workload().asking(2).having(shape="big"),
        "east leaves out 1 of its nodes for this workload until 2026-03-01T12:10:00+00:00.",
    ),
    (
        "unmodelled-constraint",
        small().excludes("big", "b0-r0-n0").excludes("big", "b0-r0-n1", "0/2 nodes match", 11),
        a_workload().having(shape="big"),
        "east's scheduler refused b0-r0-n1: 0/2 nodes match",
    ),
    (
        "backing-off",
        small(),
        a_workload().having(not_before=NOW + timedelta(minutes=1), disturbances=3),
        "It was disturbed 3 times and is tried again after 2026-03-01T12:01:00+00:00.",
    ),
]


@pytest.mark.parametrize(("code", "world", "workload", "sentence"), REFUSALS, ids=[f"{each[0]}" for each in REFUSALS])
def test_a_refusal_says_why_with_true_numbers(code: str, world: AWorld, workload: AWorkload, sentence: str) -> None:
    policy = Policy(exclusions_before_reason=2)
    plan = planned(world.waits(workload), policy)
    assert [(reason.code.value, reason.sentence()) for reason in plan.reasons[WorkloadId("job")]] == [(code, sentence)]
    assert explain(world.build(), policy, NOW, WorkloadId("job"))[0].sentence() == sentence


def test_an_excluded_node_is_left_out_for_its_shape_alone() -> None:
    world = small().excludes("big", "b0-r0-n0").waits(a_workload("a").having(shape="big"), a_workload("b").at(1))
    plan = planned(world)
    assert (where(world, plan, "a"), where(world, plan, "b")) == (["b0-r0-n1"], ["b0-r0-n0"])


def test_an_exclusion_that_has_expired_excludes_nothing() -> None:
    world = small().excludes("big", "b0-r0-n0", minutes=-1).waits(a_workload().having(shape="big"))
    assert where(world, planned(world), "job") == ["b0-r0-n0"]


def test_a_gang_that_cannot_start_does_not_hold_up_a_smaller_one() -> None:
    world = small().runs("x", "team", {"b0-r0-n0": 8}).waits(a_workload("big").asking(2), a_workload("small").at(1))
    plan = planned(world)
    assert admitted(plan) == ["small"]
    assert codes(plan, "big") == ["not-enough-free"]


def test_explain_has_a_reason_for_every_cluster_and_the_plan_only_the_nearest() -> None:
    world = small().cluster("west").racks(1, 1, block="b1").cluster("north", state=ClusterState.DRAINING)
    world.cluster("south", labels=()).racks(1, 4, flavor=A100, block="b3").runs("x", "team", {"b0-r0-n0": 8})
    for number in range(4):
        world.cluster(f"more-{number}", state=ClusterState.UNREACHABLE)
    world.waits(a_workload().asking(2))
    assert len(planned(world).reasons[WorkloadId("job")]) == 3
    all_of_them = [reason.sentence() for reason in explain(world.build(), Policy(), NOW, WorkloadId("job"))]
    assert all_of_them == [
        "east has room for 1 of 2 pods of 8 nvidia-h100-80gb each (8 free).",
        "west owns 8 nvidia-h100-80gb in all, and 16 are asked for.",
        "north is draining.",
        "south has no nvidia-h100-80gb.",
        *[f"more-{number} is unreachable." for number in range(4)],
    ]


def test_explain_says_of_quota_and_of_room_when_both_are_missing() -> None:
    world = small().queue("poor", 8).runs("y", "poor", {"b0-r0-n0": 8}).waits(a_workload().in_queue("poor").asking(1))
    assert [reason.code for reason in explain(world.build(), Policy(), NOW, WorkloadId("job"))] == ["quota-exceeded"]
    world.runs("z", "team", {"b0-r0-n1": 8})
    found = explain(world.build(), Policy(), NOW, WorkloadId("job"))
    assert [reason.code for reason in found] == ["quota-exceeded", "not-enough-free"]


def test_explain_has_nothing_to_say_of_what_would_start() -> None:
    world = small().waits(a_workload(), a_workload("next").asking(2).at(1))
    assert explain(world.build(), Policy(), NOW, WorkloadId("job")) == ()
    assert explain(world.build(), Policy(), NOW, WorkloadId("no-such")) == ()
    after = explain(world.build(), Policy(), NOW, WorkloadId("next"))
    assert after[0].sentence() == "east has room for 1 of 2 pods of 8 nvidia-h100-80gb each (8 free)."


def test_doing_what_explain_says_starts_it() -> None:
    world = small().runs("x", "team", {"b0-r0-n0": 3}).waits(a_workload().asking(2))
    assert "1 of 2 pods" in sentences(planned(world), "job")[0]
    assert admitted(planned(world.ends("x"))) == ["job"]


def test_two_pod_sets_that_share_a_flavor_are_judged_by_their_sum() -> None:
    world = small().queue("poor", 12)
    plan = planned(world.waits(a_workload().in_queue("poor").with_sets(a_pod_set(1), a_pod_set(1))))
    assert sentences(plan, "job") == ["poor can never use more than 12 nvidia-h100-80gb, and 16 are asked for."]


def test_a_choice_of_flavors_is_refused_only_when_none_is_within_quota() -> None:
    other = FlavorName("nvidia-b200-192gb")
    world = small().waits(a_workload().asking(1, 8, other, H100))
    assert admitted(planned(world)) == ["job"]
    plan = planned(small().waits(a_workload().asking(1, 8, other, A100)))
    assert codes(plan, "job") == ["quota-beyond-potential"]


def test_what_the_budget_does_not_reach_is_told_who_is_ahead() -> None:
    world = small().waits(*[a_workload(f"job-{number}").asking(1, 1).at(number) for number in range(6)])
    plan = planned(world, Policy(admissions_max=2))
    assert admitted(plan) == ["job-0", "job-1"]
    assert plan.left_over == 4
    assert sentences(plan, "job-4") == ["2 workloads of team come first."]
    assert planned(world, Policy(work_units_max=1)).left_over == 5


def test_a_warm_index_is_handed_back_as_it_came() -> None:
    world = small().waits(*[a_workload(f"job-{number}").asking(1, 3).at(number) for number in range(9)])
    world.excludes("s", "b0-r0-n1").waits(a_workload("shaped").having(shape="s")).keeps("job-8", {"b0-r0-n1": 3})
    snapshot = world.build()
    index = FleetIndex(snapshot.clusters, snapshot.nodes)
    first = plan_cycle(snapshot, Policy(), NOW, index)
    assert index.checkpoint() == 0
    assert plan_cycle(snapshot, Policy(), NOW, index) == first == plan_cycle(snapshot, Policy(), NOW)


def test_the_asker_uses_what_is_kept_for_it() -> None:
    world = (
        small().keeps("mine", {"b0-r0-n0": 8, "b0-r0-n1": 8}).waits(a_workload("mine").asking(2).at(9), a_workload())
    )
    plan = planned(world)
    assert admitted(plan) == ["mine"]
    assert codes(plan, "job") == ["earmarked-for-another"]


def test_an_asker_that_finds_another_place_frees_what_was_kept() -> None:
    world = small().queue("rich", 100).keeps("mine", {"b0-r0-n0": 8}).runs("x", "team", {"b0-r0-n0": 8})
    world.waits(a_workload("mine"), a_workload("other").asking(1).at(1))
    plan = planned(world)
    assert where(world, plan, "mine") == ["b0-r0-n1"]


def test_a_namespace_comes_from_the_nearest_queue_that_names_one() -> None:
    world = a_world().cluster("east").racks(1, 2).queue_of("org", namespace="nlp").queue("org/team", 8)
    plan = planned(world.waits(a_workload().in_queue("org/team")))
    assert sentences(plan, "job") == ["east has no namespace nlp for this queue."]


def test_an_attempt_keeps_its_number_and_old_nodes_bind_nothing() -> None:
    """T99: a requeued gang is placed whole under its next number."""
    workload = a_workload().asking(2).having(next_attempt=7)
    plan = planned(small().waits(workload))
    (decision,) = plan.decisions
    assert (decision.workload, getattr(decision, "attempt", None)) == ("job", 7)


def test_nothing_to_do_is_an_empty_plan() -> None:
    assert planned(small()) == Plan()


def test_usage_elsewhere_counts_for_the_same_account() -> None:
    world = small().queue("poor", 8).waits(a_workload().in_queue("poor"))
    snapshot = replace(world.build(), usage_elsewhere={(world.queues["poor"].id, H100): 1})
    plan = plan_cycle(snapshot, Policy(), NOW)
    assert sentences(plan, "job") == [
        "poor may use 7 more nvidia-h100-80gb now, and 8 are asked for (1 of 8 in use at poor)."
    ]


def test_clusters_of_other_pools_count_for_a_root_that_owns_all() -> None:
    world = a_world().cluster("east").racks(1, 1).queue("org", None).waits(a_workload().in_queue("org").asking(1))
    world.runs("x", "org", {"b0-r0-n0": 8})
    snapshot = world.build()
    assert "8 of 8 in use" in plan_cycle(snapshot, Policy(), NOW).reasons[WorkloadId("job")][0].sentence()
    richer = replace(snapshot, owned_elsewhere={H100: 8})
    assert plan_cycle(richer, Policy(), NOW).reasons[WorkloadId("job")][0].code == "not-enough-free"


def test_what_a_root_owns_does_not_shrink_with_a_cluster_that_is_silent() -> None:
    world = a_world().cluster("east").racks(1, 1).queue("org", None).waits(a_workload().in_queue("org").asking(1))
    world.cluster("dark", state=ClusterState.UNREACHABLE).racks(1, 1, block="b1")
    world.cluster("unknown", state=ClusterState.ENROLLED).racks(1, 1, block="b2")
    assert tree_of(world.build()).potential(world.queues["org"].id, H100) == 16
    world.runs("x", "org", {"b1-r0-n0": 8})
    assert admitted(planned(world)) == ["job"]
    world.runs("y", "org", {"b0-r0-n0": 8})
    assert "16 of 16 in use" in sentences(planned(world), "job")[0]


def test_those_that_wait_alike_are_refused_together_and_nobody_else_with_them() -> None:
    world = small().queue("other", 100)
    for number in range(4):
        world = world.waits(a_workload(f"large-{number}").in_queue("team").asking(3).at(number))
    world = world.waits(a_workload("small").in_queue("team").asking(1, 4).at(9))
    world = world.waits(a_workload("elsewhere").in_queue("other").asking(1, 4).at(9))
    plan = planned(world)
    assert set(admitted(plan)) == {"small", "elsewhere"}
    large = [plan.reasons[WorkloadId(f"large-{number}")] for number in range(4)]
    assert all(each == large[0] for each in large)
    assert plan.work_units >= 6, "each counts as looked at"
