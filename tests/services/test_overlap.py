"""Planning while a commit is under way: nothing is oversold, nothing stands on a decision that was lost, and what a
planner believes of its own rows is what another one reads.
"""

from random import Random

import pytest

from controlplane.core.facts.ledger import AttemptKey, Proof
from controlplane.core.ids import AttemptNumber, WorkloadId
from controlplane.core.records import World
from controlplane.core.snapshot import Snapshot
from controlplane.services import accounting
from controlplane.services.overlap import Overlap
from controlplane.services.replay import replay
from controlplane.services.scheduling import Planned, Planner, Step
from tests.services.planes import Plane

STEPS = 40


def read_whole(plane: Plane) -> Snapshot:
    world = World(plane.pool)
    world.apply(plane.tools.reader.read(plane.pool, None).changes)
    return world.freeze()


def planned_by(planner: Planner) -> Planned:
    planned = planner.plan()
    assert planned is not None
    return planned


def every_cycle_is_the_same_again(plane: Plane) -> None:
    cycles = [row.id for row in plane.rows("SELECT id FROM cycle ORDER BY id")]
    assert cycles
    for cycle in cycles:
        with plane.uow() as uow:
            assert replay(uow, cycle).is_identical, f"cycle {cycle}"


def test_a_cycle_is_planned_on_what_the_one_before_will_leave(plane: Plane) -> None:
    plane.cluster("eu", nodes=2)
    team = plane.queue("team", nominal=64)
    plane.workload("first", team, pods=1)
    planner = plane.planner()
    flight = planner.begin(planned_by(planner))
    second = plane.workload("second", team, pods=1)
    third = plane.workload("third", team, pods=1)
    meanwhile = planner.plan(flight)
    assert meanwhile is not None
    assert len(meanwhile.plan.decisions) == 1, "one node of two is as good as taken"
    planner.end(flight, planner.write(flight))
    assert planner.commit(meanwhile) is Step.AGAIN
    assert sorted([plane.state(second), plane.state(third)]) == ["pending", "reserved"]
    every_cycle_is_the_same_again(plane)


def test_a_reading_that_may_have_seen_the_commit_is_not_used(plane: Plane) -> None:
    plane.cluster("eu", nodes=2)
    team = plane.queue("team", nominal=64)
    plane.workload("first", team, pods=1)
    planner = plane.planner()
    flight = planner.begin(planned_by(planner))
    landed = planner.write(flight)
    plane.workload("second", team, pods=1)
    assert planner.plan(flight) is None
    planner.end(flight, landed)
    planned = planner.plan()
    assert planned is not None
    assert planned.snapshot == read_whole(plane)


def test_a_lost_decision_takes_with_it_what_was_planned_on_it(plane: Plane) -> None:
    plane.cluster("eu", nodes=2)
    team = plane.queue("team", nominal=64)
    gang = plane.workload("first", team, pods=1)
    planner = plane.planner()
    flight = planner.begin(planned_by(planner))
    plane.do("UPDATE node_flavor SET capacity = 0 WHERE node_id = (SELECT min(id) FROM node)")
    plane.do("UPDATE workload SET priority = 900")
    meanwhile = planner.plan(flight)
    assert meanwhile is not None
    assert WorkloadId(gang) in meanwhile.snapshot.running
    landed = planner.write(flight)
    assert not landed.is_whole
    planner.end(flight, landed)
    again = planned_by(planner)
    assert again.snapshot == read_whole(plane)
    assert again.snapshot.waiting[WorkloadId(gang)].priority == 900
    assert planner.commit(again) is Step.AGAIN
    assert plane.state(gang) == "reserved"
    every_cycle_is_the_same_again(plane)


