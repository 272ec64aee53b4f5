"""What is out of planning by hand takes nothing, and is named where it is what is missing."""

from dataclasses import replace
from datetime import timedelta

import pytest

from controlplane.core.records import from_record, to_record
from tests.builders.core import H100, LEVELS, NOW, AWorld, a_workload, a_world
from tests.builders.plans import admitted, planned, sentences, where


def east(**changes: object) -> AWorld:
    return a_world().queue("team", 10_000).cluster("east", LEVELS, **changes).racks(1, 2)


def test_a_cordoned_cluster_says_until_when_and_why() -> None:
    until = NOW + timedelta(hours=2)
    plan = planned(east(cordon="new switch", cordon_until=until).waits(a_workload()))
    assert sentences(plan, "job") == ["east is cordoned until 2026-03-01T14:00:00+00:00: new switch"]
    plan = planned(east(cordon="new switch").waits(a_workload()))
    assert sentences(plan, "job") == ["east is cordoned until it is put back: new switch"]


def test_a_cordon_that_is_over_counts_until_its_row_says_so() -> None:
    over = east(cordon="new switch", cordon_until=NOW - timedelta(hours=1)).waits(a_workload())
    assert admitted(planned(over)) == []


def test_a_drain_comes_before_a_cordon_and_both_before_silence() -> None:
    plan = planned(east(cordon="new switch", drain="moving out").waits(a_workload()))
    assert sentences(plan, "job") == ["east is drained: moving out"]


def test_work_goes_to_the_cluster_that_is_open() -> None:
    world = east(drain="moving out").cluster("west").racks(1, 2, block="b9").waits(a_workload().asking(2))
    assert where(world, planned(world), "job") == ["b9-r0-n0", "b9-r0-n1"]


def with_node(world: AWorld, **changes: object) -> AWorld:
    """Its second Node differs."""
    second = sorted(world.nodes)[1]
    world.nodes[second] = replace(world.nodes[second], **changes)  # type: ignore[arg-type]  # a test names real fields
    return world


def test_a_cordoned_node_is_named_only_where_it_would_be_enough() -> None:
    world = with_node(east(), cordon="fan is loud", is_cordoned=True, is_schedulable=False)
    enough = planned(with_node(world).waits(a_workload("two").asking(2)))
    assert sentences(enough, "two") == [
        "east has room for 1 of 2 pods of 8 nvidia-h100-80gb each (8 free, 8 more cordoned: fan is loud)."
    ]
    full = with_node(east().runs("x", "team", {"b0-r0-n0": 8}), cordon="fan", is_cordoned=True, is_schedulable=False)
    assert sentences(planned(full.waits(a_workload("two").asking(2))), "two") == [
        "east has room for 0 of 2 pods of 8 nvidia-h100-80gb each (0 free)."
    ]


@pytest.mark.parametrize(("held", "cordoned"), [(0, 2), (1, 2), (7, 1), (8, 0)])
def test_withheld_units_are_counted_as_far_as_they_would_be_free(held: int, cordoned: int) -> None:
    node = next(iter(east().nodes.values()))
    short = replace(node, usable={H100: 6}, held={H100: held}, cordon="ecc", withheld={H100: 2})
    assert short.cordoned(H100) == cordoned


def test_a_node_that_is_not_well_either_way_has_nothing_cordoned() -> None:
    node = next(iter(east().nodes.values()))
    assert replace(node, is_schedulable=False, withheld={H100: 2}).cordoned(H100) == 0


def test_cordons_are_recorded_and_records_from_before_them_still_load() -> None:
    cluster = next(iter(east(cordon="new switch", cordon_until=NOW, drain="moving out").clusters.values()))
    record = to_record(cluster)
    assert from_record("Cluster", record) == cluster
    assert isinstance(record, dict)
    old = {name: value for name, value in record.items() if name not in {"cordon", "cordon_until", "drain"}}
    assert from_record("Cluster", old) == replace(cluster, cordon="", cordon_until=None, drain="")
