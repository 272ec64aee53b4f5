"""Probes of workers, planners and beats: what each says while all is well, while Postgres is away, while it hangs."""

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.bootstrap import Container, build_container
from controlplane.embedded.home import free_port
from controlplane.workers import health
from controlplane.workers.sweeper import Sweeper
from tests.services.planes import NOBODY
from tests.support.api import settings_for
from tests.support.databases import Database
from tests.support.probing import probe
from tests.support.waiting import eventually
from tests.workers.processes import workers

START_SECONDS = 30
HOST = "127.0.0.1"
POD_GRACE_SECONDS = 30  # helm/controlplane gives this much


@pytest.fixture
def container(database: Database, valkey: str, tmp_path: Path) -> Iterator[Container]:
    container = build_container(settings_for(database, valkey, tmp_path))
    yield container
    container.close()


def asked(port: int, path: str) -> tuple[int, str]:
    return probe(f"http://{HOST}:{port}{path}")


@pytest.mark.parametrize("role", ["worker", "planner", "beat"])
def test_a_process_that_reaches_the_database_is_alive_and_ready_and_ends_well_within_its_pods_grace(
    role: str, database: Database, valkey: str, tmp_path: Path
) -> None:
    port = free_port()
    with workers(database, valkey, tmp_path, health_port=str(port), health_host=HOST) as started:
        process = started.start(role)
        eventually(lambda: asked(port, "/readyz") == (200, "ok\n"), within=START_SECONDS, what=f"a ready {role}")
        assert asked(port, "/livez") == (200, "ok\n")
        assert "muster_due_rows_swept_total" in asked(port, "/metrics")[1]
        assert asked(port, "/anything")[0] == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(POD_GRACE_SECONDS - 5) == 0, started.log()


def test_without_its_database_a_process_is_alive_and_not_ready(database: Database, tmp_path: Path) -> None:
    port = free_port()
    nowhere = replace(database, url=f"postgresql://nobody@{HOST}:{free_port()}/none")
    with workers(nowhere, NOBODY, tmp_path, health_port=str(port)) as started:
        started.start("worker")
        eventually(lambda: "sweep failed" in started.log(), within=START_SECONDS, what="a sweep that failed")
        assert asked(port, "/livez")[0] == 200
        assert asked(port, "/readyz") == (503, "the database has not been reached yet\n")


def test_a_database_that_went_away_is_told_with_the_seconds(container: Container) -> None:
    sweeper = Sweeper(container, "one", "worker")
    sweeper.sweep()
    with health.answering(HOST, free_port(), sweeper, silent_seconds_max=0) as port:
        status, text = asked(port, "/readyz")
    assert status == 503
    assert text.startswith("the database was last reached")


def test_a_planner_that_does_not_plan_is_not_alive(container: Container) -> None:
    sweeper = Sweeper(container, "one", "planner", makes_progress=lambda: False)
    sweeper.start()
    with health.answering(HOST, free_port(), sweeper, silent_seconds_max=15) as port:
        assert asked(port, "/livez")[0] == 503
    sweeper.stop()


def test_without_a_port_nobody_listens(container: Container) -> None:
    with health.answering(HOST, 0, Sweeper(container, "one", "worker"), silent_seconds_max=15) as port:
        assert port == 0
