"""Figures of planner processes. B: how long one decision takes while 10,000 gangs wait; L: from a planner's death to
the next commit; Q: whole lives, from the row to the settled account.

Times are those of Postgres's own commits (`track_commit_timestamp`), so nothing is asked while it runs.
"""

import json
import os
import random
import signal
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg
from sqlalchemy import event, text
from sqlalchemy.engine.interfaces import DBAPICursor

from controlplane.core.facts.ledger import AttemptKey, Proof
from controlplane.core.ids import AttemptNumber, WorkloadId
from controlplane.embedded.postgres import SUPERUSER
from controlplane.embedded.servers import running
from controlplane.services import accounting
from controlplane.services.overlap import Overlap
from controlplane.services.ports.unit_of_work import UnitOfWork
from controlplane.wakeups import Wakeups
from controlplane.workers.garbage import collect_rarely
from tests.bench.figures import Result, at_least, at_most
from tests.bench.fleets import DEVICES, LOADS, NODES_PER_CLUSTER, TEMPLATE, Load, add_fleet, add_gangs, add_queues
from tests.services.planes import H100, Plane
from tests.support import databases
from tests.support.waiting import eventually
from tests.workers.processes import Workers, workers

CLUSTERS = 12
WAITING, ARRIVALS_PER_SECOND, SECONDS = 10_000, 20, 60
PODS, DEVICES_EACH = 8, 1
DEATHS = 3
LIFE_SECONDS, LIVES_AT_ONCE = 60, 500
LOAD_SECONDS = 120
SEED = 7
NEVER = Load("never", infeasible=1.0)


def decision_among_waiting() -> list[Result]:
    """B: p99 from the commit of a gang's row to the commit of its decision."""
    with _plane() as bench, workers(bench.database, bench.valkey, bench.folder) as started:
        plane, chance = bench.plane, random.Random(SEED)
        queues = add_queues(plane, LOADS["first"])
        add_gangs(plane, queues, WAITING, chance, NEVER)
        started.start("planner")
        bench.wakeups.poke(plane.pool)
        _is_planned(plane, queues, started)
        gangs = []
        began = time.perf_counter()
        for number in range(ARRIVALS_PER_SECOND * SECONDS):
            time.sleep(max(0.0, began + number / ARRIVALS_PER_SECOND - time.perf_counter()))
            gangs.append(_submit(bench, queues[number % len(queues)]))
        eventually(lambda: _decided(plane, gangs) == len(gangs), within=60, what="all arrivals are decided")
        took = sorted(_latencies(plane, gangs))
    parameters = {
        "waiting": WAITING, "arrivals_per_s": ARRIVALS_PER_SECOND, "seconds": SECONDS, "decided": len(took),
        "fsync": True, "gpus": CLUSTERS * NODES_PER_CLUSTER * DEVICES, "p50_ms": _ms(statistics.median(took)),
        "worst_ms": _ms(took[-1]),
    }  # fmt: skip
    return [Result("B", _ms(took[int(len(took) * 0.99)]), "ms", at_most(250), parameters)]


def planner_killed() -> list[Result]:
    """L: from a kill of the planner that owns the Pool to the next commit of a decision, the worst of three."""
    with _plane() as bench, workers(bench.database, bench.valkey, bench.folder) as started:
        plane = bench.plane
        queues = add_queues(plane, LOADS["first"])
        planners = [started.start("planner"), started.start("planner")]
        _is_planned(plane, queues, started)
        took = []
        for _ in range(DEATHS):
            [row] = plane.rows("SELECT planner_owner AS owner FROM pool")
            [owner] = [each for each in planners if f"-{each.pid}-" in row.owner]
            [moment] = plane.rows("SELECT clock_timestamp() AS now")
            owner.send_signal(signal.SIGKILL)
            gang = _submit(bench, queues[0])
            eventually(partial(_is_decided, plane, gang), within=60, what="the gang is decided")
            [decided] = plane.rows(_DECIDED, ids=[gang])
            took.append((decided.at - moment.now).total_seconds())
            planners.remove(owner)
            planners.append(started.start("planner"))
            time.sleep(5)  # a standby is there again before the next one dies
    gpus = CLUSTERS * NODES_PER_CLUSTER * DEVICES
    parameters = {"deaths": DEATHS, "seconds": [round(each, 2) for each in took], "gpus": gpus}
    return [Result("L", round(max(took), 2), "s", at_most(5), parameters)]