def test_a_cycle_that_is_thrown_away_was_nobodys_turn(plane: Plane) -> None:
    plane.cluster("eu", nodes=4)
    team = plane.queue("team", nominal=64)
    plane.do(
        """INSERT INTO policy (pool_id, version, spec, created_at, created_by)
           VALUES (:pool, 2, '{"work_units_max": 2, "reclaim": false}', now(), 'test')""",
        pool=plane.pool,
    )
    plane.do("UPDATE pool SET policy_version = 2 WHERE id = :pool", pool=plane.pool)
    for number in range(8):
        plane.workload(f"gang-{number}", team, pods=1)
    planner = plane.planner()
    flight = planner.begin(planned_by(planner))
    thrown_away = planner.plan(flight)
    assert thrown_away is not None
    assert thrown_away.plan.decisions
    planner.end(flight, planner.write(flight))
    again = planned_by(planner)
    assert again.snapshot.left_over == thrown_away.snapshot.left_over
    assert thrown_away.snapshot.left_over
    assert again.plan.decisions == thrown_away.plan.decisions


def test_what_a_commit_did_not_write_alone_is_read_again(plane: Plane) -> None:
    plane.cluster("eu", nodes=1)
    team = plane.queue("team", nominal=64)
    plane.workload("first", team, pods=1, devices=2)
    planner = plane.planner()
    planned = planned_by(planner)
    plane.do("UPDATE node_flavor SET held = held + 1")  # between the reading and the commit
    plane.do("UPDATE workload SET priority = 900")
    assert planner.commit(planned) is Step.AGAIN
    plane.do("UPDATE node_flavor SET held = held - 1")
    plane.workload("second", team, pods=1, devices=4)
    planned = planned_by(planner)
    assert planned.snapshot == read_whole(plane)
    [running] = planned.snapshot.running.values()
    assert running.priority == 900
    planner.commit(planned)
    every_cycle_is_the_same_again(plane)


def test_a_planner_knows_all_that_its_own_gangs_hold_as_it_would_be_read(plane: Plane) -> None:
    """Elastic ones with all that pods may need, beside a helper without devices on the same nodes."""
    plane.cluster("eu", nodes=2)
    team = plane.queue("team", nominal=64)
    plane.do("UPDATE node SET rdma = 8, hugepages_bytes = 64, local_storage_bytes = 1000")
    gang = plane.workload("first", team, pods=9, devices=2)
    plane.do(
        """UPDATE pod_set SET min_replicas = 2, cpu_milli = 3, memory_bytes = 5, rdma = 1, hugepages_bytes = 7,
               local_storage_bytes = 11"""
    )
    plane.do(
        """INSERT INTO pod_set (workload_id, name, position, replicas, devices, flavors, cpu_milli, rdma)
           VALUES (CAST(:id AS uuid), 'helper', 1, 2, 0, '[]', 13, 1)""",
        id=gang,
    )
    template = '{"name": "helper", "replicas": 2, "template": {"spec": {"containers": [{"name": "main"}]}}}'
    plane.do(f"""UPDATE workload SET spec = jsonb_insert(spec, '{{podSets, 1}}', '{template}')""")
    planner = plane.planner()
    assert planner.commit(planned_by(planner)) is Step.AGAIN
    plane.workload("second", team, pods=1)
    planned = planned_by(planner)
    [running] = planned.snapshot.running.values()
    assert sum(share.pods for share in running.shares) == 10, "with eight of nine, as eight fit, and two helpers"
    assert planned.snapshot == read_whole(plane)


@pytest.mark.planted_violation  # gangs end here without an agent's word
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_others_write_and_whatever_is_lost_the_warm_world_is_the_one_that_is_stored(
    plane: Plane, seed: int
) -> None:
    chance = Random(seed)
    plane.cluster("eu", nodes=4)
    plane.cluster("us", nodes=3)
    teams = [plane.queue("org", nominal=56), *(plane.queue(f"org/{name}") for name in ("a", "b"))][1:]
    planner = plane.planner()
    flight = None
    for number in range(STEPS):
        _somebody_does_something(plane, chance, teams, number)
        planned = planner.plan(flight)
        if flight is not None:
            if chance.random() < 0.5:
                _somebody_does_something(plane, chance, teams, 1000 + number)
            landed = planner.write(flight)
            planner.end(flight, landed)
            flight = None
            if not landed.is_whole:
                continue
        if planned is not None:
            flight = planner.begin(planned)
            if chance.random() < 0.3:
                planner.end(flight, planner.write(flight))
                flight = None
                plane.wake()
                planned = planner.plan()
                assert planned is not None
                assert planned.snapshot == read_whole(plane), f"step {number}"
    over = plane.rows("SELECT FROM node_flavor WHERE held > capacity + overdraft")
    assert not over
    [sums] = plane.rows(
        """SELECT (SELECT coalesce(sum(held), 0) FROM node_flavor) AS counted,
                  (SELECT coalesce(sum(amount), 0) FROM hold WHERE released_at IS NULL) AS held"""
    )
    assert sums.counted == sums.held
    every_cycle_is_the_same_again(plane)


