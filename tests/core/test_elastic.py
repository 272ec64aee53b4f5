"""Elastic PodSets: as many pods as fit and quota allows, at least the least."""

from dataclasses import replace

import pytest

from controlplane.core.demand import PodNeeds, PodSet, StrategyName, TopologyMode
from controlplane.core.plan import Admit
from controlplane.core.tenancy import Quota
from tests.builders.core import A100, H100, AWorld, a_pod_set, a_workload, a_world
from tests.builders.plans import admitted, planned, sentences, where


def rich(world: AWorld) -> AWorld:
    return world.queue_of("team", Quota(H100, 10_000), Quota(A100, 10_000))


def elastic(least: int, most: int, devices: int = 8, **changes: object) -> PodSet:
    made = replace(a_pod_set(most, devices), min_replicas=least)
    return replace(made, **changes)  # type: ignore[arg-type]  # a test names real fields


def started(world: AWorld, *sets: PodSet, **changes: object) -> Admit | None:
    plan = planned(world.waits(a_workload().with_sets(*sets).having(**changes)))
    return next((each for each in plan.decisions if isinstance(each, Admit)), None)


def counts(decision: Admit | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for placement in decision.placements if decision is not None else ():
        for pod in placement.pods:
            found[pod.pod_set] = found.get(pod.pod_set, 0) + 1
    return found


@pytest.mark.parametrize("strategy", StrategyName)
@pytest.mark.parametrize(("least", "most", "pods"), [(1, 4, 4), (2, 6, 6), (3, 9, 6), (6, 9, 6), (7, 9, 0)])
def test_as_many_pods_start_as_there_is_room_for(strategy: StrategyName, least: int, most: int, pods: int) -> None:
    decision = started(rich(a_world().cluster("east").racks(2, 3)), elastic(least, most), strategy=strategy)
    assert counts(decision) == ({"main": pods} if pods else {})


def test_as_many_pods_start_as_quota_allows_and_they_are_what_is_charged() -> None:
    world = a_world().cluster("east").racks(2, 3).queue("team", 30)
    decision = started(world, elastic(2, 6))
    assert counts(decision) == {"main": 3}
    assert decision is not None
    assert decision.charges == ((H100, 24),)


def test_ranks_are_without_gaps() -> None:
    decision = started(rich(a_world().cluster("east").racks(1, 3)), elastic(2, 6))
    assert decision is not None
    assert [pod.index for pod in decision.placements[0].pods] == [0, 1, 2]


def test_what_cpu_has_no_room_for_is_left_out() -> None:
    """Cards for 16 pods, CPU for 11: the number lies between what counters of cards say and the least."""
    world = rich(a_world().cluster("east").racks(1, 2)).change_node("b0-r0-n0", cpu_milli_held=40_000)
    assert counts(started(world, elastic(1, 16, 1, needs=PodNeeds(cpu_milli=8_000)))) == {"main": 11}


def test_a_required_level_bounds_the_number() -> None:
    world = rich(a_world().cluster("east").racks(1, 2).racks(1, 5))
    together = elastic(2, 9, topology_mode=TopologyMode.REQUIRED, topology_level="rack")
    assert counts(started(world, together)) == {"main": 5}


def test_slices_stay_whole() -> None:
    world = rich(a_world().cluster("east").racks(3, 3))
    assert counts(started(world, elastic(2, 12, slice_size=2, slice_level="rack"))) == {"main": 6}


def test_one_that_needs_its_pods_is_not_starved_by_one_that_may_grow() -> None:
    world = rich(a_world().cluster("east").racks(1, 4))
    fixed = replace(a_pod_set(2), name="fixed")
    assert counts(started(world, elastic(1, 9), fixed)) == {"main": 2, "fixed": 2}


def test_two_that_may_grow_do_so_in_the_order_in_which_they_are_declared() -> None:
    world = rich(a_world().cluster("east").racks(1, 6))
    second = replace(elastic(1, 9), name="second")
    assert counts(started(world, elastic(1, 4), second)) == {"main": 4, "second": 2}


def test_the_cluster_with_more_of_the_pods_wins() -> None:
    world = rich(a_world().cluster("west").racks(1, 3).cluster("east").racks(1, 5, block="b9"))
    plan = planned(world.waits(a_workload().with_sets(elastic(1, 9))))
    assert {name[:2] for name in where(world, plan, "job")} == {"b9"}


def test_fewer_of_the_first_flavor_go_before_more_of_the_second() -> None:
    world = rich(a_world().cluster("east").racks(1, 2).racks(1, 5, flavor=A100, block="b1"))
    decision = started(world, elastic(2, 9, flavors=(H100, A100)))
    assert decision is not None
    assert decision.charges == ((H100, 16),)


def test_less_than_the_least_waits_and_the_least_is_what_is_told() -> None:
    world = rich(a_world().cluster("east").racks(1, 4)).runs("x", "team", {"b0-r0-n0": 8, "b0-r0-n1": 8})
    plan = planned(world.waits(a_workload().with_sets(elastic(3, 4))))
    assert admitted(plan) == []
    assert sentences(plan, "job") == ["east has room for 2 of 3 pods of 8 nvidia-h100-80gb each (16 free)."]


def test_what_the_first_takes_is_gone_for_the_next() -> None:
    world = rich(a_world().cluster("east").racks(1, 4))
    jobs = (a_workload(name).with_sets(elastic(1, 3)).at(at) for at, name in enumerate(("one", "two")))
    plan = planned(world.waits(*jobs))
    assert [len(where(world, plan, name)) for name in ("one", "two")] == [3, 1]