def whole_lives() -> list[Result]:
    """Q: gangs per second from row to settled account, with starts and ends on connections of their own."""
    collect_rarely()
    with _plane() as bench:
        plane, chance, waits = bench.plane, random.Random(SEED), _lock_waits(bench.plane)
        queues = add_queues(plane, LOADS["first"])
        planner, over = plane.planner(), threading.Event()
        overlap = Overlap(planner)
        lives = threading.Thread(target=lambda: _live_and_end(plane, over))
        lives.start()
        began = time.perf_counter()
        taken = began
        while time.perf_counter() - began < LIFE_SECONDS:
            waiting = plane.rows("SELECT count(*) AS n FROM workload WHERE state = 'pending'")[0].n
            if waiting < LIVES_AT_ONCE:
                add_gangs(plane, queues, LIVES_AT_ONCE, chance)
            overlap.run(2, lambda _: True)
            if time.perf_counter() - taken > 1:
                planner.take()
                taken = time.perf_counter()
        settled = plane.rows("SELECT count(*) AS n FROM transfer WHERE kind = 'reverse'")[0].n
        seconds = time.perf_counter() - began
        over.set()
        lives.join()
        overlap.close()
    waits.sort()
    parameters = {
        "seconds": round(seconds), "settled": settled, "fsync": True, "lock_statements": len(waits),
        "lock_p50_ms": _ms(statistics.median(waits)), "lock_p99_ms": _ms(waits[int(len(waits) * 0.99)]),
        "gpus": CLUSTERS * NODES_PER_CLUSTER * DEVICES,
    }  # fmt: skip
    return [Result("Q", round(settled / seconds), "gangs/s", at_least(500), parameters)]


@dataclass(frozen=True, slots=True)
class _Bench:
    plane: Plane
    database: databases.Database
    valkey: str
    wakeups: Wakeups
    folder: Path