def _somebody_does_something(plane: Plane, chance: Random, teams: list[int], number: int) -> None:
    """Submits, ends, changes what is asked, takes a node out or gives it back."""
    deed = chance.choice(["submit", "submit", "submit", "end", "priority", "close", "open", "cpu"])
    if deed == "submit":
        plane.workload(
            f"gang-{number}", chance.choice(teams), pods=chance.randint(1, 3), devices=chance.choice([1, 4, 8])
        )
        plane.do("UPDATE pod_set SET cpu_milli = 1000 * devices, memory_bytes = 7 WHERE cpu_milli = 0 AND devices < 8")
    elif deed == "end":
        _end_one(plane)
    elif deed == "priority":
        plane.do("""UPDATE workload SET priority = :one WHERE state = 'pending' AND id IN (
                        SELECT id FROM workload ORDER BY random() LIMIT 3)""", one=chance.randint(1, 900))  # fmt: skip
    elif deed == "cpu":
        plane.do("UPDATE node SET cpu_milli = :cpu WHERE id = (SELECT max(id) FROM node)",
                 cpu=chance.choice([4_000, 192_000]))  # fmt: skip
    else:
        plane.do("UPDATE node SET ready = :ready WHERE id = (SELECT min(id) FROM node)", ready=deed == "open")
    plane.wake()


def _end_one(plane: Plane) -> None:
    rows = plane.rows("SELECT workload_id, attempt FROM attempt WHERE state = 'placed' ORDER BY placed_at LIMIT 1")
    for row in rows:
        key = AttemptKey(WorkloadId(str(row.workload_id)), AttemptNumber(row.attempt))
        named = {"id": key.workload}
        plane.do("UPDATE attempt SET state = 'stopping' WHERE workload_id = CAST(:id AS uuid)", **named)
        pods = plane.rows("SELECT id FROM pod WHERE workload_id = CAST(:id AS uuid)", **named)
        with plane.uow() as uow:
            accounting.void(uow, [key], Proof.TOMBSTONE_ACK)
            uow.attempts.release_holds([pod.id for pod in pods])
        plane.do("UPDATE attempt SET state = 'ended', outcome = 'voided', ended_at = now()"
                 " WHERE workload_id = CAST(:id AS uuid)", **named)  # fmt: skip


def test_two_threads_admit_all_that_there_is_room_for(plane: Plane) -> None:
    plane.cluster("eu", nodes=8)
    team = plane.queue("team", nominal=64)
    overlap = Overlap(plane.planner())
    gangs = [plane.workload(f"gang-{number}", team, pods=1) for number in range(3)]
    steps: list[Step] = []

    def told(step: Step) -> bool:
        if len(steps) < 3:
            gangs.append(plane.workload(f"later-{len(steps)}", team, pods=1))
        steps.append(step)
        return True

    overlap.run(20, told)
    overlap.close()
    assert [plane.state(gang) for gang in gangs] == ["reserved"] * 6
    assert steps.count(Step.AGAIN) >= 2
    every_cycle_is_the_same_again(plane)


def test_what_a_cycle_did_not_reach_is_planned_at_once(plane: Plane) -> None:
    plane.cluster("eu", nodes=8)
    team = plane.queue("team", nominal=64)
    plane.do("INSERT INTO policy (pool_id, version, spec, created_at, created_by)"
             " VALUES (:pool, 2, CAST('{\"admissions_max\": 2}' AS jsonb), now(), 'ann')", pool=plane.pool)  # fmt: skip
    plane.do("UPDATE pool SET policy_version = 2")
    gangs = [plane.workload(f"gang-{number}", team, pods=1) for number in range(5)]
    overlap = Overlap(plane.planner())
    overlap.run(20, lambda _: True)
    overlap.close()
    assert [plane.state(gang) for gang in gangs] == ["reserved"] * 5
