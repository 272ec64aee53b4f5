"""Taking back what is borrowed, seen through whole cycles."""

from dataclasses import replace
from datetime import timedelta

from controlplane.core.lifecycle import ClusterState
from controlplane.core.plan import Admit, SetEarmark
from controlplane.core.policy import Policy
from controlplane.core.reasons import ReasonCode
from controlplane.core.tenancy import Quota
from tests.builders.core import A100, H100, NOW, AWorkload, AWorld, a_pod_set, a_workload, a_world
from tests.builders.plans import admitted, codes, kept, planned, sentences, stopped


def lent(nodes: int = 3) -> AWorld:
    """Two teams of 8 and 16 on 24 cards; a has borrowed all."""
    world = a_world().cluster("east").racks(1, nodes).queue("org", 0).queue("org/a", 8).queue("org/b", 8 * nodes - 8)
    for number in range(nodes):
        world.runs(f"a{number}", "org/a", {f"b0-r0-n{number}": 8}, minutes=number)
    return world


def ask(pods: int = 1, queue: str = "org/b", name: str = "b1") -> AWorkload:
    return a_workload(name).in_queue(queue).asking(pods)


def test_the_newest_borrower_goes_first_and_whole() -> None:
    plan = planned(lent().waits(ask()))
    assert stopped(plan) == {"a2": "b1"}
    assert kept(plan) == {"b1": 8}
    assert sentences(plan, "b1") == ["8 nvidia-h100-80gb in east are being given back for this workload."]
    reason = next(decision.reason for decision in plan.decisions if not isinstance(decision, Admit | SetEarmark))
    assert reason.sentence() == "Its borrowed 8 nvidia-h100-80gb went back to org/b for b1."


def test_for_more_than_the_least_of_an_elastic_gang_nothing_is_taken_nor_kept() -> None:
    elastic = replace(a_pod_set(4, 4), min_replicas=2)
    world = a_world().cluster("east").racks(1, 2).queue("org", 0).queue("org/a", 8).queue("org/b", 8)
    world.runs("a0", "org/a", {"b0-r0-n0": 8, "b0-r0-n1": 8})
    plan = planned(world.waits(a_workload("b1").in_queue("org/b").with_sets(elastic)))
    assert stopped(plan) == {"a0": "b1"}
    assert kept(plan) == {"b1": 8}, "b's own; with 16 it would have a's own as well"


def test_a_queue_keeps_its_own_nominal() -> None:
    plan = planned(lent().waits(ask(2)))
    assert stopped(plan) == {"a2": "b1", "a1": "b1"}, "a0 runs on what is a's own"


def test_nobody_reclaims_for_more_than_its_own() -> None:
    world = lent().waits(ask(3))
    plan = planned(world)
    assert stopped(plan) == {}
    assert codes(plan, "b1") == [ReasonCode.QUOTA_EXCEEDED]


def test_within_one_queue_nothing_is_reclaimed() -> None:
    plan = planned(lent().waits(ask(1, "org/a", "a9")))
    assert stopped(plan) == {}


def test_policy_may_forbid_it() -> None:
    assert stopped(planned(lent().waits(ask()), Policy(reclaim=False))) == {}


def test_a_victim_that_is_not_needed_is_given_back() -> None:
    world = a_world().cluster("east").racks(2, 2).queue("org", 0).queue("org/a", 8).queue("org/b", 24)
    for number, node in enumerate(["b0-r0-n0", "b0-r0-n1", "b0-r1-n0", "b0-r1-n1"]):
        world.runs(f"a{number}", "org/a", {node: 8}, minutes=[1, 3, 2, 0][number])
    plan = planned(world.waits(ask(2).required("rack")))
    assert stopped(plan) == {"a1": "b1", "a0": "b1"}, "a2 was newer than a0 but lies in the other rack"


def test_a_newer_borrower_in_the_wrong_rack_does_not_hide_an_older_one_in_the_right_rack() -> None:
    """Taking a1 would end a's borrowing without making room, since c keeps the rest of that rack."""
    world = a_world().cluster("east").racks(2, 2)
    world.queue("org", 0).queue("org/a", 8).queue("org/b", 16).queue("org/c", 8)
    world.runs("c0", "org/c", {"b0-r0-n0": 8})
    world.runs("a0", "org/a", {"b0-r1-n0": 8}, minutes=1).runs("a1", "org/a", {"b0-r0-n1": 8}, minutes=9)
    assert stopped(planned(world.waits(ask(2).required("rack")))) == {"a0": "b1"}