@contextmanager
def _plane() -> Iterator[_Bench]:
    """Both servers with the fleet of figure A, empty; the second start is for the time stamps of commits."""
    ours = {name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
    with tempfile.TemporaryDirectory() as name:
        home, folder = Path(name) / "home", Path(name)
        with running(home, ours, durable=True) as servers:
            assert servers.postgres is not None
            with psycopg.connect(servers.postgres.url(SUPERUSER, "postgres"), autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET track_commit_timestamp = on")
        with running(home, ours, durable=True) as servers:
            assert servers.postgres is not None
            assert servers.valkey is not None
            databases.make_template(servers.postgres)
            database = databases.clone(servers.postgres, databases.TEMPLATE)
            plane, wakeups = Plane(database), Wakeups(servers.valkey.url())
            add_fleet(plane, CLUSTERS)
            try:
                yield _Bench(plane, database, servers.valkey.url(), wakeups, folder)
            finally:
                wakeups.close()
                plane.close()


def _submit(bench: _Bench, queue: int) -> str:
    """One gang in one transaction, and the poke that follows it."""
    plane, gang = bench.plane, str(uuid.uuid4())
    spec = json.dumps({"podSets": [{"name": "main", "replicas": PODS, "template": TEMPLATE}]})
    with plane.engine.begin() as connection:
        connection.execute(
            text("""
                WITH gang AS (
                    INSERT INTO workload (id, name, queue_id, pool_id, owner, priority, state, kind, spec, shape,
                        submitted_at, state_changed_at)
                    VALUES (CAST(:id AS uuid), :id, :queue, :pool, 'ann', 500, 'pending', 'Workload',
                        CAST(:spec AS jsonb), 'arrival', now(), now()) RETURNING id),
                sets AS (
                    INSERT INTO pod_set (workload_id, name, position, replicas, devices, flavors, topology_mode,
                        topology_level)
                    SELECT id, 'main', 0, :pods, :devices, CAST(:flavors AS jsonb), 'preferred', 'rack' FROM gang)
                UPDATE pool SET dirty_version = dirty_version + 1, next_check_at = now() WHERE id = :pool"""),
            {"id": gang, "queue": queue, "pool": plane.pool, "spec": spec, "pods": PODS, "devices": DEVICES_EACH,
             "flavors": json.dumps([H100])},
        )  # fmt: skip
    bench.wakeups.poke(plane.pool)
    return gang


def _is_planned(plane: Plane, queues: list[int], started: Workers) -> None:
    """A gang starts, so the planner has its world."""
    gang = plane.workload("first", queues[0], pods=1, devices=1)
    within = LOAD_SECONDS

    def check() -> bool:
        assert plane.state(gang) == "reserved", started.log()
        return True

    eventually(check, within=within, what="the planner plans", pause=0.2)


def _decided(plane: Plane, gangs: list[str]) -> int:
    """How many of them have holds; looked at rarely, so that looking costs little."""
    time.sleep(0.1)
    statement = "SELECT count(DISTINCT workload_id) AS n FROM hold WHERE workload_id = ANY(CAST(:ids AS uuid[]))"
    return int(plane.rows(statement, ids=gangs)[0].n)


def _is_decided(plane: Plane, gang: str) -> bool:
    return _decided(plane, [gang]) == 1


_DECIDED = """SELECT pg_xact_commit_timestamp(xmin) AS at FROM hold
              WHERE workload_id = ANY(CAST(:ids AS uuid[])) LIMIT 1"""


def _latencies(plane: Plane, gangs: list[str]) -> list[float]:
    """Seconds from the commit of each gang's PodSet to the commit of its holds: neither row is written again."""
    rows = plane.rows(
        """SELECT DISTINCT ON (pod_set.workload_id) extract(epoch FROM
               pg_xact_commit_timestamp(hold.xmin) - pg_xact_commit_timestamp(pod_set.xmin)) AS took
           FROM pod_set JOIN hold USING (workload_id) WHERE workload_id = ANY(CAST(:ids AS uuid[]))""",
        ids=gangs,
    )
    return [float(row.took) for row in rows]


def _live_and_end(plane: Plane, over: threading.Event) -> None:
    """What agents' words come to, in batches: all pods run, all pods are gone."""
    steps = ("prepared", "starting", "running")
    while not over.is_set():
        placed = _attempts(plane, "placed")
        for state in steps if placed else ():
            plane.do(f"UPDATE attempt SET state = '{state}' WHERE workload_id = ANY(CAST(:ids AS uuid[]))", ids=placed)
        if placed:
            plane.do("UPDATE workload SET state = 'running' WHERE id = ANY(CAST(:ids AS uuid[]))", ids=placed)
            with plane.uow() as uow:
                accounting.post(uow, _keys(placed))
        running_now = _attempts(plane, "running")
        if running_now:
            plane.do("UPDATE attempt SET state = 'stopping' WHERE workload_id = ANY(CAST(:ids AS uuid[]))",
                     ids=running_now)  # fmt: skip
            with plane.uow() as uow:
                _settle(uow, plane, running_now)
            plane.do("UPDATE attempt SET state = 'ended', outcome = 'succeeded', ended_at = now()"
                     " WHERE workload_id = ANY(CAST(:ids AS uuid[]))", ids=running_now)  # fmt: skip
            plane.do("UPDATE workload SET state = 'succeeded', finished_at = now()"
                     " WHERE id = ANY(CAST(:ids AS uuid[]))", ids=running_now)  # fmt: skip
        if not placed and not running_now:
            over.wait(0.005)


def _settle(uow: UnitOfWork, plane: Plane, gangs: list[str]) -> None:
    pods = plane.rows("SELECT id FROM pod WHERE workload_id = ANY(CAST(:ids AS uuid[]))", ids=gangs)
    accounting.settle(uow, _keys(gangs), Proof.TOMBSTONE_ACK)
    uow.attempts.release_holds([pod.id for pod in pods])
    uow.wake_pool(plane.pool)


def _attempts(plane: Plane, state: str) -> list[str]:
    return [
        str(row.id) for row in plane.rows("SELECT workload_id AS id FROM attempt WHERE state = :state", state=state)
    ]


def _keys(gangs: list[str]) -> list[AttemptKey]:
    return [AttemptKey(WorkloadId(gang), AttemptNumber(1)) for gang in gangs]


def _lock_waits(plane: Plane) -> list[float]:
    """Seconds of each statement that locks accounts or counters: at least as long as it waited."""
    waits: list[float] = []
    began: dict[int, float] = {}

    @event.listens_for(plane.engine, "before_cursor_execute")
    def before(_connection: object, cursor: DBAPICursor, statement: str, *_: object) -> None:
        if "FOR NO KEY UPDATE" in statement:
            began[id(cursor)] = time.perf_counter()

    @event.listens_for(plane.engine, "after_cursor_execute")
    def after(_connection: object, cursor: DBAPICursor, *_: object) -> None:
        if (at := began.pop(id(cursor), None)) is not None:
            waits.append(time.perf_counter() - at)

    return waits


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)
