"""What the strategies choose where several places would do."""

import pytest

from controlplane.core.demand import StrategyName
from controlplane.core.placement.strategies.dynamic import pick
from controlplane.core.policy import Policy
from tests.builders.core import H100, AWorkload, AWorld, a_pod_set, a_workload, a_world
from tests.builders.plans import planned, where

LIMITS = (300, 700, 250)


def rich(world: AWorld) -> AWorld:
    return world.queue("team", 10_000)


def compact(workload: AWorkload) -> AWorkload:
    return workload.having(strategy=StrategyName.COMPACT)


def dynamic(workload: AWorkload) -> AWorkload:
    return workload.having(strategy=StrategyName.DYNAMIC)


def crumbs() -> AWorld:
    """A rack of four half-empty hosts, in which eight pods of two just fit, and one of four free hosts."""
    world = rich(a_world().cluster("east").racks(2, 4))
    return world.runs("x", "team", {f"b0-r0-n{number}": 4 for number in range(4)})


def test_pack_takes_the_tightest_rack_and_compact_the_one_with_the_fewest_hosts() -> None:
    job = a_workload().asking(8, 2).preferred("rack")
    packed, together = crumbs().waits(job), crumbs().waits(compact(job))
    assert set(where(packed, planned(packed), "job")) == {f"b0-r0-n{number}" for number in range(4)}
    assert set(where(together, planned(together), "job")) == {"b0-r1-n0", "b0-r1-n1"}


def test_compact_keeps_all_pod_sets_of_a_workload_in_one_rack() -> None:
    """The tightest place of each alone would be a rack of its own."""
    world = rich(a_world().cluster("east").racks(1, 2).racks(1, 1).racks(1, 4))
    (first,), (second,) = a_workload().asking(2).pod_sets, a_workload().asking(1).pod_sets
    sets = first, type(second)("second", 1, 8, (H100,))
    packed = planned(world.waits(a_workload().with_sets(*sets)))
    assert where(world, packed, "job") == ["b0-r0-n0", "b0-r0-n1", "b0-r1-n0"]
    together = planned(world.waits(compact(a_workload().with_sets(*sets))))
    assert [name[:5] for name in where(world, together, "job")] == ["b0-r2"] * 3


def test_compact_climbs_no_further_than_it_must() -> None:
    world = rich(a_world().cluster("east").racks(2, 2).racks(2, 4, block="b1"))
    plan = planned(world.waits(compact(a_workload().asking(3))))
    assert len({name[:5] for name in where(world, plan, "job")}) == 1


@pytest.mark.parametrize(
    ("used", "large", "picked"),
    [
        (0, 0, StrategyName.SPREAD),
        (299, 249, StrategyName.SPREAD),
        (300, 0, StrategyName.COMPACT),
        (699, 249, StrategyName.COMPACT),
        (700, 0, StrategyName.PACK),
        (0, 250, StrategyName.PACK),
    ],
)
def test_dynamic_picks_by_how_full_a_flavor_is_and_by_what_waits_for_it(
    used: int, large: int, picked: StrategyName
) -> None:
    assert pick(used, large, LIMITS) is picked


def test_dynamic_spreads_small_work_over_an_idle_pool_and_packs_it_where_large_gangs_wait() -> None:
    small = dynamic(a_workload("small").asking(4, 2))
    idle = rich(a_world().cluster("east").racks(2, 4)).waits(small)
    assert len(set(where(idle, planned(idle), "small"))) == 4
    awaited = rich(a_world().cluster("east").racks(2, 4)).waits(small, a_workload("large").asking(16).at(9))
    assert len(set(where(awaited, planned(awaited), "small"))) == 1


def test_dynamic_packs_a_pool_that_is_nearly_full() -> None:
    world = rich(a_world().cluster("east").racks(2, 4))
    world.runs("x", "team", {f"b0-r{rack}-n{node}": 6 for rack in range(2) for node in range(4)})
    plan = planned(world.waits(dynamic(a_workload("small").asking(2, 1))))
    assert len(set(where(world, plan, "small"))) == 1


def test_what_dynamic_picks_is_settled_before_the_first_placement_of_a_cycle() -> None:
    """The first fills a third of the Pool; the second is spread all the same, as both were submitted to an idle one."""
    world = rich(a_world().cluster("east").racks(2, 4))
    first, second = (dynamic(a_workload(name).asking(4, 6).at(at)) for at, name in enumerate(("first", "second")))
    plan = planned(world.waits(first, second))
    assert len(set(where(world, plan, "first")) | set(where(world, plan, "second"))) == 8


def test_the_thresholds_of_dynamic_are_the_policys() -> None:
    world = rich(a_world().cluster("east").racks(2, 4)).waits(dynamic(a_workload("small").asking(4, 2)))
    plan = planned(world, Policy(dynamic_spread_below_permille=0))
    assert len(set(where(world, plan, "small"))) == 1


def test_of_two_equal_places_the_cluster_that_the_policy_prefers_is_taken() -> None:
    world = rich(a_world().cluster("west").racks(1, 2).cluster("east").racks(1, 2, block="b9"))
    world.waits(a_workload().with_sets(a_pod_set(2)))
    assert where(world, planned(world), "job")[0].startswith("b0")
    costly_west = Policy(cluster_preference={"west": 5, "east": 1})
    assert where(world, planned(world, costly_west), "job")[0].startswith("b9")


def test_a_better_place_goes_before_a_preferred_cluster() -> None:
    world = rich(a_world().cluster("west").racks(2, 1).cluster("east").racks(1, 2, block="b9"))
    plan = planned(world.waits(a_workload().asking(2).preferred("rack")), Policy(cluster_preference={"east": 9}))
    assert {name[:2] for name in where(world, plan, "job")} == {"b9"}
