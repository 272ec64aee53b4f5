"""Planner processes: woken by a poke, finishing by sweep without Redis, replaced when they die, harmless in pairs."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from controlplane.embedded.home import free_port
from controlplane.wakeups import Wakeups, plan_queue
from tests.services.planes import NOBODY, Plane
from tests.support.databases import Database
from tests.support.probing import probe
from tests.support.waiting import eventually
from tests.workers.processes import Workers, workers

START_SECONDS = 30


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    plane = Plane(database)
    plane.cluster("eu", nodes=8)
    yield plane
    plane.close()


def lease(plane: Plane) -> tuple[str, int]:
    [row] = plane.rows("SELECT planner_owner, planner_epoch FROM pool WHERE id = :pool", pool=plane.pool)
    return row.planner_owner, row.planner_epoch


def is_subscribed(valkey: str, plane: Plane) -> bool:
    with redis.Redis.from_url(valkey) as client:
        return bool(client.exists(f"muster:_kombu.binding.{plan_queue(plane.pool)}"))


def is_planned(plane: Plane, gang: str, started: Workers, within: float) -> None:
    def check() -> bool:
        assert plane.state(gang) == "reserved", started.log()
        return True

    eventually(check, within=within, what="the gang is reserved")


def test_a_poke_wakes_the_planner_long_before_its_next_sweep(
    database: Database, valkey: str, plane: Plane, tmp_path: Path
) -> None:
    team = plane.queue("team", nominal=64)
    with workers(database, valkey, tmp_path, sweep_seconds="600") as started:
        started.start("planner")
        eventually(lambda: lease(plane)[0], within=START_SECONDS, what="the lease is taken")
        eventually(lambda: is_subscribed(valkey, plane), within=START_SECONDS, what="the pool's queue is read")
        wakeups = Wakeups(valkey)
        gang = plane.workload("gang", team, pods=2)
        wakeups.poke(plane.pool)
        is_planned(plane, gang, started, within=START_SECONDS)
        wakeups.close()


def test_with_no_broker_at_all_every_gang_is_still_planned_by_sweep(
    database: Database, plane: Plane, tmp_path: Path
) -> None:
    team = plane.queue("team", nominal=64)
    with workers(database, NOBODY, tmp_path) as started:
        started.start("planner")
        gangs = [plane.workload(f"gang-{number}", team, pods=1) for number in range(3)]
        for gang in gangs:
            is_planned(plane, gang, started, within=START_SECONDS)


def test_when_the_owning_planner_is_killed_another_plans_under_a_new_epoch(
    database: Database, valkey: str, plane: Plane, tmp_path: Path
) -> None:
    team = plane.queue("team", nominal=64)
    with workers(database, valkey, tmp_path) as started:
        planners = {process.pid: process for process in (started.start("planner"), started.start("planner"))}
        eventually(lambda: bool(lease(plane)[0]), within=START_SECONDS, what="a planner that owns the Pool")
        owner, epoch = lease(plane)
        first = plane.workload("first", team, pods=2)
        is_planned(plane, first, started, within=START_SECONDS)
        [pid] = [pid for pid in planners if f"-{pid}-" in owner]
        planners[pid].send_signal(signal.SIGKILL)
        second = plane.workload("second", team, pods=2)
        is_planned(plane, second, started, within=START_SECONDS)
        new_owner, new_epoch = lease(plane)
        assert new_owner != owner
        assert new_epoch > epoch
    assert plane.rows("SELECT count(*) AS n FROM attempt")[0].n == 2


def test_two_workers_and_two_beats_run_each_periodic_job_without_harm(
    database: Database, valkey: str, plane: Plane, tmp_path: Path
) -> None:
    team = plane.queue("team", nominal=64)
    with workers(database, valkey, tmp_path) as started:
        for role in ("planner", "planner", "worker", "worker", "beat", "beat"):
            started.start(role)
        gangs = [plane.workload(f"gang-{number}", team, pods=1) for number in range(4)]
        for gang in gangs:
            is_planned(plane, gang, started, within=START_SECONDS)
        eventually(lambda: plane.rows("SELECT FROM rebalance_report"), within=START_SECONDS)
        eventually(lambda: len(plane.rows("SELECT FROM process_heartbeat")) == 6, within=START_SECONDS)
    assert plane.rows("SELECT count(*) AS n FROM attempt")[0].n == 4


@pytest.mark.parametrize("role", ["planner", "worker"])
def test_a_process_tells_its_metrics_on_the_loopback_where_it_is_given_a_port(
    role: str, database: Database, tmp_path: Path
) -> None:
    port = free_port()
    with workers(database, NOBODY, tmp_path, metrics_port=str(port)) as started:
        started.start(role)

        def is_told() -> bool:
            _, text = probe(f"http://127.0.0.1:{port}/metrics")
            return f'muster_due_rows_swept_total{{kind="{role}"}}' in text

        eventually(is_told, within=START_SECONDS, what="the metrics")
