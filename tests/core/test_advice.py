"""What is advised to those who wait, in the words that they read."""

from dataclasses import replace

from controlplane.core.advising import BOUNDS, Bounds, Question, Told, advise
from controlplane.core.demand import PodSet
from controlplane.core.ids import WorkloadId
from controlplane.core.plan import Admit
from controlplane.core.policy import Policy
from controlplane.core.tenancy import Budget, Period, Quota, Spent
from tests.builders.core import A100, H100, NOW, AWorld, a_workload, a_world


def told_of(world: AWorld, bounds: Bounds = BOUNDS, spent: tuple[Spent, ...] = ()) -> Told:
    snapshot = replace(world.build(), spent=spent)
    return advise(Question(snapshot, Policy(), NOW, WorkloadId("job")), bounds)


def sentences(world: AWorld, spent: tuple[Spent, ...] = ()) -> list[str]:
    return [each.sentence() for each in told_of(world, spent=spent).advice]


def test_who_starts_needs_no_advice() -> None:
    world = a_world().queue("team", 8).cluster("c0").racks(1, 1).waits(a_workload("job"))
    assert isinstance(told_of(world).outcome, Admit)
    assert sentences(world) == []


def test_it_is_told_how_much_is_missing_in_which_rack_and_what_would_do_instead() -> None:
    world = a_world().queue("org", 64).queue("org/a").cluster("eu-west").racks(2, 2)
    world.runs("other", "org/a", {"b0-r0-n0": 8})
    world.runs("another", "org/a", {"b0-r1-n0": 8})
    world.waits(a_workload("job").in_queue("org/a").asking(2).required("rack"))
    assert sentences(world) == [
        "It would start with 8 more nvidia-h100-80gb in one rack (b0/r0) of eu-west, 8 free on a node like b0-r0-n0.",
        "It would start if it were submitted again with rack preferred instead of required.",
        "It would start if it were submitted again with 1 instead of 2 replicas of main.",
    ]
    capacity, topology, replicas = told_of(world).advice
    assert [each.suppositions for each in (capacity, topology, replicas)] == [
        (), ("topology=preferred:rack",), ("replicas=1",),
    ]  # fmt: skip
    assert capacity.steps[0].numbers["path"] == "b0/r0"


def test_the_lowest_priority_is_told_that_comes_before_who_takes_the_room() -> None:
    world = a_world().queue("team", 16).cluster("c0").racks(1, 2)
    for name, priority in (("low", 100), ("middle", 500), ("high", 900)):
        world.waits(a_workload(name).in_queue("team").with_priority(priority).at(-5))
    world.waits(a_workload("job").in_queue("team").with_priority(50))
    found = [each for each in told_of(world).advice if each.steps[0].kind == "priority"]
    assert [each.sentence() for each in found] == ["It would start with priority 501 instead of 50."]
    assert found[0].suppositions == ("priority=501",)
    assert not found[0].is_resubmitted
    lower = [each for each in told_of(world, Bounds(priority_max=500)).advice if each.steps[0].kind == "priority"]
    assert lower == [], "nobody is told to do what is not theirs to do"


def test_another_flavor_that_is_free_is_told() -> None:
    world = a_world().queue_of("team", Quota(H100, 8), Quota(A100, 8)).cluster("c0")
    world.node("full", ("b0", "r0"), {H100: 8}, held={H100: 8}).node("free", ("b0", "r0"), {A100: 8})
    world.waits(a_workload("job"))
    assert "It would start if it were submitted again with flavor nvidia-a100-80gb instead of nvidia-h100-80gb." in (
        sentences(world)
    )


def test_limits_are_told_with_the_queue_whose_they_are() -> None:
    world = a_world().queue("org", 16).queue("org/a", 0, borrow=4).cluster("c0").racks(1, 2)
    world.waits(a_workload("job").in_queue("org/a"))
    assert sentences(world)[0] == ("It would start with a nominal of 4 nvidia-h100-80gb instead of 0 for org/a."), (
        "with 4 of its own and 4 borrowed"
    )
    world = a_world().queue("org", 16).queue("org/a", 0, borrow=8).cluster("c0").racks(1, 2)
    world.runs("mine", "org/a", {"b0-r0-n0": 8}).waits(a_workload("job").in_queue("org/a"))
    assert sentences(world)[0] == (
        "It would start with a borrowing limit of 16 nvidia-h100-80gb instead of 8 for org/a."
    )


def test_what_others_would_take_first_is_counted_in() -> None:
    world = a_world().queue("team", 64).cluster("c0").racks(1, 1)
    world.waits(a_workload("first").asking(2).with_priority(5), a_workload("job").asking(1))
    world.runs("held", "team", {"b0-r0-n0": 8})
    capacity = told_of(world).advice[0].steps[0]
    assert capacity.numbers["units"] == 8, "one node is not enough for the first, so it is left for this one"


def test_counts_and_budgets_are_limits_of_the_same_kind() -> None:
    world = a_world().queue("team", 16).cluster("c0").racks(1, 2).runs("mine", "team", {"b0-r0-n0": 8})
    world.queues["team"] = replace(world.queues["team"], most_running=1)
    world.waits(a_workload("job"))
    assert sentences(world) == ["It would start with 2 workloads under way at once instead of 1 in team."]
    world.queues["team"] = replace(
        world.queues["team"], budgets=(Budget("*", 5, Period.DAY, is_hard=True),), most_running=None
    )
    spent = (Spent(world.queues["team"].id, "*", Period.DAY, 7 * 3_600),)
    assert sentences(world, spent=spent) == [
        "It would start with a budget of 8 device-hours of * per day instead of 5 for team."
    ]


def test_several_things_may_be_needed_together() -> None:
    world = a_world().queue("org", 8).cluster("c0").racks(1, 1)
    world.runs("mine", "org", {"b0-r0-n0": 8})
    world.queues["org"] = replace(world.queues["org"], quotas=(Quota(H100, 8),))
    world.waits(a_workload("job").in_queue("org"))
    assert sentences(world)[0] == (
        "It would start with a nominal of 16 nvidia-h100-80gb instead of 8 for org"
        " and 8 more nvidia-h100-80gb anywhere in c0, 8 free on a node like b0-r0-n0."
    )


def test_over_two_clusters_of_one_network_is_told_where_it_may_be_divided() -> None:
    world = a_world().queue("team", 64)
    for name in ("c0", "c1"):
        world.cluster(name, network_domain="lan").racks(1, 1, block=name)
    sets = (PodSet("one", 1, 8, (H100,)), PodSet("two", 1, 8, (H100,)))
    world.waits(a_workload("job").with_sets(*sets))
    assert "It would start if it were submitted again with at most 2 clusters instead of 1." in sentences(world)


def test_with_no_trials_left_it_is_told_that_not_all_was_tried() -> None:
    world = a_world().queue("team", 8).cluster("c0").racks(1, 1).waits(a_workload("job").asking(2))
    assert (told_of(world).is_all, told_of(world, Bounds(trials_max=0)).is_all) == (True, False)
    assert told_of(world, Bounds(trials_max=0)).advice == ()
