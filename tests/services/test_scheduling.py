"""Planning on a real database: what a cycle commits, what it refuses to commit, and what replay finds."""

import json
from collections.abc import Iterator

import pytest

from controlplane.core.plan import Admit
from controlplane.core.records import World
from controlplane.services import accounting
from controlplane.services.replay import replay
from controlplane.services.scheduling import Step
from tests.services.planes import H100, Plane
from tests.support.databases import Database


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    plane = Plane(database)
    yield plane
    plane.close()


def test_a_gang_is_committed_whole_with_holds_reservation_transfer_and_directive(plane: Plane) -> None:
    plane.cluster("eu", nodes=8)
    team = plane.queue("team", nominal=64)
    gang = plane.workload("gang", team, pods=4, rack="rack")
    assert plane.planner().step() is Step.AGAIN
    assert plane.state(gang) == "reserved"
    [held] = plane.rows("SELECT count(*) AS pods, sum(amount) AS units FROM hold WHERE released_at IS NULL")
    assert (held.pods, held.units) == (4, 32)
    assert plane.rows("SELECT sum(held) AS held FROM node_flavor")[0].held == 32
    [account] = plane.rows("SELECT pending, posted FROM account")
    assert (account.pending, account.posted) == (32, 0)
    [directive] = plane.rows("SELECT kind, gen, body FROM directive")
    assert (directive.kind, directive.gen) == ("apply", 1)
    assert [pin["rank"] for pin in directive.body["pins"]] == [0, 1, 2, 3]
    assert plane.rows("SELECT number FROM directive_number")[0].number == 1


def test_a_gang_that_does_not_fit_waits_with_a_reason_and_starts_when_room_comes(plane: Plane) -> None:
    cluster = plane.cluster("eu", nodes=2)
    team = plane.queue("team", nominal=64)
    gang = plane.workload("gang", team, pods=3)
    planner = plane.planner()
    planner.step()
    assert plane.state(gang) == "pending"
    [row] = plane.rows("SELECT reasons FROM workload")
    assert row.reasons, "it must say why it waits"
    plane.node(cluster, "eu-new", devices=8, rack="rack-0")
    plane.wake()
    assert planner.step() is Step.AGAIN
    assert plane.state(gang) == "reserved"


def test_a_warm_world_is_the_world_that_a_cold_planner_reads(plane: Plane) -> None:
    plane.cluster("eu", nodes=4)
    team = plane.queue("team", nominal=32)
    warm, horizon = World(plane.pool), None
    planner = plane.planner()
    for number in range(6):
        plane.workload(f"gang-{number}", team, pods=1 + number % 2)
        reading = plane.tools.reader.read(plane.pool, horizon)
        warm.apply(reading.changes)
        horizon = reading.horizon
        cold = World(plane.pool)
        cold.apply(plane.tools.reader.read(plane.pool, None).changes)
        assert warm.changes() == cold.changes()
        planner.step()


def test_a_planner_whose_epoch_is_over_commits_nothing(plane: Plane) -> None:
    plane.cluster("eu", nodes=4)
    team = plane.queue("team", nominal=32)
    old = plane.planner("old")
    plane.do("UPDATE pool SET planner_until = now() - interval '1 second'")
    new = plane.planner("new")
    gang = plane.workload("gang", team, pods=1)
    assert old.step() is Step.DEPOSED
    assert plane.state(gang) == "pending"
    assert new.step() is Step.AGAIN
    assert plane.state(gang) == "reserved"


def test_a_node_that_filled_since_the_snapshot_drops_the_decision_and_the_next_cycle_plans_again(plane: Plane) -> None:
    plane.cluster("eu", nodes=1)
    plane.cluster("us", nodes=1)
    team = plane.queue("team", nominal=32)
    gang = plane.workload("gang", team, pods=1)
    planner = plane.planner()
    planned = planner.plan()
    assert planned is not None
    admitted = [one for one in planned.plan.decisions if isinstance(one, Admit)]
    [taken] = {pod.node for one in admitted for placed in one.placements for pod in placed.pods}
    plane.do("UPDATE node_flavor SET capacity = 0 WHERE node_id = :node", node=taken)
    planner.commit(planned)
    assert plane.state(gang) == "pending"
    planner.step()
    assert plane.state(gang) == "reserved"
    [hold] = plane.rows("SELECT capacity FROM hold JOIN node_flavor USING (node_id) WHERE released_at IS NULL")
    assert hold.capacity == 8


def test_a_node_that_lost_its_cpu_since_the_snapshot_drops_the_decision(plane: Plane) -> None:
    plane.cluster("eu", nodes=1)
    gang = plane.workload("gang", plane.queue("team", nominal=8), pods=1)
    plane.do("UPDATE pod_set SET cpu_milli = 4000, memory_bytes = 1000")
    planner = plane.planner()
    planned = planner.plan()
    assert planned is not None
    plane.do("UPDATE node SET cpu_milli = 3999")
    planner.commit(planned)
    assert plane.state(gang) == "pending"
    plane.do("UPDATE node SET cpu_milli = 4000")
    planner.step()
    assert plane.state(gang) == "reserved"


