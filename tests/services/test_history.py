"""Turns that remember, on a real database: what is gathered, what a reckoning writes, and what planners read of it."""

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from controlplane.contract.rest.tenancy import QueueView
from controlplane.core.facts.planning import Horizon, Reading, Table
from controlplane.core.facts.queries import Scope
from controlplane.core.history import WHOLE, Use, use_after
from controlplane.core.ids import FlavorName, PoolId, QueueId
from controlplane.core.plan import Plan
from controlplane.core.policy import Policy
from controlplane.core.records import World
from controlplane.core.scenario import tree_of
from controlplane.core.snapshot import Snapshot
from controlplane.db.snapshot_reader import SqlSnapshotReader
from controlplane.services.history import PoolHistory
from controlplane.services.replay import replay
from controlplane.services.scheduling import Planner, Step
from tests.services.planes import H100, Plane
from tests.support.databases import Database

POLICY = Policy()
FLAVOR = FlavorName(H100)
HOURS = 2


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    plane = Plane(database)
    yield plane
    plane.close()


class LaterReader:
    """The real reader on a plane whose clock was put forward."""

    def __init__(self, reader: SqlSnapshotReader) -> None:
        self.reader = reader
        self.by = timedelta()

    def read(self, pool: PoolId, since: Horizon | None) -> Reading:
        reading = self.reader.read(pool, since)
        return replace(reading, now=reading.now + self.by)


def two_teams(plane: Plane) -> tuple[Planner, LaterReader, int, int]:
    """Two nodes; team a has both, team b waits for one."""
    plane.cluster("eu", nodes=2)
    plane.queue("org", nominal=16)
    a, b = plane.queue("org/a"), plane.queue("org/b")
    for name in ("a1", "a2"):
        plane.workload(name, a, pods=1)
    reader = LaterReader(plane.tools.reader)  # type: ignore[arg-type]  # a plane's is the real one
    plane.tools = replace(plane.tools, reader=reader)
    planner = plane.planner()
    while planner.step() is Step.AGAIN:
        pass
    plane.workload("b1", b, pods=1)
    while planner.step() is Step.AGAIN:
        pass
    return planner, reader, a, b


def as_read(plane: Plane) -> tuple[Snapshot, datetime]:
    reading = plane.tools.reader.read(plane.pool, None)
    world = World(plane.pool)
    world.apply(reading.changes)
    return world.freeze(), reading.now


def test_a_reckoning_writes_what_was_contended_and_planners_read_it(plane: Plane) -> None:
    _, _, a, _ = two_teams(plane)
    snapshot, now = as_read(plane)
    tree, history = tree_of(snapshot), PoolHistory(plane.pool)
    history.look(snapshot, POLICY, use_after(snapshot, Plan(), tree, now), now)
    later = now + timedelta(hours=HOURS)
    assert not history.is_due(POLICY, now)
    assert history.is_due(POLICY, later)
    history.look(snapshot, POLICY, Use(), later)
    with plane.uow() as uow:
        history.reckon(uow, POLICY, tree, {FLAVOR: 16}, later)
    history.reckoned(later)
    standings = as_read(plane)[0].standings
    assert standings.keys() == {a}, "b waits no longer, and used nothing"
    standing = standings[QueueId(a)]
    assert standing.contended == pytest.approx(8 * 3_600 * HOURS, rel=0.01), "of 16 units, 8 are waited for"
    assert standing.reckoned_at == later
    assert not history.is_due(POLICY, later)


def test_what_was_gathered_is_counted_once_and_fades(plane: Plane) -> None:
    _, _, a, _ = two_teams(plane)
    snapshot, now = as_read(plane)
    tree, history = tree_of(snapshot), PoolHistory(plane.pool)
    history.look(snapshot, POLICY, use_after(snapshot, Plan(), tree, now), now)
    at = now + timedelta(hours=HOURS)
    history.look(snapshot, POLICY, Use(), at)
    for _ in range(2):
        with plane.uow() as uow:
            history.reckon(uow, POLICY, tree, {FLAVOR: 16}, at)
        history.reckoned(at)
    once = as_read(plane)[0].standings[QueueId(a)].contended
    at += timedelta(seconds=POLICY.history_half_life_seconds)
    with plane.uow() as uow:
        history.reckon(uow, POLICY, tree, {FLAVOR: 16}, at)
    assert as_read(plane)[0].standings[QueueId(a)].contended == once // 2