def test_what_makes_room_only_by_taking_more_than_is_borrowed_is_left_alone() -> None:
    world = a_world().cluster("east").racks(1, 2)
    world.queue("org", 0).queue("org/a", 8).queue("org/b", 16)
    for number, units in enumerate((4, 4, 4)):
        world.runs(f"a{number}", "org/a", {f"b0-r0-n{number % 2}": units}, minutes=number)
    assert stopped(planned(world.waits(ask(2)))) == {}


def test_a_complete_plan_in_one_cluster_or_none() -> None:
    """T13: three full clusters and one asker: one victim set, in one cluster, and not again next cycle."""
    world = a_world().queue("org", 0).queue("org/a", 0).queue("org/b", 48)
    for number, name in enumerate(["west", "east", "north"]):
        world.cluster(name).racks(1, 2, block=f"b{number}")
        for node in range(2):
            world.runs(f"{name}-{node}", "org/a", {f"b{number}-r0-n{node}": 8}, minutes=number)
    world.waits(ask(2))
    plan = planned(world)
    assert {victim.rpartition("-")[0] for victim in stopped(plan)} == {"west"}
    assert len(stopped(plan)) == 2
    mark = next(decision for decision in plan.decisions if isinstance(decision, SetEarmark))
    assert set(mark.stands_on) == set(stopped(plan))
    for victim in stopped(plan):
        world.stops(victim)
    world.keeps("b1", {"b0-r0-n0": 8, "b0-r0-n1": 8})
    again = planned(world)
    assert stopped(again) == {}
    assert codes(again, "b1") == [ReasonCode.WAITS_FOR_RECLAIM]


def test_a_gang_that_no_single_cluster_could_hold_stops_nobody() -> None:
    world = a_world().queue("org", 0).queue("org/a", 0).queue("org/b", 48)
    for number, name in enumerate(["west", "east"]):
        world.cluster(name).racks(1, 2, block=f"b{number}").node(f"spare{number}", (f"b{number}", "r0"))
        world.runs(f"{name}", "org/a", {f"b{number}-r0-n0": 8, f"b{number}-r0-n1": 8})
    assert stopped(planned(world.waits(ask(4)))) == {}


def test_freed_units_are_kept_for_the_asker_until_all_are_free() -> None:
    """T14: the asker needs 8 of two victims; the first one's requeue does not get them back."""
    world = a_world().cluster("east").racks(1, 1).queue("org", 0).queue("org/a", 0).queue("org/b", 8)
    for name in ("a1", "a2"):
        world.runs(name, "org/a", {"b0-r0-n0": 4})
    plan = planned(world.waits(ask()))
    assert stopped(plan) == {"a1": "b1", "a2": "b1"}
    world.keeps("b1", {"b0-r0-n0": 8}).ends("a1")
    world.stops("a2")
    world.waits(a_workload("a1").in_queue("org/a").asking(1, 4))
    half = planned(world)
    assert half.decisions == ()
    assert codes(half, "b1") == [ReasonCode.WAITS_FOR_RECLAIM]
    assert sentences(half, "a1") == [
        "org/a may use 0 more nvidia-h100-80gb now, and 4 are asked for (4 of 8 in use and 8 kept for others at org)."
    ]
    world.ends("a2")
    assert admitted(planned(world)) == ["b1"]


def test_what_is_kept_is_seen_as_such_by_others() -> None:
    world = a_world().cluster("east").racks(1, 1).queue("org", 16).queue("org/a", 0).queue("org/b", 8)
    later = ask().having(not_before=NOW + timedelta(hours=1))
    world.waits(later, a_workload("a1").in_queue("org/a")).keeps("b1", {"b0-r0-n0": 8})
    plan = planned(world)
    assert sentences(plan, "a1") == ["8 free nvidia-h100-80gb in east are kept for b1."]


def test_an_earmark_that_has_expired_keeps_nothing() -> None:
    world = a_world().cluster("east").racks(1, 1).queue("org", 16).queue("org/a", 0)
    world.waits(a_workload("a1").in_queue("org/a")).keeps("gone", {"b0-r0-n0": 8}, minutes=-1)
    assert admitted(planned(world)) == ["a1"]


def test_an_earmark_keeps_nothing_while_its_workload_has_a_place_and_keeps_again_when_that_is_voided() -> None:
    world = a_world().cluster("east").racks(1, 2).queue("org", 32).queue("org/a", 0).queue("org/b", 16)
    world.runs("b1", "org/b", {"b0-r0-n0": 8}).keeps("b1", {"b0-r0-n1": 8}).waits(a_workload("a1").in_queue("org/a"))
    assert admitted(planned(world)) == ["a1"]
    world.ends("b1")
    world.waits(ask(pods=2).having(not_before=NOW + timedelta(hours=1)), a_workload("a2").in_queue("org/a"))
    assert admitted(planned(world)) == ["a1"], "the other node is kept"


