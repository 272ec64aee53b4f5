"""Figure A: gangs per second from pending rows to durable decisions; C: the same on a quarter of the fleet.

The planner, the commit and Postgres (fsync on) are the product's; the fleet is rows. A round is 1,000 pending gangs and
the end of the oldest ones, so many that a tenth of the fleet stays free; both happen at once, as agents tell of ends
while a planner plans. A round's time is from its start to the later of its last commits. Beside it, on the same state,
the naive baseline plans the same gangs.
"""

import json
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controlplane.core.facts.ledger import AttemptKey, Proof
from controlplane.core.ids import AttemptNumber, WorkloadId
from controlplane.embedded.postgres import Postgres
from controlplane.embedded.servers import running
from controlplane.services import accounting
from controlplane.services.overlap import Overlap
from controlplane.services.scheduling import Step
from controlplane.workers.garbage import collect_rarely
from tests.bench import naive
from tests.bench.figures import Result, at_least
from tests.bench.fleets import DEVICES, LOADS, NODES_PER_CLUSTER, Load, add_fleet, add_gangs, add_queues
from tests.bench.measuring import Cpu, levels_reached, peak_rss_mib
from tests.services.planes import Plane
from tests.support import databases

CLUSTERS, FEW_CLUSTERS, MANY_CLUSTERS = 12, 3, 48
GANGS = 1_000
ROUNDS = 5
FILLED_AT_ONCE = 1_000
OCCUPIED_PERMILLE = 750
FULL_PERMILLE = 900
BATCH = 500  # admissions per cycle: the next is planned while one commits
SEED = 7
NAIVE_GANGS = 100
COSTS = ("cpu_planner_ms_per_1000", "cpu_postgres_ms_per_1000")
TARGET = at_least(3_000)


def placement() -> list[Result]:
    """A under the first load, and C: two fleets, round by round in turn."""
    with _server() as postgres, _bench(postgres, CLUSTERS) as large, _bench(postgres, FEW_CLUSTERS) as small:
        pairs = [(large.round(), small.round()) for _ in range(ROUNDS)]
        rates = [large.told(one for one, _ in pairs), small.told(one for _, one in pairs)]
        ratio = round(rates[0].value / rates[1].value, 3)
        costs = [sum(cost for name, cost in one.parameters.items() if name in COSTS) for one in rates]
        told = {"large": rates[0].value, "small": rates[1].value, "cpu_ratio": round(costs[1] / costs[0], 3)}
        c = Result("C", ratio, "", at_least(0.9), told)
        return [Result("A", rates[0].value, "gangs/s", TARGET, rates[0].parameters), c]


def other_loads() -> list[Result]:
    """A under the second and the third load."""
    results = []
    for name in ("second", "third"):
        with _server() as postgres, _bench(postgres, CLUSTERS, LOADS[name]) as bench:
            told = bench.told([bench.round() for _ in range(ROUNDS)])
            results.append(Result(f"A-{name}", told.value, "gangs/s", None, told.parameters))
    return results


def large_fleet() -> list[Result]:
    """A on four times the fleet: 393,216 GPUs."""
    with _server() as postgres, _bench(postgres, MANY_CLUSTERS) as bench:
        told = bench.told([bench.round() for _ in range(ROUNDS)])
        return [Result("A-large", told.value, "gangs/s", None, told.parameters)]


@dataclass(frozen=True, slots=True)
class Round:
    """What a round took and came to."""

    seconds: float
    admitted: int
    release: float
    cpu: Cpu
    naive: float


@dataclass(frozen=True, slots=True)
class Told:
    """A figure and what belongs to it."""

    value: float
    parameters: dict[str, Any]


