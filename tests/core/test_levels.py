"""Levels of unequal depth: one cluster names blocks and racks, another hosts alone, a node nothing at all."""

import pytest

from controlplane.core.demand import StrategyName
from tests.builders.core import AWorkload, AWorld, a_workload, a_world
from tests.builders.plans import admitted, planned, sentences, where


def uneven(flat: int = 8, racks: int = 2, nodes: int = 4) -> AWorld:
    """`flat` has hosts alone and comes first by id; `deep` has blocks and racks."""
    world = a_world().cluster("flat", ("host",))
    for number in range(flat):
        world.node(f"f{number}")
    world.cluster("deep").racks(racks, nodes)
    return world.queue("team", 10_000)


def clusters(world: AWorld, workload: AWorkload) -> set[str]:
    plan = planned(world.waits(workload))
    return {"flat" if name.startswith("f") else "deep" for name in where(world, plan, "job")}


@pytest.mark.parametrize("strategy", StrategyName)
def test_the_cluster_that_has_the_preferred_level_goes_before_one_that_has_not(strategy: StrategyName) -> None:
    assert clusters(uneven(), a_workload().asking(4).preferred("rack").having(strategy=strategy)) == {"deep"}


def test_a_preferred_level_climbs_in_a_cluster_that_has_it_and_is_no_obstacle_where_none_has() -> None:
    assert clusters(uneven(), a_workload().asking(8).preferred("rack")) in ({"deep"}, {"flat"})
    assert clusters(uneven(flat=12), a_workload().asking(12).preferred("rack")) == {"flat"}


def test_a_required_level_is_never_dropped_where_a_cluster_has_no_such_level() -> None:
    world = uneven(flat=20)
    plan = planned(world.waits(a_workload().asking(5).required("rack")))
    assert admitted(plan) == []
    assert sorted(sentences(plan, "job")) == [
        "deep's largest rack holds 4 of 5 pods of 8 nvidia-h100-80gb each, were it empty.",
        "flat has no topology level rack.",
    ]


def test_a_level_that_only_one_cluster_has_is_found_there() -> None:
    assert clusters(uneven(), a_workload().asking(4).required("block")) == {"deep"}


def test_a_node_without_labels_is_a_domain_of_its_own_at_every_level() -> None:
    world = a_world().cluster("deep").node("bare", ("", "")).node("half", ("b0", "")).racks(1, 2)
    world.queue("team", 10_000)
    one = planned(world.waits(a_workload("one").asking(1).required("rack")))
    assert admitted(one) == ["one"]
    world.waiting.clear()
    plan = planned(world.waits(a_workload("two").asking(2).required("rack")))
    assert where(world, plan, "two") == ["b0-r1-n0", "b0-r1-n1"]
    world.waiting.clear()
    plan = planned(world.waits(a_workload("three").asking(3).required("block")))
    assert set(where(world, plan, "three")) == {"half", "b0-r1-n0", "b0-r1-n1"}


def test_one_host_is_as_good_in_a_flat_cluster_as_in_a_deep_one() -> None:
    assert clusters(uneven(flat=1, racks=1, nodes=1), a_workload().asking(1).preferred("rack")) == {"flat"}
