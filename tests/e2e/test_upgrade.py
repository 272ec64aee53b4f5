"""A rolling upgrade under load: yesterday's code works on today's schema beside today's code, and nothing is lost.

`base_commit.txt` names the version from which one upgrades; its sources come from git's history. An agent of that
version stays until the end: the plane is upgraded first.
"""

import io
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.db import migrate
from controlplane.embedded.postgres import Postgres
from tests.operations.fleet import H100, ROOT, Fleet, Stream, a_gang, fleet, nothing_lost_nothing_double
from tests.support import databases
from tests.support.databases import Database
from tests.support.waiting import eventually

BASE_FILE = Path(__file__).with_name("base_commit.txt")
SOURCES = ("controlplane", "agents", "migrations")
MORE = 3
PAUSE_SECONDS = 1.0  # the load goes on while everybody starts
ROLLED_BACK = "rolled-back"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the version that is upgraded, in a folder of their own."""
    commit = BASE_FILE.read_text(encoding="ascii").strip()
    try:
        done = subprocess.run(
            ["git", "archive", commit, *SOURCES], cwd=ROOT, capture_output=True, check=False, timeout=60
        )
    except FileNotFoundError:
        pytest.skip("no git here, and the version before this one stands in git's history only")
    if done.returncode != 0:
        pytest.skip(f"git's history does not reach back to {commit[:12]}: {done.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("base")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def base_database(postgres: Postgres, base: Path) -> Iterator[Database]:
    """A database as the base version made it; after the test today's doctor looks at it."""
    fresh = databases.clone(postgres, "template1")
    try:
        _migrate(fresh, base)
        yield fresh
        violations = databases.found_by_doctor(fresh)
        assert not violations, "the doctor found:\n" + "\n".join(violations)
    finally:
        databases.drop(postgres, fresh)


@pytest.mark.timeout(400)
def test_a_plane_is_upgraded_under_load_and_nothing_is_lost_or_done_twice(
    base: Path, base_database: Database, valkey: str, tmp_path: Path
) -> None:
    old = ("api-1", "worker-1", "planner-1")
    new = ("api-2", "worker-2", "planner-2")
    with fleet(tmp_path, base_database, valkey, token_by=base) as whole:
        for name in old:
            whole.start(name, base)
        whole.serve_from("api-1")
        whole.open_queue()
        whole.add_cluster("east", base)
        with Stream(whole, PAUSE_SECONDS) as stream:
            stream.until_accepted(MORE)
            whole.until_done(1)

            _migrate(base_database, ROOT)  # yesterday's processes go on under it
            stream.until_accepted(len(stream.accepted) + MORE)
            whole.until_done(len(stream.accepted) - MORE)
            yesterdays_code_does_a_days_work(whole, base)

            for name in new:
                whole.start(name)
            whole.serve_from("api-1", "api-2")
            whole.add_cluster("west")  # today's agent, at either API
            stream.until_accepted(len(stream.accepted) + MORE)

            for name in ("worker-1", "planner-1", "api-1"):
                whole.stop(name)
                stream.until_accepted(len(stream.accepted) + 2)
            whole.serve_from("api-2")
            stream.until_accepted(len(stream.accepted) + MORE)
            stream.stop()
            everything = [*stream.accepted, ROLLED_BACK]
            whole.until_done(len(everything), within=180)
        nothing_lost_nothing_double(whole, everything)
        assert whole.agents.taken.get(whole.ports["api-2"][1]), "yesterday's agent speaks with today's plane"


def yesterdays_code_does_a_days_work(whole: Fleet, base: Path) -> None:
    """On today's schema, from a token to a pod's end: what a rollback of the code without one of the schema is."""
    whole.renew_token(base)
    spec = {"namespace": "team", "quotas": [{"flavor": H100, "nominal": 16}]}
    queue = {"apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": ROLLED_BACK}, "spec": spec}
    whole.ask("POST", "/apply", queue, key=uuid.uuid4().hex)
    whole.add_cluster("north", base)
    gang = a_gang(ROLLED_BACK)
    gang["spec"] |= {"queue": ROLLED_BACK, "clusters": {"avoid": ["east"]}}
    whole.ask("POST", "/workloads", gang, key=uuid.uuid4().hex)

    def is_done() -> bool:
        seen = whole.ask("GET", f"/workloads/{ROLLED_BACK}")
        assert seen["state"] == "succeeded", f"{seen}; {whole.said()}"
        assert [each["cluster"] for each in seen["attempts"][0]["placements"]] == ["north"]
        return True

    eventually(is_done, 60, "a gang of yesterday's code on today's schema", pause=0.3)


def test_the_base_is_an_older_schema_so_that_there_is_something_to_upgrade(base: Path) -> None:
    ours = {file.name for file in (migrate.REVISIONS / "versions").glob("*.py")}
    theirs = {file.name for file in (base / "migrations" / "versions").glob("*.py")}
    assert theirs < ours, "released revisions stay, and this version has more"


def _migrate(database: Database, source: Path) -> None:
    told = {**database.environment(), "REDIS_URL": "redis://127.0.0.1:1/0", "PYTHONPATH": str(source)}
    words = [f"{name}={text}" for name, text in told.items()]
    done = subprocess.run(
        ["env", "-C", str(source), *words, sys.executable, "-m", "controlplane.db.migrate"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