def test_a_planner_reckons_by_itself_and_its_cycles_replay(plane: Plane) -> None:
    """The new weight is in the rows of the next cycle, so the stored cycle gives the same plan again."""
    planner, reader, a, b = two_teams(plane)
    for hours in (3, 200):
        reader.by = timedelta(hours=hours)
        plane.wake()
        planner.step()
    [row] = plane.rows("SELECT weight, contended, credit FROM queue_history WHERE queue_id = :a", a=a)
    assert row.weight < WHOLE
    assert row.contended > 0
    assert plane.rows("SELECT credit FROM queue_history WHERE queue_id = :b AND credit > 0", b=b)
    plane.workload("a3", QueueId(a), pods=1)
    planner.step()
    with plane.uow() as uow:
        cycles = [row.id for row in plane.rows("SELECT id FROM cycle ORDER BY id")]
        assert all(replay(uow, cycle).is_identical for cycle in cycles)
    changes = [
        change for change in plane.tools.reader.read(plane.pool, None).changes if change.table is Table.STANDINGS
    ]
    assert {change.key for change in changes} == {a, b}


def test_planning_goes_on_where_the_past_cannot_be_written_and_nothing_gathered_is_lost(
    plane: Plane, database: Database
) -> None:
    planner, reader, a, b = two_teams(plane)
    _as_owner(database, "ALTER TABLE queue_history ADD CONSTRAINT refused CHECK (contended < 0) NOT VALID")
    for minutes in (1, 181):
        reader.by = timedelta(minutes=minutes)
        plane.wake()
        planner.step()
    plane.workload("b2", QueueId(b), pods=1)
    planner.step()
    assert plane.rows("SELECT FROM queue_history") == []
    assert plane.rows("SELECT reasons FROM workload WHERE name = 'b2'")[0].reasons, "the cycle itself is committed"
    _as_owner(database, "ALTER TABLE queue_history DROP CONSTRAINT refused")
    reader.by = timedelta(minutes=301)
    plane.wake()
    planner.step()
    [row] = plane.rows("SELECT contended FROM queue_history WHERE queue_id = :a", a=a)
    assert int(row.contended) // 10**6 == pytest.approx(8 * 5 * 3_600, rel=0.02), "b2 came within seconds of a look"


