"""PodSets that name another one sit with it: a leader with its group."""

from dataclasses import replace

import pytest

from controlplane.core.demand import PodNeeds, PodSet, StrategyName, TopologyMode
from controlplane.core.placement.groups import Group, sets_of, units_of
from controlplane.core.tenancy import Quota
from tests.builders.core import A100, H100, AWorld, a_workload, a_world
from tests.builders.plans import admitted, planned, sentences, where


def rich(world: AWorld) -> AWorld:
    return world.queue_of("team", Quota(H100, 10_000), Quota(A100, 10_000))


def workers(replicas: int, **changes: object) -> PodSet:
    return replace(PodSet("workers", replicas, 8, (H100,)), **changes)  # type: ignore[arg-type]  # a test names real fields


def leader(devices: int = 1, **changes: object) -> PodSet:
    flavors = (H100,) if devices else ()
    made = PodSet("leader", 1, devices, flavors, PodNeeds(cpu_milli=1_000), with_pod_set="workers")
    return replace(made, **changes)  # type: ignore[arg-type]  # a test names real fields


def boxes(names: list[str]) -> set[str]:
    return {name.rpartition("-")[0] for name in names}


REQUIRED = {"topology_mode": TopologyMode.REQUIRED, "topology_level": "rack"}
PREFERRED = {"topology_mode": TopologyMode.PREFERRED, "topology_level": "rack"}


@pytest.mark.parametrize("strategy", StrategyName)
def test_a_leader_is_in_the_rack_that_its_group_requires(strategy: StrategyName) -> None:
    """The tightest rack for the workers alone has no card left for the leader."""
    world = rich(a_world().cluster("east").racks(1, 2).racks(1, 3))
    plan = planned(world.waits(a_workload().with_sets(leader(), workers(2, **REQUIRED)).having(strategy=strategy)))
    assert boxes(where(world, plan, "job")) == {"b0-r1"}


def test_a_leader_without_a_device_stays_with_the_nearest_hosts_of_its_group() -> None:
    """The workers' own hosts have no CPU left for it."""
    world = rich(a_world().cluster("east").racks(2, 3))
    sets = leader(0, needs=PodNeeds(cpu_milli=8_000)), workers(2, needs=PodNeeds(cpu_milli=60_000))
    plan = planned(world.waits(a_workload().with_sets(*sets)))
    assert len(boxes(where(world, plan, "job"))) == 1


def test_where_only_preferred_a_leader_that_fits_nowhere_near_is_placed_further_away() -> None:
    world = rich(a_world().cluster("east").racks(1, 2).racks(1, 1, flavor=A100))
    sets = leader(1, flavors=(A100,)), workers(2, **PREFERRED)
    plan = planned(world.waits(a_workload().with_sets(*sets)))
    assert where(world, plan, "job") == ["b0-r1-n0", "b0-r0-n0", "b0-r0-n1"]


def test_where_it_is_required_the_gang_waits_and_is_told_for_what() -> None:
    world = rich(a_world().cluster("east").racks(1, 2).racks(1, 1, flavor=A100))
    sets = leader(1, flavors=(A100,)), workers(2, **REQUIRED)
    plan = planned(world.waits(a_workload().with_sets(*sets)))
    assert sentences(plan, "job") == ["east has no rack with room for 3 pods of workers, leader together."]


def test_every_rack_is_tried_before_a_required_one_is_given_up() -> None:
    """Nine racks hold the workers tightly; only in the last does the leader find its other Flavor."""
    world = rich(a_world().cluster("east").racks(9, 2).racks(1, 3))
    world.node("odd", ("b0", "r9"), {A100: 8})
    sets = leader(1, flavors=(A100,)), workers(2, **REQUIRED)
    plan = planned(world.waits(a_workload().with_sets(*sets)))
    assert where(world, plan, "job") == ["odd", "b0-r9-n0", "b0-r9-n1"]


def test_the_one_that_needs_a_whole_host_is_seated_first_where_the_other_order_fails() -> None:
    world = rich(a_world().cluster("east").node("n0", ("b0", "r0")).node("n1", ("b0", "r0"), {H100: 4}))
    small = PodSet("workers", 2, 2, (H100,), topology_mode=TopologyMode.REQUIRED, topology_level="rack")
    plan = planned(world.waits(a_workload().with_sets(leader(8), small).spread()))
    assert admitted(plan) == ["job"]


def test_several_sit_with_one_and_a_chain_ends_at_its_last() -> None:
    sets = PodSet("a", 1, 1, (H100,), with_pod_set="b"), PodSet("b", 1, 1, (H100,), with_pod_set="c"), workers(2)
    third = PodSet("c", 1, 1, (H100,))
    (loose, group) = units_of((workers(2), *sets[:2], third))
    assert loose == workers(2)
    assert isinstance(group, Group)
    assert [each.name for each in group.parts if isinstance(each, PodSet)] == ["c", "a", "b"]


def test_a_circle_of_names_is_no_endless_walk() -> None:
    circle = PodSet("a", 1, 1, (H100,), with_pod_set="b"), PodSet("b", 1, 1, (H100,), with_pod_set="a")
    assert {each.name for unit in units_of(circle) for each in sets_of(unit)} == {"a", "b"}


def test_a_group_in_slices_keeps_its_slices_and_its_leader_in_one_block() -> None:
    world = rich(a_world().cluster("east").racks(2, 2).racks(2, 3, block="b1"))
    group = workers(4, slice_size=2, slice_level="rack", topology_mode=TopologyMode.REQUIRED, topology_level="block")
    plan = planned(world.waits(a_workload().with_sets(leader(), group)))
    names = where(world, plan, "job")
    assert {name[:2] for name in names} == {"b1"}
    assert [name.rpartition("-")[0] for name in names[1:]] == ["b1-r0"] * 2 + ["b1-r1"] * 2
