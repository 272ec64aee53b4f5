"""How long `muster plan -f` takes for a described world of a thousand nodes: the whole process, from start to exit."""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.figures import Result, at_most

CLUSTERS, NODES_EACH, TEAMS, RUNNING, WAITING = 4, 250, 20, 100, 200
SIZES = (1, 1, 1, 2, 4, 8, 16, 64)  # pods of a gang
RUNS = 5
SEED = 7
FLAVOR = "nvidia-h100-80gb"
Document = dict[str, Any]


def plan_of_a_thousand_nodes() -> list[Result]:
    """Median of five whole processes; the longest of them, CPU seconds and what was planned are in the parameters."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "world.yaml"
        file.write_text("".join(f"---\n{json.dumps(each)}\n" for each in world()), encoding="utf-8")
        command = [str(Path(sys.executable).parent / "muster"), "plan", "-f", str(file), "-o", "json"]
        seconds, before = [], os.times()
        for _ in range(RUNS):
            began = time.perf_counter()
            done = subprocess.run(command, check=True, capture_output=True)
            seconds.append(time.perf_counter() - began)
        after = os.times()
    (pool,) = json.loads(done.stdout)["pools"]
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    parameters = {
        "nodes": CLUSTERS * NODES_EACH, "running": RUNNING, "waiting": WAITING, "starts": len(pool["starts"]),
        "waits": len(pool["waits"]), "leaves": len(pool["leaves"]), "longest": round(max(seconds), 2),
        "cpu_seconds": round(cpu / RUNS, 2), "runs": RUNS,
    }  # fmt: skip
    return [Result("plan-1000", round(statistics.median(seconds), 2), "s", at_most(1.0), parameters)]


def world() -> list[Document]:
    """The same in every run: half of the fleet's racks are taken by gangs, and others of all sizes wait."""
    chance = random.Random(SEED)
    racks = [{"level": "block", "of": 64}, {"level": "rack", "of": 16}]
    group = {
        "count": NODES_EACH, "devices": {"flavor": FLAVOR, "count": 8}, "cpu": 192, "memory": "2Ti", "topology": racks,
    }  # fmt: skip
    fleet = [_document("Cluster", f"c{number}", {"nodes": [group]}) for number in range(CLUSTERS)]
    tree = [_document("Queue", "lab", {"quotas": [{"flavor": FLAVOR}]})]
    quota = {"flavor": FLAVOR, "nominal": CLUSTERS * NODES_EACH * 8 // TEAMS}
    tree += [_document("Queue", f"lab/t{number}", {"quotas": [quota]}) for number in range(TEAMS)]
    free = {number: list(range(NODES_EACH)) for number in range(CLUSTERS)}
    return [
        _document("World", "bench", {"now": "2026-03-01T12:00:00Z"}), *fleet, *tree,
        *(_runs(number, free, chance) for number in range(RUNNING)),
        *(_waits(number, chance) for number in range(WAITING)),
    ]  # fmt: skip


def _runs(number: int, free: dict[int, list[int]], chance: random.Random) -> Document:
    cluster = number % CLUSTERS
    nodes = [free[cluster].pop() for _ in range(chance.choice((1, 2, 4, 8)))]
    place = {"cluster": f"c{cluster}", "nodes": {f"c{cluster}-{node}": 1 for node in nodes}}
    spec = _asks(len(nodes), 8, chance)
    return _document("Running", f"r{number}", {**spec, "placement": [place], "startedAt": "2026-03-01T09:00:00Z"})


def _waits(number: int, chance: random.Random) -> Document:
    return _document("Workload", f"w{number}", _asks(chance.choice(SIZES), chance.choice((1, 2, 4, 8, 8)), chance))


def _asks(replicas: int, devices: int, chance: random.Random) -> Document:
    pods = {"name": "main", "replicas": replicas, "devices": devices, "flavors": [{"name": FLAVOR}]}
    return {"queue": f"lab/t{chance.randrange(TEAMS)}", "podSets": [pods]}


def _document(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": "muster.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
