"""The report-only rebalancing pass."""

import json

from controlplane.core.measure import GANG_SIZES, measure
from controlplane.core.scenario import Scenario
from tests.builders.core import A100, H100, NOW, a_workload, a_world


def test_the_largest_gang_is_told_for_each_level() -> None:
    world = a_world().cluster("west").racks(2, 2).cluster("east").racks(1, 3, block="b9").queue("team", 100)
    world.runs("x", "team", {"b0-r0-n0": 1, "b9-r0-n0": 8})
    largest = {
        (each.flavor, each.level): (each.cluster, each.domain, each.pods, each.devices)
        for each in measure(world.build()).largest
    }
    assert largest == {
        (H100, "cluster"): ("west", "west", 3, 24),
        (H100, "block"): ("west", "b0", 3, 24),
        (H100, "rack"): ("west", "r1", 2, 16),
        (H100, "host"): ("west", "b0-r0-n1", 1, 8),
    }


def test_devices_are_stranded_when_gangs_cannot_use_them() -> None:
    world = a_world().cluster("west").racks(1, 4).cluster("east").racks(1, 3, block="b9").queue("team", 100)
    world.runs("x", "team", {"b0-r0-n0": 4, "b0-r0-n1": 4})
    stranded = {each.size: (each.free, each.usable, each.stranded) for each in measure(world.build()).stranded}
    assert tuple(stranded) == GANG_SIZES
    assert stranded[8] == (48, 40, 8)
    assert stranded[16] == (48, 32, 16), "two nodes of west, two of three in east"
    assert stranded[32] == (48, 0, 48)


def test_smaller_nodes_give_smaller_pods() -> None:
    world = a_world().cluster("west").racks(1, 4, devices=4, flavor=A100)
    report = measure(world.build())
    assert {each.size: each.stranded for each in report.stranded}[8] == 0
    assert {(each.level, each.pods) for each in report.largest if each.level == "rack"} == {("rack", 4)}


def test_the_spread_over_clusters_is_in_permille() -> None:
    world = a_world().cluster("west").racks(1, 2).cluster("east").racks(1, 2, block="b9").queue("team", 100)
    report = measure(world.runs("x", "team", {"b0-r0-n0": 8, "b9-r0-n0": 4}).build())
    assert [(each.cluster, each.permille) for each in report.utilisation] == [("west", 500), ("east", 250)]
    assert report.spread == ((H100, 250),)


def test_a_report_is_plain_json_and_changes_nothing() -> None:
    world = a_world().cluster("west").racks(1, 2).waits(a_workload())
    snapshot = world.build()
    scenario = Scenario(snapshot, NOW)
    report = measure(snapshot, scenario.index)
    assert json.loads(json.dumps(report.as_record()))["spread"] == {H100: 0}
    assert scenario.index.checkpoint() == 0
    assert measure(a_world().build()).as_record() == {"largest": [], "stranded": [], "utilisation": [], "spread": {}}
