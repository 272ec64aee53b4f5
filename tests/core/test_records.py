"""Worlds and Plans as JSON: what is stored is what comes back, and running it again gives the same Plan."""

import json
from dataclasses import replace
from datetime import timedelta

from controlplane.core.cycle import plan_cycle
from controlplane.core.demand import PodNeeds
from controlplane.core.facts.planning import Change, Table
from controlplane.core.ids import NodeId, PoolId, WorkloadId
from controlplane.core.plan import Plan
from controlplane.core.policy import Policy
from controlplane.core.records import (
    World,
    canonical,
    change_from_record,
    change_to_record,
    changes_text,
    from_record,
    plan_hash,
    running_hash,
    to_record,
)
from controlplane.core.snapshot import Snapshot
from tests.builders.core import H100, NOW, AWorld, a_workload, a_world


def busy() -> AWorld:
    """A little of everything."""
    world = a_world().cluster("east", labels=(("region", "eu"),)).racks(2, 3).cluster("west").racks(1, 2, block="b9")
    world.queue("org", None).queue("org/a", 8, borrow=4, lend=2).queue("org/b", 24, weight=3)
    world.runs("a1", "org/a", {"b0-r0-n0": 8, "b0-r0-n1": 4}).runs("a2", "org/a", {"b9-r0-n0": 8}, minutes=3)
    world.excludes("big", "b0-r1-n0").keeps("b9", {"b0-r1-n1": 8})
    old = (world.node_named("b0-r0-n2").id,)
    world.waits(
        a_workload("b1").in_queue("org/b").asking(1, 4).needing(500, 2**30).required("rack"),
        a_workload("b2").in_queue("org/b").having(shape="big", preferred_nodes=old).at(3),
        a_workload("b9").in_queue("org/b").at(4).spread(),
        a_workload("a3").in_queue("org/a").having(not_before=NOW + timedelta(minutes=2)),
    )
    return world


def world_of(snapshot: Snapshot) -> World:
    world = World(snapshot.pool, snapshot.pool_name)
    world.apply(Change(Table.CLUSTERS, key, row) for key, row in snapshot.clusters.items())
    world.apply(Change(Table.NODES, key, row) for key, row in snapshot.nodes.items())
    world.apply(Change(Table.QUEUES, key, row) for key, row in snapshot.queues.items())
    world.apply(Change(Table.WAITING, key, row) for key, row in snapshot.waiting.items())
    world.apply(Change(Table.RUNNING, key, row) for key, row in snapshot.running.items())
    world.apply(Change(Table.EARMARKS, key, row) for key, row in snapshot.earmarks.items())
    world.apply(Change(Table.EXCLUSIONS, (row.shape, int(row.node)), row) for row in snapshot.exclusions)
    world.apply(Change(Table.USAGE_ELSEWHERE, (int(at[0]), at[1]), row) for at, row in snapshot.usage_elsewhere.items())
    return world


def test_a_snapshot_comes_back_from_its_record() -> None:
    snapshot = replace(
        busy().build(), usage_elsewhere={(busy().queues["org/a"].id, H100): 3}, owned_elsewhere={H100: 5}
    )
    again = from_record("Snapshot", json.loads(json.dumps(to_record(snapshot))))
    assert again == snapshot


def test_a_plan_comes_back_with_its_decisions_and_reasons() -> None:
    plan = plan_cycle(busy().build(), Policy(), NOW)
    assert plan.decisions
    assert plan.reasons
    again = from_record("Plan", json.loads(json.dumps(to_record(plan))))
    assert isinstance(again, Plan)
    assert again == plan
    assert plan_hash(again) == plan_hash(plan)


def test_stored_records_give_the_identical_plan_when_run_again() -> None:
    """The base, then row changes; the hash of each cycle and of the chain is the same the second time."""
    snapshot = busy().build()
    live = world_of(snapshot)
    stored = [json.dumps(change_to_record(change)) for change in live.changes()]
    plan = plan_cycle(live.freeze(), Policy(), NOW, live.warm_index(live.freeze()))
    changes = (
        Change(Table.RUNNING, "a1", None),
        Change(Table.NODES, 1, replace(snapshot.nodes[NodeId(1)], held={})),
        Change(Table.NODES, 2, replace(snapshot.nodes[NodeId(2)], held={})),
        Change(Table.WAITING, "b1", None),
        Change(Table.USAGE_ELSEWHERE, (2, H100), 1),
    )
    live.apply(changes)
    second = plan_cycle(live.freeze(), Policy(), NOW, live.warm_index(live.freeze()))
    later = [json.dumps(change_to_record(change)) for change in changes]

    again = World(PoolId(1))
    again.apply(change_from_record(json.loads(line)) for line in stored)
    assert plan_hash(plan_cycle(again.freeze(), Policy(), NOW)) == plan_hash(plan)
    again.apply(change_from_record(json.loads(line)) for line in later)
    replayed = plan_cycle(again.freeze(), Policy(), NOW)
    assert plan_hash(replayed) == plan_hash(second) != plan_hash(plan)
    told = changes_text(changes)
    first_hash = running_hash("", changes_text(live.changes()), plan_hash(plan))
    assert running_hash(first_hash, told, plan_hash(replayed)) == running_hash(first_hash, told, plan_hash(second))
    assert running_hash("other", told, plan_hash(second)) != running_hash(first_hash, told, plan_hash(second))


def test_a_world_lists_itself_as_changes_in_one_order() -> None:
    world = world_of(busy().build())
    other = World(PoolId(1))
    other.apply(reversed(world.changes()))
    assert other.changes() == world.changes()
    assert other.freeze() == world.freeze()
    other.rename("gold")
    assert other.freeze().pool_name == "gold"


def test_a_frozen_world_does_not_change_with_it() -> None:
    world = world_of(busy().build())
    frozen = world.freeze()
    world.apply([Change(Table.WAITING, "b1", None), Change(Table.WAITING, "no-such", None)])
    assert WorkloadId("b1") in frozen.waiting
    assert WorkloadId("b1") not in world.freeze().waiting


def test_a_field_that_an_old_record_does_not_have_gets_its_default() -> None:
    workload = a_workload().needing(1, 2).build(busy().queues["org/a"].id)
    record = to_record(workload)
    assert isinstance(record, dict)
    assert "disturbances" not in record, "what has its default need not be stored"
    sets = record["pod_sets"]
    assert isinstance(sets, list)
    assert isinstance(sets[0], dict)
    del sets[0]["needs"]
    record["of_a_later_version"] = 1
    again = from_record("Workload", record)
    assert again == replace(workload, pod_sets=(replace(workload.pod_sets[0], needs=PodNeeds()),))


def test_canonical_json_does_not_depend_on_the_order_of_maps() -> None:
    snapshot = busy().build()
    turned = replace(
        snapshot,
        nodes=dict(reversed(list(snapshot.nodes.items()))),
        waiting=dict(reversed(list(snapshot.waiting.items()))),
    )
    assert canonical(to_record(turned)) == canonical(to_record(snapshot))