def test_owners_of_one_queue_are_told_apart(plane: Plane) -> None:
    """Ann has both nodes and bob waits: bob goes first the next time, though ann asked earlier."""
    planner, reader, a, _ = two_teams(plane)
    plane.workload("bobs", QueueId(a), pods=1)
    plane.do("UPDATE workload SET owner = 'bob' WHERE name = 'bobs'")
    reader.by = timedelta(minutes=1)
    plane.wake()
    planner.step()
    reader.by = timedelta(hours=3)
    plane.wake()
    planner.step()
    [row] = plane.rows("SELECT owner, used FROM owner_history")
    assert row.owner == "ann"
    assert row.used > 8 * 10**6
    snapshot, _ = as_read(plane)
    assert snapshot.owners == {(a, "ann"): int(row.used) // 10**6}
    assert {attempt.owner for attempt in snapshot.running.values()} == {"ann"}


def test_views_of_queues_say_what_they_are_entitled_to_and_what_history_makes_of_them(plane: Plane) -> None:
    """Team a has all 16, team b waits for 8: each is entitled to 8 now."""
    planner, reader, _, _ = two_teams(plane)
    assert {path: view.quotas[0].entitled for path, view in views(plane).items()} == {"org": 16, "org/a": 8, "org/b": 8}
    assert views(plane)["org/a"].quotas[0].burst_credit is None
    for hours in (3, 200):
        reader.by = timedelta(hours=hours)
        plane.wake()
        planner.step()
    a, b = views(plane)["org/a"], views(plane)["org/b"]
    left, earned = a.quotas[0].burst_credit, b.quotas[0].burst_credit
    assert earned == pytest.approx(8 * 168 / math.log(2), rel=0.001), "half of 16 in the window"
    assert left is not None
    assert earned is not None
    assert left < earned
    assert 0 < a.weight_now < a.weight == b.weight_now == b.weight


def test_a_share_that_is_no_whole_number_is_rounded_down_to_hundredths(plane: Plane) -> None:
    plane.queue("org", nominal=2)
    for name in ("a", "b", "c"):
        plane.workload(f"{name}1", QueueId(plane.queue(f"org/{name}")), pods=1, devices=1)
    assert {path: view.quotas[0].entitled for path, view in views(plane).items() if path != "org"} == {
        "org/a": 0.66,
        "org/b": 0.66,
        "org/c": 0.66,
    }


def _as_owner(database: Database, statement: str) -> None:
    with sa.create_engine(database.superuser_url, poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text(statement))


def views(plane: Plane) -> dict[str, QueueView]:
    with plane.uow() as uow:
        return {view.path: view for view in uow.queries.queues(Scope(None))}


def test_what_a_cycle_did_not_reach_is_reached_by_the_next_ones_at_once_and_they_replay(plane: Plane) -> None:
    """Twelve urgent gangs that fit nowhere use a cycle's work units up again and again; the small job starts anyway."""
    plane.cluster("eu", nodes=2)
    team = plane.queue("team", nominal=10_000)
    for pods in range(12):
        plane.workload(f"large-{pods}", team, pods=30 + pods, priority=900)
    small = plane.workload("small", team, pods=1)
    plane.do(
        """INSERT INTO policy (pool_id, version, spec, created_at, created_by)
           VALUES (:pool, 2, '{"work_units_max": 3, "reclaim": false}', now(), 'test')""",
        pool=plane.pool,
    )
    plane.do("UPDATE pool SET policy_version = 2 WHERE id = :pool", pool=plane.pool)
    plane.wake()
    planner, cycles = plane.planner(), 0
    while planner.step() is Step.AGAIN:
        cycles += 1
        assert cycles < 40
    assert plane.state(small) == "reserved"
    with plane.uow() as uow:
        stored = [row.id for row in plane.rows("SELECT id FROM cycle ORDER BY id")]
        assert len(stored) > 2
        assert all(replay(uow, cycle).is_identical for cycle in stored)


def test_rows_that_say_nothing_go_after_a_day(plane: Plane) -> None:
    _, _, a, _ = two_teams(plane)
    with plane.uow() as uow:
        now = uow.now
    for days in (3, 1, 0):
        plane.do(
            """INSERT INTO queue_history (pool_id, queue_id, flavor, contended, weight, credit, reckoned_at)
               VALUES (:pool, :queue, :flavor, 0, 1000000, 7, :at)""",
            pool=plane.pool, queue=a, flavor=f"flavor-{days}", at=now - timedelta(days=days, minutes=1),
        )  # fmt: skip
    with plane.uow() as uow:
        uow.history.write(plane.pool, {}, {}, now)
    assert [row.flavor for row in plane.rows("SELECT flavor FROM queue_history")] == ["flavor-0"]


def test_what_has_faded_is_forgotten_however_often_it_is_reckoned(plane: Plane) -> None:
    _, _, a, _ = two_teams(plane)
    gone = plane.queue("org/gone")
    snapshot, now = as_read(plane)
    tree, history = tree_of(snapshot), PoolHistory(plane.pool)
    history.look(snapshot, POLICY, use_after(snapshot, Plan(), tree, now), now)
    plane.do("UPDATE queue SET deleted_at = now() WHERE id = :gone", gone=gone)
    plane.do(
        """INSERT INTO queue_history (pool_id, queue_id, flavor, contended, weight, credit, reckoned_at)
           VALUES (:pool, :queue, :flavor, 1000000000, 900000, -7, :at)""",
        pool=plane.pool, queue=gone, flavor=H100, at=now,
    )  # fmt: skip
    without = tree_of(as_read(plane)[0])
    at = now + timedelta(hours=HOURS)
    history.look(snapshot, POLICY, Use(), at)
    for hours in (0, *[20 * POLICY.history_half_life_seconds // 3_600, 9, 9, 9, 9]):
        at += timedelta(hours=hours)
        with plane.uow() as uow:
            history.reckon(uow, POLICY, without, {FLAVOR: 16}, at)
        history.reckoned(at)
        if not hours:
            assert {row.queue_id for row in plane.rows("SELECT queue_id FROM queue_history")} == {a, gone}
    assert not plane.rows("SELECT queue_id FROM queue_history"), "neither faded Queues nor one that is no more"
    assert not plane.rows("SELECT owner FROM owner_history")
