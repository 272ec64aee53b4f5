"""Figure A: gangs per second from pending rows to durable decisions, on 98,304 GPUs in 12 clusters.

The planner, the commit and Postgres (fsync on) are the product's; the fleet is rows. A round is 1,000 pending gangs and
the end of the oldest ones, so many that a tenth of the fleet stays free. What counts is gangs admitted in the time that
planning, committing and releasing take one after the other.
"""

import os
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from controlplane.core.facts.ledger import AttemptKey, Proof
from controlplane.core.ids import AttemptNumber, WorkloadId
from controlplane.embedded.servers import running
from controlplane.services import accounting
from controlplane.services.scheduling import Planner, Step
from tests.bench.figures import Result, at_least
from tests.bench.fleets import DEVICES, NODES_PER_CLUSTER, add_fleet, add_gangs
from tests.services.planes import Plane
from tests.support import databases

CLUSTERS = 12
GANGS = 1_000
ROUNDS = 5
FILLED_AT_ONCE = 250
OCCUPIED_PERMILLE = 750
FULL_PERMILLE = 900
SEED = 7
TARGET = at_least(3_000)


def placement() -> list[Result]:
    """A as it stands, with what planning and committing take of it."""
    ours = {name: text for name, text in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), ours, durable=True) as servers:
        assert servers.postgres is not None
        databases.make_template(servers.postgres)
        plane = Plane(databases.clone(servers.postgres, databases.TEMPLATE))
        try:
            return _measure(plane)
        finally:
            plane.close()


def _measure(plane: Plane) -> list[Result]:
    chance = random.Random(SEED)
    add_fleet(plane, CLUSTERS)
    total = CLUSTERS * NODES_PER_CLUSTER * DEVICES
    plane.queue("org", nominal=total)
    queues = [plane.queue(f"org/team-{number}") for number in range(20)]
    planner = plane.planner()
    _fill(plane, planner, queues, total, chance)
    plane.do("ANALYZE")  # autovacuum would have, long before a fleet is this full
    rounds = [_round(plane, planner, queues, total, chance) for _ in range(ROUNDS)]
    medians = {name: round(statistics.median(getattr(each, name) for each in rounds), 3) for name in Round.__slots__}
    parameters = {
        "gpus": total, "clusters": CLUSTERS, "pending": GANGS, "rounds": ROUNDS, "seed": SEED, "fsync": True,
        "overlapped": False, **medians,
    }  # fmt: skip
    rate = statistics.median(each.admitted / (each.plan + each.commit + each.release) for each in rounds)
    return [Result("A", round(rate), "gangs/s", TARGET, parameters)]


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of each part, and how many gangs were admitted."""

    release: float
    plan: float
    commit: float
    admitted: int


def _round(plane: Plane, planner: Planner, queues: list[int], total: int, chance: random.Random) -> Round:
    demand = add_gangs(plane, queues, GANGS, chance)
    release = _release(plane, _held(plane) + demand - total * FULL_PERMILLE // 1000)
    before = _live(plane)
    planner.take()
    started = time.perf_counter()
    planned = planner.plan()
    between = time.perf_counter()
    assert planned is not None
    planner.take()
    committing = time.perf_counter()
    step = planner.commit(planned)
    ended = time.perf_counter()
    assert step is Step.AGAIN
    while planner.step() is Step.AGAIN:  # what was dropped, not timed
        planner.take()
    return Round(release, between - started, ended - committing, _live(plane) - before)


def _held(plane: Plane) -> int:
    return int(plane.rows("SELECT sum(held) AS held FROM node_flavor")[0].held)


def _live(plane: Plane) -> int:
    return int(plane.rows("SELECT count(*) AS live FROM attempt WHERE state = 'placed'")[0].live)


def _release(plane: Plane, devices: int) -> float:
    """End the oldest gangs, until so many devices are free: accounts, reservations and holds by the product's path."""
    rows = plane.rows(
        """SELECT workload_id, attempt FROM (
               SELECT workload_id, attempt, sum(amount) OVER (ORDER BY placed_at, workload_id) - amount AS before
               FROM attempt JOIN reservation USING (workload_id, attempt) WHERE attempt.state = 'placed') AS oldest
           WHERE before < :devices""",
        devices=devices,
    )
    keys = [AttemptKey(WorkloadId(str(row.workload_id)), AttemptNumber(row.attempt)) for row in rows]
    pods = plane.rows(
        """SELECT hold.pod_id FROM hold JOIN unnest(CAST(:ids AS uuid[])) AS one (id) ON hold.workload_id = one.id
           WHERE hold.released_at IS NULL""",
        ids=[key.workload for key in keys],
    )
    plane.do("UPDATE attempt SET state = 'stopping' WHERE workload_id = ANY(CAST(:ids AS uuid[]))",
             ids=[key.workload for key in keys])  # fmt: skip
    started = time.perf_counter()
    with plane.uow() as uow:
        accounting.void(uow, keys, Proof.TOMBSTONE_ACK)
        uow.attempts.release_holds([row.pod_id for row in pods])
    seconds = time.perf_counter() - started
    plane.do("UPDATE attempt SET state = 'ended', outcome = 'voided', ended_at = now()"
             " WHERE workload_id = ANY(CAST(:ids AS uuid[]))", ids=[key.workload for key in keys])  # fmt: skip
    return seconds


def _fill(plane: Plane, planner: Planner, queues: list[int], total: int, chance: random.Random) -> None:
    held = 0
    while held * 1000 < total * OCCUPIED_PERMILLE:
        held += add_gangs(plane, queues, FILLED_AT_ONCE, chance)
        planner.take()
        while planner.step() is Step.AGAIN:
            planner.take()
