"""The restore drill: a plane is backed up at work, goes on, is lost, and comes back from the page's commands."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from controlplane.embedded.postgres import Postgres
from controlplane.embedded.servers import running
from tests.operations import pages
from tests.operations.fleet import DEVICES, NODES, Fleet, Stream, a_gang, fleet
from tests.support import databases
from tests.support.databases import Database
from tests.support.folders import quick_folder
from tests.support.waiting import eventually

PLANE = ("api-1", "worker-1", "planner-1")
LONG = 1_000_000


@pytest.fixture
def other_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A new Postgres, which counts transactions from its own beginning, with an empty database."""
    ours = {name: text for name, text in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
    with quick_folder(tmp_path_factory.mktemp("other")) as folder, running(folder, ours, durable=False) as started:
        assert started.postgres is not None
        fresh = databases.clone(started.postgres, "template1")
        yield fresh
        violations = databases.found_by_doctor(fresh)
        assert not violations, "the doctor found:\n" + "\n".join(violations)


@pytest.mark.timeout(400)
def test_a_restored_plane_keeps_what_runs_starts_nothing_twice_and_sells_nothing_that_is_in_use(
    database: Database, other_server: Database, valkey: str, tmp_path: Path, postgres: Postgres
) -> None:
    backup, restore, status = pages.blocks("back-up-and-restore.md")
    shell = tmp_path / "shell"
    shell.mkdir()
    with fleet(tmp_path, database, valkey) as whole:
        for name in PLANE:
            whole.start(name)
        whole.serve_from("api-1")
        whole.open_queue()
        whole.add_cluster("east")
        for name, pods in (("kept", 1), ("ended-since", 1), ("blocks", 2)):
            submit(whole, name, pods)
            until(whole, name, "running")
        submit(whole, "started-since", 2)
        pages.typed(backup, shell, whole.environment(), postgres)

        whole.ask("POST", "/workloads/blocks/cancel")
        until(whole, "started-since", "running")
        whole.ask("POST", "/workloads/ended-since/cancel")
        until(whole, "ended-since", "cancelled")
        submit(whole, "unknown", 1)
        until(whole, "unknown", "running")

        for name in PLANE:
            whole.kill(name)
            del whole.programs[name]
        with redis.Redis.from_url(valkey) as client:
            client.flushdb()
        told = {**whole.environment(), "NEW_DATABASE_URL": other_server.url}
        (tmp_path / "secrets" / "directives.jwk").unlink()
        pages.typed(restore, shell, told, postgres)
        assert "to tell everything: east" in pages.typed(status, shell, told, postgres)
        whole.database = other_server
        for name in PLANE:
            whole.start(name)
        whole.serve_from("api-1")

        until_recovered(whole)
        whole.until_cluster("east", "ready")
        assert states(whole) == {
            "kept": "running",
            "ended-since": "pending",
            "blocks": "pending",
            "started-since": "pending",
        }
        assert [each["attempt"] for each in whole.ask("GET", "/workloads/kept")["attempts"]] == [1]
        # All of it is in use: by what is known, and by what is not. So nothing is sold, and nothing was started.
        eventually(lambda: free(whole) == 0, 30, f"nothing free; {whole.said()}")
        held = whole.ask("GET", "/clusters/east")["flavors"][0]["held"]
        assert (held, NODES * DEVICES) == (DEVICES, 4 * DEVICES)
        for name in ("ended-since", "blocks"):
            whole.ask("POST", f"/workloads/{name}/cancel")
        with Stream(whole) as stream:  # it works on: audit, idempotency, pages
            stream.until_accepted(2)
        whole.check()


def submit(whole: Fleet, name: str, pods: int) -> None:
    whole.ask("POST", "/workloads", a_gang(name, pods, run_seconds=LONG), key=uuid.uuid4().hex)


def states(whole: Fleet) -> dict[str, str]:
    def settled() -> dict[str, str] | None:
        found = whole.states()
        assert not {"reserved", "stopping"} & set(found.values()), f"{found}; {whole.said()}"
        return found

    found = eventually(settled, 60, "states that last", pause=0.3)
    assert found
    return found


def until(whole: Fleet, name: str, state: str) -> None:
    def has_state() -> bool:
        whole.check()
        seen = whole.ask("GET", f"/workloads/{name}")["state"]
        assert seen == state, f"{name} is {seen}; {whole.said()}"
        return True

    eventually(has_state, 60, f"{name} {state}", pause=0.2)


def until_recovered(whole: Fleet) -> None:
    def is_recovered() -> bool:
        whole.check()
        found = whole.ask("GET", "/audit?kind=plane&limit=50")["items"]
        assert "plane.recovery-ended" in [each["action"] for each in found], whole.said()
        return True

    eventually(is_recovered, 60, "the end of the recovery", pause=0.3)


def free(whole: Fleet) -> int:
    return int(whole.ask("GET", "/clusters/east")["flavors"][0]["free"])
