"""Figure A: gangs per second from pending rows to durable decisions, on 98,304 GPUs in 12 clusters.

The planner, the commit and Postgres (fsync on) are the product's; the fleet is rows. A round is 1,000 pending gangs;
before each, gangs that ended give back room (by the path of agents' reports) until a tenth of the fleet is free.
"""

import os
import random
import statistics
import tempfile
import time
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
OCCUPIED_PERMILLE = 750
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
    plans, commits, releases = [], [], []
    for _ in range(ROUNDS):
        add_gangs(plane, queues, GANGS, chance)
        planned, committed = _round(planner)
        plans.append(planned)
        commits.append(committed)
        releases.append(_release(plane))
    seconds = statistics.median(map(sum, zip(plans, commits, releases, strict=True)))
    parameters = {
        "gpus": total, "clusters": CLUSTERS, "pending": GANGS, "rounds": ROUNDS, "seed": SEED, "fsync": True,
        "plan_seconds": round(statistics.median(plans), 3), "commit_seconds": round(statistics.median(commits), 3),
        "release_seconds": round(statistics.median(releases), 3), "overlapped": False,
    }  # fmt: skip
    return [Result("A", round(GANGS / seconds), "gangs/s", TARGET, parameters)]


def _round(planner: Planner) -> tuple[float, float]:
    started = time.perf_counter()
    planned = planner.plan()
    between = time.perf_counter()
    assert planned is not None
    planner.take()
    step = planner.commit(planned)
    assert step is Step.AGAIN
    return between - started, time.perf_counter() - between


def _release(plane: Plane) -> float:
    """End the oldest gangs, as many as a round places: accounts, reservations and holds by the product's own path."""
    rows = plane.rows(
        "SELECT workload_id, attempt FROM attempt WHERE state = 'placed' ORDER BY placed_at, workload_id LIMIT :gangs",
        gangs=GANGS,
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
        held += add_gangs(plane, queues, GANGS, chance)
        planner.take()
        while planner.step() is Step.AGAIN:
            planner.take()
