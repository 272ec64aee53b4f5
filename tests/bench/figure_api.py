"""How fast one API process is: submits, the first page of a long list, a dry run of many Queues.

The process, Postgres (fsync on) and Valkey are the product's; no planner runs, so that what is submitted stays pending.
The load comes from this process, on the same two cores.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from sqlalchemy import text

from controlplane.bootstrap import first_admin_token
from controlplane.embedded.home import free_port
from controlplane.embedded.servers import running
from tests.bench import loads
from tests.bench.figures import Result, at_least, at_most
from tests.bench.fleets import add_fleet
from tests.services.planes import H100, Plane
from tests.support import databases
from tests.support.api import settings_for
from tests.support.processes import cpu_seconds
from tests.support.waiting import eventually

CLUSTERS = 12
TEAMS = 200
SECONDS = 10.0
CONNECTIONS = 16
RATE = 100
LISTED = 100_000
PAGES = 50
QUEUES = 1_000
RUNS = 5


@dataclass(frozen=True, slots=True)
class Served:
    """One API process on a database of its own."""

    plane: Plane
    url: str
    token: str
    pid: int

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False, verify=False)


def submits() -> list[Result]:
    """Submits per second of one process, as fast as it goes; then the p99 at 100 a second. 98,304 GPUs, 200 leaves."""
    with _served() as served:
        ask = _gang(served.token)
        loads.as_fast_as_it_goes(served.url, ask, CONNECTIONS, 2.0)  # warm
        before = cpu_seconds(served.pid)
        fast = loads.as_fast_as_it_goes(served.url, ask, CONNECTIONS, SECONDS)
        cpu = cpu_seconds(served.pid) - before
        steady = loads.at_a_rate(served.url, ask, RATE, SECONDS)
    assert set(fast.statuses) | set(steady.statuses) == {201}, (fast.statuses, steady.statuses)
    parameters = {
        "gpus": 98_304, "leaves": TEAMS, "connections": CONNECTIONS, "seconds": SECONDS, "fsync": True,
        "p50_ms": round(fast.percentile(0.5) * 1e3, 1), "p99_ms": round(fast.percentile(0.99) * 1e3, 1),
        "api_cpu_ms_each": round(cpu / len(fast.seconds) * 1e3, 2),
    }  # fmt: skip
    at_rate = {"rate": RATE, "seconds": SECONDS, "p50_ms": round(steady.percentile(0.5) * 1e3, 1)}
    return [
        Result("submits", round(len(fast.seconds) / fast.took), "submits/s", at_least(300), parameters),
        Result("submit-p99", round(steady.percentile(0.99) * 1e3, 1), "ms", at_most(100), at_rate),
    ]


def list_of_workloads() -> list[Result]:
    """The first page (100) of 100,000 Workloads, median of 50; a page in the middle for comparison."""
    with _served() as served, served.client() as client:
        _add_workloads(served.plane)
        first = _milliseconds(client, "/api/v1/workloads?limit=100")
        cursor = client.get("/api/v1/workloads?limit=500").json()["next"]
        later = _milliseconds(client, f"/api/v1/workloads?limit=100&cursor={cursor}")
    parameters = {"workloads": LISTED, "pages": PAGES, "second_page_ms": later}
    return [Result("list-first-page", first, "ms", at_most(50), parameters)]


def dry_run() -> list[Result]:
    """`apply` of 1,000 Queues with `dryRun`, as sent by one client, median of five: all new, then all changed."""
    with _served() as served, served.client() as client:
        new = [_timed_apply(client, _queues(weight=1), dry=True) for _ in range(RUNS)]
        _timed_apply(client, _queues(weight=1), dry=False)
        changed = [_timed_apply(client, _queues(weight=2), dry=True) for _ in range(RUNS)]
    parameters = {"queues": QUEUES, "runs": RUNS, "all_new_s": round(statistics.median(new), 2)}
    return [Result("apply-dry-run", round(statistics.median(changed), 2), "s", at_most(2.0), parameters)]


def cli_start() -> list[Result]:
    """`muster --help`, median of eleven."""
    seconds = []
    for _ in range(11):
        began = time.perf_counter()
        subprocess.run([Path(sys.executable).parent / "muster", "--help"], check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    return [Result("cli-start", round(statistics.median(seconds), 3), "s", at_most(0.25), {"runs": 11})]


@contextmanager
def _served() -> Iterator[Served]:
    ours = {name: text for name, text in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), ours, durable=True) as servers:
        assert servers.postgres is not None
        databases.make_template(servers.postgres)
        database = databases.clone(servers.postgres, databases.TEMPLATE)
        plane = Plane(database)
        add_fleet(plane, CLUSTERS)
        total = CLUSTERS * 8_192
        plane.queue("org", nominal=total)
        for number in range(TEAMS):
            plane.queue(f"org/team-{number}", nominal=total // TEAMS)
        plane.do("UPDATE queue SET namespace = 'org' WHERE path = 'org'")
        plane.do("ANALYZE")
        secrets = Path(folder) / "signing"
        secrets.mkdir(mode=0o700)
        redis = servers.environment()["REDIS_URL"]
        settings = settings_for(database, redis, secrets)
        token = first_admin_token(settings)
        people, agents = free_port(), free_port()
        given = {
            **ours, **database.environment(), "REDIS_URL": redis, "MUSTER_SECRETS_DIR": str(secrets),
            "MUSTER_API_PORT": str(people), "MUSTER_AGENT_PORT": str(agents),
            "MUSTER_REQUESTS_PER_SECOND": "100000", "MUSTER_REQUESTS_BURST": "100000",  # one principal asks for all
        }  # fmt: skip
        process = subprocess.Popen([sys.executable, "-m", "controlplane.api.serve"], env=given)
        try:
            url = f"http://127.0.0.1:{people}"
            eventually(lambda: _alive(url), within=60, what="the API")
            yield Served(plane, url, token, process.pid)
        finally:
            process.terminate()
            process.wait(timeout=20)
            plane.close()


def _alive(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", trust_env=False, timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def _gang(token: str) -> loads.Ask:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.org/train:1"}]}}
    run = uuid.uuid4().hex[:8]

    def ask(number: int) -> bytes:
        document = {
            "apiVersion": "muster.dev/v1",
            "kind": "Workload",
            "metadata": {"name": f"gang-{run}-{uuid.uuid4().hex[:12]}", "labels": {"project": "llama"}},
            "spec": {
                "queue": f"org/team-{number % TEAMS}",
                "podSets": [
                    {"name": "main", "replicas": 16, "devices": 8, "flavors": [{"name": H100}], "template": template}
                ],
            },
        }
        return loads.request("POST", "/api/v1/workloads", token, json.dumps(document).encode())

    return ask


def _add_workloads(plane: Plane) -> None:
    with plane.engine.begin() as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(
            text("""
                INSERT INTO workload (id, name, queue_id, pool_id, owner, priority, state, kind, spec, shape,
                    submitted_at, state_changed_at)
                SELECT gen_random_uuid(), 'gang-' || number, queue.id, :pool, 'ann', 500, 'pending', 'Workload',
                    '{}', 'bench', now() - number * interval '1 second', now()
                FROM generate_series(1, CAST(:count AS int)) AS number
                JOIN queue ON queue.path = 'org/team-' || (number % :teams)"""),
            {"pool": plane.pool, "count": LISTED, "teams": TEAMS},
        )
        connection.execute(
            text("""
                INSERT INTO pod_set (workload_id, name, position, replicas, devices, flavors)
                SELECT id, 'main', 0, 16, 8, CAST(:flavors AS jsonb) FROM workload"""),
            {"flavors": json.dumps([H100])},
        )
    plane.do("ANALYZE")


def _milliseconds(client: httpx.Client, path: str) -> float:
    seconds = []
    for _ in range(PAGES):
        began = time.perf_counter()
        answer = client.get(path)
        seconds.append(time.perf_counter() - began)
        assert answer.status_code == 200, answer.text
    return round(statistics.median(seconds) * 1e3, 1)


def _queues(weight: int) -> bytes:
    roots = [{"name": "bench", "spec": {"quotas": [{"flavor": H100, "nominal": 0}]}}]
    leaves = [
        {
            "name": f"bench/team-{number}",
            "spec": {"weight": weight, "namespace": f"ns-{number}", "quotas": [{"flavor": H100, "nominal": 0}]},
        }
        for number in range(QUEUES - 1)
    ]
    documents = [
        {"apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": each["name"]}, "spec": each["spec"]}
        for each in [*roots, *leaves]
    ]
    return json.dumps(documents).encode()


def _timed_apply(client: httpx.Client, body: bytes, *, dry: bool) -> float:
    began = time.perf_counter()
    answer = client.post(
        "/api/v1/apply", params={"dryRun": "true"} if dry else {}, content=body,
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    seconds = time.perf_counter() - began
    assert answer.status_code == 200, answer.text
    return seconds
