"""Health, metrics, and what the plane tells of itself, over real HTTP."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio.to_thread
import httpx
import pytest
from starlette.types import ASGIApp

from controlplane.api.app import create_agent_app, create_app
from controlplane.bootstrap import Container, build_container
from controlplane.embedded.home import free_port
from controlplane.services.ports.unit_of_work import run
from tests.api.bodies import workload
from tests.support.api import Api, serving, settings_for
from tests.support.databases import ROOT, Database
from tests.support.probing import probe
from tests.support.waiting import eventually


def beat(api: Api, *kinds: str) -> None:
    """What a worker's or planner's sweep writes."""
    for kind in kinds:
        run(api.container.uow_factory, lambda uow, kind=kind: uow.planning.heartbeat(f"{kind}-1", kind))  # type: ignore[misc]  # mypy cannot infer a lambda with a default


def test_ready_means_that_the_whole_path_works(api: Api) -> None:
    client = api.client("")
    assert client.get("/healthz").text == "ok"
    before = client.get("/readyz")
    assert before.status_code == 503
    assert before.json()["parts"] == {
        "database": "ok", "redis": "ok", "worker": "none has started yet", "planner": "none has started yet",
    }  # fmt: skip
    beat(api, "worker", "planner")
    after = client.get("/readyz")
    assert (after.status_code, after.json()["ready"]) == (200, True)


@pytest.mark.parametrize("make", [create_app, create_agent_app], ids=["people", "agents"])
async def test_a_process_whose_threads_all_wait_for_a_silent_postgres_is_alive(
    make: Callable[[Container], ASGIApp], database: Database, valkey: str, tmp_path: Path
) -> None:
    """Else every replica would be restarted, which mends nothing, just when the database has trouble."""
    container = build_container(settings_for(database, valkey, tmp_path))
    threads = anyio.to_thread.current_default_thread_limiter()
    waiting = [object() for _ in range(int(threads.total_tokens))]
    for each in waiting:
        threads.acquire_on_behalf_of_nowait(each)
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(make(container)), base_url="http://api") as client:
            async with asyncio.timeout(5):
                assert (await client.get("/healthz")).text == "ok"
    finally:
        for each in waiting:
            threads.release_on_behalf_of(each)
        container.close()


def test_not_ready_while_redis_is_away_and_people_are_served_all_the_same(database: Database, tmp_path: Path) -> None:
    with serving(settings_for(database, f"redis://127.0.0.1:{free_port()}/0", tmp_path)) as api:
        beat(api, "worker", "planner")
        answer = api.client("").get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["parts"]["redis"].startswith("no answer")
        assert api.client().get("/api/v1/queues").status_code == 200


def test_not_ready_while_nothing_makes_progress(api: Api) -> None:
    beat(api, "worker", "planner")
    with api.container.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE process_heartbeat SET at = at - interval '1 hour' WHERE kind = 'planner'")
    answer = api.client("").get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["parts"]["planner"].startswith("no progress for 36")


def test_a_process_that_reaches_the_database_can_serve_whatever_else_is_away(
    database: Database, tmp_path: Path
) -> None:
    with serving(settings_for(database, f"redis://127.0.0.1:{free_port()}/0", tmp_path)) as api:
        for url in (api.url, api.agent_url):
            answer = httpx.get(f"{url}/readyz/process", trust_env=False)
            assert (answer.status_code, answer.json()["parts"]) == (200, {"database": "ok"})


def test_a_process_serves_on_a_newer_schema_and_not_on_an_older_one(api: Api) -> None:
    def at(revision: str) -> tuple[int, str]:
        with api.container.engine.begin() as connection:
            connection.exec_driver_sql("RESET ROLE")
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = %s", (revision,))
        answer = api.client("").get("/readyz/process")
        return answer.status_code, answer.json()["parts"]["database"]

    assert at("9999") == (200, "ok")
    status, words = at("0001")
    assert status == 503
    assert words.startswith("the schema is at 0001, this code wants ")


def test_metrics_count_requests_by_route(tree: httpx.Client) -> None:
    tree.post("/api/v1/workloads", json=workload())
    tree.get("/api/v1/workloads/llama")
    text = tree.get("/metrics").text
    assert 'muster_workloads_submitted_total{kind="Workload"}' in text
    assert 'muster_http_requests_total{route="/api/v1/workloads/{reference}",status="200"}' in text
    assert 'muster_http_seconds_count{route="/api/v1/workloads/{reference}"}' in text


def test_a_healthy_plane_has_nothing_for_the_doctor(tree: httpx.Client) -> None:
    tree.post("/api/v1/workloads", json=workload())
    assert tree.get("/api/v1/doctor").json() == {"healthy": True, "violations": []}


def test_the_schema_of_each_kind_is_shown(admin: httpx.Client) -> None:
    for kind in ("Workload", "Queue", "Cluster", "Pool", "Policy", "Flavor", "Window"):
        schema = admin.get(f"/api/v1/schema/{kind}").json()
        assert schema["properties"]["kind"]["const"] == kind
    assert "podSets" in json.dumps(admin.get("/api/v1/schema/Workload").json())
    assert admin.get("/api/v1/schema/Secret").status_code == 404


def test_lists_of_a_plane_that_has_done_nothing_are_empty(admin: httpx.Client) -> None:
    for path in ("/api/v1/cycles", "/api/v1/nodes", "/api/v1/devices", "/api/v1/clusters"):
        assert admin.get(path).json() == {"items": [], "next": None}, path
    assert admin.get("/api/v1/rebalance").status_code == 404


def test_the_process_serves_both_listeners_and_ends_when_asked(database: Database, valkey: str, tmp_path: Path) -> None:
    people, agents = free_port(), free_port()
    environment = {
        **os.environ, **database.environment(), "REDIS_URL": valkey, "MUSTER_API_PORT": str(people),
        "MUSTER_AGENT_PORT": str(agents), "MUSTER_SECRETS_DIR": str(tmp_path), "MUSTER_API_HOST": "127.0.0.1",
        "MUSTER_AGENT_HOST": "127.0.0.1", "MUSTER_LOG_LEVEL": "INFO", "MUSTER_DATABASE_POOL_SIZE": "4",
    }  # fmt: skip
    process = subprocess.Popen([sys.executable, "-m", "controlplane.api.serve"], cwd=ROOT, env=environment)
    try:
        for port in (people, agents):
            eventually(lambda port=port: _answers(port), within=30, what=f"/healthz on {port}")  # type: ignore[misc]  # as above
        assert httpx.get(f"http://127.0.0.1:{people}/api/v1/queues", trust_env=False).status_code == 401
        assert httpx.get(f"http://127.0.0.1:{agents}/api/v1/queues", trust_env=False).status_code == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.wait(timeout=10)


def _answers(port: int) -> bool:
    return probe(f"http://127.0.0.1:{port}/healthz") == (200, "ok")


def test_the_audit_is_asked_by_kinds_that_there_are_and_by_plain_names(tree: httpx.Client) -> None:
    refused = tree.get("/api/v1/audit", params={"kind": "nonsense"})
    assert (refused.status_code, refused.json()["type"]) == (400, "/problems/invalid-filter")
    assert "there is no kind nonsense; there are attempt, cluster," in refused.json()["detail"]
    whole = tree.get("/api/v1/audit", params={"actor": "person:admin"}).json()["items"]
    assert whole
    assert tree.get("/api/v1/audit", params={"actor": "admin"}).json()["items"] == whole
    assert tree.get("/api/v1/audit", params={"actor": "service:admin"}).json()["items"] == []
