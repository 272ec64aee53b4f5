"""The table of periodic jobs: a run that comes twice changes nothing, and a run is claimed by one process only."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from celery import Celery
from sqlalchemy import inspect, text

from controlplane.bootstrap import Container, build_container
from controlplane.services.replay import replay
from controlplane.wakeups import PERIODIC_TASK
from controlplane.workers.periodic import BY_NAME, PERIODIC, Job, run_due
from controlplane.workers.planning import PlannerLoop
from controlplane.workers.run import schedule
from controlplane.workers.sweeper import Sweeper
from controlplane.workers.tasks import bind_periodic
from tests.services.planes import Plane
from tests.support.api import settings_for
from tests.support.databases import Database
from tests.support.waiting import eventually

EVERY_SECONDS = {
    "check-attempts": 1,
    "check-clusters": 1,
    "check-nodes": 2,
    "check-drains": 1,
    "expire-cordons": 1,
    "end-recovery": 2,
    "expire-earmarks": 5,
    "poke-pools": 1,
    "number-directives": 2,
    "sync-accounts": 10,
    "roll-up-usage": 300,
    "seal-audit": 60,
    "rebalance": 60,
    "drop-old": 3_600,
}
# Rows that say when something ran or was looked at; a report of rebalancing bears the time of its run.
CLOCKS = frozenset({"periodic_run", "plane", "process_heartbeat", "rebalance_report"})


@pytest.fixture
def container(database: Database, valkey: str, tmp_path: Path) -> Iterator[Container]:
    container = build_container(settings_for(database, valkey, tmp_path))
    yield container
    container.close()


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    """One gang placed, one that waits for room."""
    plane = Plane(database)
    plane.cluster("eu", nodes=2)
    team = plane.queue("team", nominal=16)
    plane.workload("placed", team, pods=2)
    plane.workload("waits", team, pods=2)
    plane.planner().step()
    yield plane
    plane.close()


def _rows(plane: Plane) -> Mapping[str, list[str]]:
    tables = [name for name in inspect(plane.engine).get_table_names() if name not in CLOCKS]
    with plane.engine.connect() as connection:
        return {
            table: sorted(str(row) for row in connection.execute(text(f'SELECT * FROM "{table}"'))) for table in tables
        }


def test_the_table_says_how_often_each_job_runs_and_what_a_missed_run_costs() -> None:
    assert {job.name: job.every_seconds for job in PERIODIC} == EVERY_SECONDS
    assert [job.name for job in PERIODIC if not job.if_missed] == []


def test_beat_sends_every_job_once_in_its_period_and_one_message_for_all_of_a_period() -> None:
    sent = schedule()
    told = [(entry["schedule"], name) for entry in sent.values() for name in cast("list[list[str]]", entry["args"])[0]]
    assert sorted(told) == sorted((seconds, name) for name, seconds in EVERY_SECONDS.items())
    assert len(sent) == len(set(EVERY_SECONDS.values()))


def test_a_worker_runs_the_jobs_of_a_message_of_either_release(plane: Plane, container: Container) -> None:
    """While a new release comes, one beat sends a name and the other a list of names."""
    app = Celery(set_as_current=False)
    bind_periodic(app, container)
    for names in (["seal-audit", "rebalance"], "drop-old"):
        app.tasks[PERIODIC_TASK](names)
    ran = [row.name for row in plane.rows("SELECT name FROM periodic_run ORDER BY name")]
    assert ran == ["drop-old", "rebalance", "seal-audit"]


@pytest.mark.parametrize("job", PERIODIC, ids=lambda job: job.name)
def test_a_second_run_changes_nothing(job: Job, plane: Plane, container: Container) -> None:
    job.run(container)
    once = _rows(plane)
    job.run(container)
    twice = _rows(plane)
    assert {table: rows for table, rows in twice.items() if rows != once[table]} == {}


def test_a_run_is_claimed_once_until_it_is_due_again(plane: Plane, container: Container) -> None:
    everything = "SELECT count(*) AS n FROM periodic_run"
    run_due(container)
    assert plane.rows(everything)[0].n == len(PERIODIC)
    with container.uow_factory() as uow:
        assert uow.planning.claim_periodic({"drop-old": 3_600, "roll-up-usage": 300}) == []


def test_a_sweep_says_that_its_process_lives_before_it_begins_what_may_take_long(
    plane: Plane, container: Container
) -> None:
    Sweeper(container, "one", "worker").sweep()
    [row] = plane.rows(
        """SELECT beat.at < report.at AS first FROM process_heartbeat AS beat, rebalance_report AS report
           WHERE beat.name = 'one'"""
    )
    assert row.first


def test_a_planner_that_does_not_plan_has_no_heartbeat(plane: Plane, container: Container) -> None:
    loop = PlannerLoop(container, "one", lambda _pool, *, on: on)
    sweeper = Sweeper(container, "one", "planner", loop.makes_progress)
    sweeper.sweep()
    assert plane.rows("SELECT name FROM process_heartbeat") == []
    loop.start()
    try:
        sweeper.sweep()
        assert [row.name for row in plane.rows("SELECT name FROM process_heartbeat")] == ["one"]
    finally:
        loop.stop()


def test_two_who_claim_a_run_at_the_same_moment_do_not_both_get_it(plane: Plane, container: Container) -> None:
    def claim() -> list[str]:
        with container.uow_factory() as second:
            return list(second.planning.claim_periodic({"drop-old": 3_600}))

    blocked = "SELECT count(*) AS n FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    with ThreadPoolExecutor(1) as other:
        with container.uow_factory() as first:
            assert list(first.planning.claim_periodic({"drop-old": 3_600})) == ["drop-old"]
            waiting = other.submit(claim)
            eventually(lambda: plane.rows(blocked)[0].n, within=1, what="the second waits for the first")
        assert waiting.result(timeout=10) == []


def test_old_cycles_go_in_whole_chains_and_the_newest_chain_stays(plane: Plane, container: Container) -> None:
    def chains() -> list[tuple[int, int | None]]:
        return [(row.id, row.base_id) for row in plane.rows("SELECT id, base_id FROM cycle ORDER BY id")]

    team = plane.rows("SELECT id FROM queue")[0].id
    for number, planner in enumerate((plane.planner(), plane.planner())):
        plane.workload(f"more-{number}", team, pods=1)
        planner.step()
        plane.workload(f"most-{number}", team, pods=1)
        plane.wake()
        planner.step()
    stored = chains()
    newest = stored[-1][1]
    assert newest is not None
    plane.do("UPDATE cycle SET finished_at = finished_at - interval '1 year'")
    with container.uow_factory() as uow:
        assert uow.planning.drop_cycles_before(uow.now - timedelta(days=1), 1) == 1
    assert all(base is None or base in dict(chains()) for _, base in chains())
    BY_NAME["drop-old"].run(container)
    assert chains() == [each for each in stored if newest in each]
    with container.uow_factory() as uow:
        assert replay(uow, stored[-1][0]).is_identical