def test_two_askers_never_choose_the_same_victim_and_usage_stays_within_the_tree() -> None:
    """T01: A, B, C of 4 each on 12; A runs 6 + 6; B and C ask 4 each in one cycle."""
    world = a_world().cluster("east").racks(1, 2, devices=6).queue("org", 0)
    for path in ("org/a", "org/b", "org/c"):
        world.queue(path, 4)
    world.runs("a1", "org/a", {"b0-r0-n0": 6}, minutes=1).runs("a2", "org/a", {"b0-r0-n1": 6}, minutes=2)
    world.waits(a_workload("b1").in_queue("org/b").asking(1, 4), a_workload("c1").in_queue("org/c").asking(1, 4).at(1))
    plan = planned(world)
    assert stopped(plan) == {"a2": "b1", "a1": "c1"}, "the second plan is made after the first: 6 > 4 is still borrowed"
    assert kept(plan) == {"b1": 4, "c1": 4}
    for victim in ("a1", "a2"):
        world.ends(victim)
    after = planned(world)
    assert admitted(after) == ["b1", "c1"]


def test_the_same_world_gives_the_same_victims() -> None:
    """T15: equal shares, equal ages: the victim set is stable and minimal."""
    world = a_world().cluster("east").racks(1, 4).queue("org", 0).queue("org/a", 0).queue("org/b", 0).queue("org/c", 8)
    for number, path in enumerate(["org/a", "org/b", "org/a", "org/b"]):
        world.runs(f"v{number}", path, {f"b0-r0-n{number}": 8})
    world.queue("org/d", 24).waits(ask(1, "org/c", "c1"))
    first = planned(world)
    world.running = dict(reversed(world.running.items()))
    assert len(stopped(first)) == 1
    assert planned(world).decisions == first.decisions


def test_quota_that_is_missing_may_come_from_another_cluster() -> None:
    world = a_world().queue("org", 0).queue("org/a", 0).queue("org/b", 8)
    world.cluster("west").racks(1, 1, block="b0").runs("a1", "org/a", {"b0-r0-n0": 8})
    world.cluster("east", labels=(("region", "eu"),)).racks(1, 1, block="b1")
    plan = planned(world.waits(ask().having(cluster_selector=(("region", "eu"),))))
    assert stopped(plan) == {"a1": "b1"}
    mark = next(decision for decision in plan.decisions if isinstance(decision, SetEarmark))
    assert world.clusters[mark.cluster].name == "east"


def test_a_department_within_its_own_takes_back_from_another_department() -> None:
    world = a_world().cluster("east").racks(1, 2).queue("org", 0)
    world.queue("org/x", 0).queue("org/x/1", 0).queue("org/y", 8).queue("org/y/1", 0).queue("org/x/2", 8)
    world.runs("x1", "org/x/1", {"b0-r0-n0": 8}, minutes=1).runs("x2", "org/x/2", {"b0-r0-n1": 8}, minutes=2)
    plan = planned(world.waits(ask(1, "org/y/1", "y1")))
    assert stopped(plan) == {"x1": "y1"}, "x2 is newer but runs on what is its own"


def test_nobody_is_stopped_for_what_is_coming_anyway() -> None:
    world = lent().stops("a1").waits(ask())
    plan = planned(world)
    assert stopped(plan) == {}
    assert codes(plan, "b1") == [ReasonCode.QUOTA_EXCEEDED]
    assert admitted(planned(world.ends("a1"))) == ["b1"]


def test_what_runs_where_nobody_listens_is_not_chosen() -> None:
    world = a_world().queue("org", 0).queue("org/a", 0).queue("org/b", 16)
    world.cluster("dark", state=ClusterState.UNREACHABLE).racks(1, 1).runs("new", "org/a", {"b0-r0-n0": 8}, minutes=9)
    world.cluster("east").racks(1, 1, block="b1").runs("old", "org/a", {"b1-r0-n0": 8})
    assert stopped(planned(world.waits(ask()))) == {"old": "b1"}


def test_what_is_its_own_of_a_second_choice_comes_back_too() -> None:
    world = a_world().cluster("east").node("h", ("b", "r"), {H100: 8}).node("a", ("b", "r"), {A100: 8})
    world.queue_of("org", Quota(H100, 0), Quota(A100, 0))
    world.queue_of("org/a", Quota(H100, 8), Quota(A100, 0)).queue_of("org/b", Quota(A100, 8))
    world.runs("own", "org/a", {"h": 8}).runs("borrowed", "org/a", {"a": 8}, flavor=A100)
    plan = planned(world.waits(a_workload("b1").in_queue("org/b").asking(1, 8, H100, A100)))
    assert stopped(plan) == {"borrowed": "b1"}
    assert sentences(plan, "b1") == ["8 nvidia-a100-80gb in east are being given back for this workload."]