def test_a_borrower_leaves_whole_for_the_owner_and_what_it_frees_is_kept_for_the_owner(plane: Plane) -> None:
    plane.cluster("eu", nodes=4)
    plane.queue("org", nominal=0)
    borrower, owner = plane.queue("org/a", nominal=16), plane.queue("org/b", nominal=16)
    first = plane.workload("first", borrower, pods=2)
    planner = plane.planner()
    planner.step()
    second = plane.workload("second", borrower, pods=2)
    planner.step()
    asker = plane.workload("asker", owner, pods=2)
    planner.step()
    assert (plane.state(first), plane.state(second), plane.state(asker)) == ("reserved", "stopping", "pending")
    [earmark] = plane.rows("SELECT CAST(workload_id AS text) AS workload FROM earmark WHERE ended_at IS NULL")
    assert earmark.workload == asker
    [tombstone] = plane.rows("SELECT gen FROM directive WHERE kind = 'tombstone'")
    assert tombstone.gen == 2


def test_a_workload_of_which_no_order_can_be_made_is_put_off_and_the_others_start(plane: Plane) -> None:
    plane.cluster("eu", nodes=4)
    team = plane.queue("team", nominal=32)
    before, broken, after = (plane.workload(name, team, pods=1) for name in ("before", "broken", "after"))
    plane.do("""UPDATE workload SET spec = '{"podSets": []}' WHERE name = 'broken'""")
    planner = plane.planner()
    planner.step()
    assert [plane.state(one) for one in (before, broken, after)] == ["reserved", "pending", "reserved"]
    planner.step()
    [row] = plane.rows("SELECT reasons, not_before > now() AS waits FROM workload WHERE name = 'broken'")
    assert row.waits
    assert [why["code"] for why in row.reasons] == ["backing-off"]
    [told] = plane.rows("SELECT object_id, facts FROM audit WHERE action = 'no-order'")
    assert told.object_id == broken
    [account] = plane.rows("SELECT pending FROM account")
    assert account.pending == 16


def test_an_earmark_stays_while_its_asker_is_placed_and_does_not_run_yet(plane: Plane) -> None:
    plane.cluster("eu", nodes=2)
    team = plane.queue("team", nominal=16)
    asker = plane.workload("asker", team, pods=1)
    node = plane.rows("SELECT id, cluster_id FROM node ORDER BY id LIMIT 1")[0]
    plane.do(
        """INSERT INTO earmark (workload_id, cluster_id, pool_id, shares, created_at, until, next_check_at)
           VALUES (CAST(:asker AS uuid), :cluster, :pool, CAST(:shares AS jsonb), now(), now() + interval '1 hour',
               now())""",
        asker=asker, cluster=node.cluster_id, pool=plane.pool,
        shares=json.dumps([{"node": node.id, "flavor": H100, "amount": 8}]),
    )  # fmt: skip
    planner = plane.planner()
    planner.step()
    other = plane.workload("other", team, pods=1)
    planner.step()
    assert (plane.state(asker), plane.state(other)) == ("reserved", "reserved"), "what is kept counts once"
    assert plane.rows("SELECT FROM earmark WHERE ended_at IS NULL")


def test_every_stored_cycle_gives_the_same_plan_when_it_is_run_again(plane: Plane) -> None:
    plane.cluster("eu", nodes=4)
    team = plane.queue("team", nominal=24)
    planner = plane.planner()
    for number in range(5):
        plane.workload(f"gang-{number}", team, pods=1)
        planner.step()
    cycles = plane.rows("SELECT id FROM cycle ORDER BY id")
    assert len(cycles) >= 4
    for cycle in cycles:
        with plane.uow() as uow:
            assert replay(uow, cycle.id).is_identical


def test_no_directive_is_written_for_a_charge_that_no_longer_holds(plane: Plane) -> None:
    """T38: quota was cut between plan and commit; neither the charge nor the order to the cluster may appear."""
    plane.cluster("eu", nodes=4)
    team = plane.queue("team", nominal=32)
    gang = plane.workload("gang", team, pods=2)
    planner = plane.planner()
    planned = planner.plan()
    assert planned is not None
    assert planned.plan.decisions
    plane.do("UPDATE quota SET nominal = 8 WHERE queue_id = :queue", queue=team)
    with plane.uow() as uow:
        accounting.sync_accounts(uow)
    planner.commit(planned)
    assert plane.state(gang) == "pending"
    for table in ("directive", "transfer", "hold", "reservation", "attempt"):
        assert not plane.rows(f"SELECT FROM {table}"), f"{table} must be empty"


def test_a_request_that_passes_the_limit_by_a_part_waits_whole(plane: Plane) -> None:
    """T39: 24 of 30 are in use; 8 more are not admitted, though 6 of them would fit."""
    plane.cluster("eu", nodes=8)
    team = plane.queue("team", nominal=30)
    plane.workload("first", team, pods=3)
    planner = plane.planner()
    planner.step()
    more = plane.workload("more", team, pods=1)
    planner.step()
    assert plane.state(more) == "pending"
    [row] = plane.rows("SELECT reasons FROM workload WHERE name = 'more'")
    [why] = row.reasons
    assert why["code"] == "quota-exceeded"
    assert (why["facts"]["available"], why["facts"]["wanted"]) == (6, 8)


def test_a_root_that_owns_what_clusters_own_counts_the_clusters_of_every_pool(plane: Plane) -> None:
    plane.cluster("eu", nodes=1)
    other = plane.do("INSERT INTO pool (name) VALUES ('other') RETURNING id")
    cluster = plane.cluster("us", nodes=3)
    plane.do("UPDATE cluster SET pool_id = :pool WHERE id = :cluster", pool=other, cluster=cluster)
    world = World(plane.pool)
    world.apply(plane.tools.reader.read(plane.pool, None).changes)
    snapshot = world.freeze()
    assert snapshot.owned_elsewhere == {H100: 24}
    assert len(snapshot.nodes) == 1