@dataclass(slots=True)
class Bench:
    """One filled fleet and its planner."""

    plane: Plane
    postgres: Postgres
    queues: list[int]
    total: int
    load: Load
    overlap: Overlap
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    levels: dict[str, object] = field(default_factory=dict)

    def fill(self) -> None:
        """Place gangs until three quarters of the fleet are held, and let the load's others wait."""
        held = 0
        while held * 1000 < self.total * OCCUPIED_PERMILLE:
            held += add_gangs(self.plane, self.queues, FILLED_AT_ONCE, self.chance, self._feasible())
            self.plan()
        self.plane.do("ANALYZE")  # autovacuum would have, long before a fleet is this full
        if self.load.pending > GANGS:
            add_gangs(self.plane, self.queues, self.load.pending - GANGS, self.chance, self.load)
            self.plan()

    def plan(self) -> None:
        """Untimed, until nothing more can be placed."""
        while self.overlap.run(50, lambda _: True) is Step.AGAIN:
            pass

    def round(self) -> Round:
        """Submit, then place and release at once."""
        demand = add_gangs(self.plane, self.queues, GANGS, self.chance, self.load)
        release = _release(self.plane, _held(self.plane) + demand - self.total * FULL_PERMILLE // 1000)
        asked = self.plane.rows(
            """SELECT replicas, devices, flavors ->> 0 AS flavor FROM workload JOIN pod_set ON workload_id = workload.id
               WHERE state = 'pending' AND topology_mode <> 'required' ORDER BY submitted_at DESC LIMIT :most""",
            most=NAIVE_GANGS,
        )
        baseline, levels = naive.measure(self.plane, naive.gangs_of(asked))
        before, [moment] = _live(self.plane), self.plane.rows("SELECT clock_timestamp() AS now")
        released: list[float] = []
        thread = threading.Thread(target=lambda: released.append(release.run()))
        cpu, started = Cpu.now(self.postgres), time.perf_counter()
        thread.start()
        last = started

        def told(step: Step) -> bool:
            nonlocal last
            last = time.perf_counter() if step is Step.AGAIN else last
            return True

        while self.overlap.run(1_000, told) is Step.AGAIN or thread.is_alive():
            thread.join(0.001)  # ends that come wake it
        thread.join()
        self.overlap.run(1_000, told)
        spent = Cpu.now(self.postgres).since(cpu)
        seconds = max(last - started, released[0])
        admitted = _live(self.plane) - before
        self.levels = {"levels": levels_reached(self.plane, moment.now), "naive_levels": levels}
        self.plan()  # what came too late for the release, not timed
        return Round(seconds, admitted, released[0], spent, baseline)

    def told(self, rounds: Iterator[Round] | list[Round]) -> Told:
        """The median rate, with what it cost."""
        done = list(rounds)
        gangs = sum(each.admitted for each in done)
        spent = [sum(each.cpu.planner for each in done), sum(each.cpu.postgres for each in done)]
        per_thousand = {name: round(1e6 * seconds / gangs) for name, seconds in zip(COSTS, spent, strict=True)}
        parameters: dict[str, Any] = {
            "gpus": self.total, "load": self.load.name, "pending": self.load.pending, "batch": BATCH,
            "rounds": len(done), "seed": SEED, "fsync": True, "overlapped": True,
            "admitted": [each.admitted for each in done],
            "seconds": [round(each.seconds, 3) for each in done], "release": [round(each.release, 3) for each in done],
            "naive_gangs_per_s": round(statistics.median(each.naive for each in done)), "peak_rss_mib": peak_rss_mib(),
            **per_thousand, **self.levels,
        }  # fmt: skip
        return Told(round(statistics.median(each.admitted / each.seconds for each in done)), parameters)

    def _feasible(self) -> Load:
        return LOADS["first"] if self.load.infeasible else self.load


@dataclass(slots=True)
class Release:
    """The end of the oldest gangs: accounts, reservations and holds by the product's path."""

    plane: Plane
    keys: list[AttemptKey]
    pods: list[int]

    def run(self) -> float:
        """Seconds that it took, with what an agent's word makes of their Attempts."""
        started = time.perf_counter()
        if self.keys:
            with self.plane.uow() as uow:
                accounting.void(uow, self.keys, Proof.TOMBSTONE_ACK)
                uow.attempts.release_holds(self.pods)
            self.plane.do("UPDATE attempt SET state = 'ended', outcome = 'voided', ended_at = now()"
                          " WHERE state = 'stopping' AND workload_id = ANY(CAST(:ids AS uuid[]))",
                          ids=[key.workload for key in self.keys])  # fmt: skip
            self.plane.wake()
        return time.perf_counter() - started


def _release(plane: Plane, devices: int) -> Release:
    """Of the oldest gangs so many that this many devices are free."""
    rows = plane.rows(
        """SELECT workload_id, attempt FROM (
               SELECT workload_id, attempt,
                      sum(amount) OVER (ORDER BY placed_at, workload_id, attempt) - amount AS before
               FROM attempt JOIN reservation USING (workload_id, attempt) WHERE attempt.state = 'placed') AS oldest
           WHERE before < :devices""",
        devices=devices,
    )
    keys = [AttemptKey(WorkloadId(str(row.workload_id)), AttemptNumber(row.attempt)) for row in rows]
    ids = [key.workload for key in keys]
    pods = plane.rows(
        """SELECT hold.pod_id FROM hold JOIN unnest(CAST(:ids AS uuid[])) AS one (id) ON hold.workload_id = one.id
           WHERE hold.released_at IS NULL""",
        ids=ids,
    )
    plane.do("UPDATE attempt SET state = 'stopping' WHERE state = 'placed' AND workload_id = ANY(CAST(:ids AS uuid[]))",
             ids=ids)  # fmt: skip
    return Release(plane, keys, [row.pod_id for row in pods])


@contextmanager
def _server() -> Iterator[Postgres]:
    """A server of its own, that keeps what it has committed; this process as a planner's is."""
    collect_rarely()
    ours = {name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), ours, durable=True) as servers:
        assert servers.postgres is not None
        databases.make_template(servers.postgres)
        yield servers.postgres


@contextmanager
def _bench(postgres: Postgres, clusters: int, load: Load = LOADS["first"]) -> Iterator[Bench]:
    plane = Plane(databases.clone(postgres, databases.TEMPLATE))
    add_fleet(plane, clusters, load)
    spec = json.dumps({"admissions_max": BATCH, "reclaim": False})  # nobody is here who would stop
    plane.do("INSERT INTO policy (pool_id, version, spec, created_at, created_by)"
             " VALUES (:pool, 2, CAST(:spec AS jsonb), now(), 'bench')", pool=plane.pool, spec=spec)  # fmt: skip
    plane.do("UPDATE pool SET policy_version = 2 WHERE id = :pool", pool=plane.pool)
    overlap = Overlap(plane.planner())
    try:
        total = clusters * NODES_PER_CLUSTER * DEVICES
        bench = Bench(plane, postgres, add_queues(plane, load), total, load, overlap)
        bench.fill()
        yield bench
    finally:
        overlap.close()
        plane.close()


def _held(plane: Plane) -> int:
    return int(plane.rows("SELECT sum(held) AS held FROM node_flavor")[0].held)


def _live(plane: Plane) -> int:
    return int(plane.rows("SELECT count(*) AS live FROM attempt WHERE state = 'placed'")[0].live)
