"""`python -m controlplane.install`, run as an operator runs it: each thing once, and no secret where it may be seen."""

import os
import pty
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from controlplane.embedded.home import free_port
from controlplane.services.signing import KEY_FILE
from tests.support.api import serving, settings_for
from tests.support.databases import ROOT, Database

SECONDS_MAX = 60
REFUSED = 4


def install(database: Database | None, *arguments: str, **others: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "REDIS_URL": "redis://127.0.0.1:1/0", **others}
    return subprocess.run(
        [sys.executable, "-m", "controlplane.install", *arguments],
        env=environment | (database.environment() if database else {}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )


def test_the_first_admin_gets_a_token_in_a_file_that_only_they_read_and_a_second_is_refused(
    database: Database, valkey: str, tmp_path: Path
) -> None:
    file, second = tmp_path / "token", tmp_path / "second"
    done = install(database, "first-admin", "--file", str(file))
    assert done.returncode == 0, done.stderr
    token = file.read_text().strip()
    assert token not in done.stdout + done.stderr
    assert file.stat().st_mode & 0o777 == 0o600

    refused = install(database, "first-admin", "--file", str(second))
    assert (refused.returncode, second.exists()) == (REFUSED, False)
    assert "an administrator has a token that lives" in refused.stderr

    with serving(settings_for(database, valkey, tmp_path / "secrets")) as api:
        answer = httpx.get(f"{api.url}/api/v1/whoami", headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    assert answer.status_code == 200
    assert answer.json()["roles"] == ["platform-admin"]


def test_who_lost_every_token_gets_another_by_saying_so(database: Database, tmp_path: Path) -> None:
    first = install(database, "first-admin", "--file", "-")
    again = install(database, "first-admin", "--file", "-", "--again")
    assert (first.returncode, again.returncode) == (0, 0)
    assert first.stdout != again.stdout


def test_of_two_who_ask_at_once_one_gets_the_token(database: Database, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as both:
        done = list(both.map(lambda name: install(database, "first-admin", "--file", str(tmp_path / name)), "ab"))
    assert sorted(each.returncode for each in done) == [0, REFUSED]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_that_is_there_is_not_written_over(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "precious"
    file.write_text("mine")
    done = install(database, "first-admin", "--file", str(file))
    assert (done.returncode, file.read_text()) == (2, "mine")
    assert install(database, "first-admin", "--file", "-").returncode == 0, "and no token was made for nobody"


def test_a_terminal_is_no_place_for_a_token(database: Database) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "controlplane.install", "first-admin", "--file", "-"],
        env={**os.environ, "REDIS_URL": "redis://127.0.0.1:1/0", **database.environment()},
        cwd=ROOT,
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2
    assert "stdout is a terminal" in done.stderr


@pytest.mark.parametrize(
    "words",
    [("first-admin", "--file", "-"), ("recovery", "status"), ("recovery", "begin"), ("new-sessions",)],
    ids=" ".join,
)
def test_without_its_database_a_command_says_so_in_a_line(words: tuple[str, ...]) -> None:
    done = install(None, *words, DATABASE_URL=f"postgresql://muster@127.0.0.1:{free_port()}/muster")
    assert done.returncode == 1
    assert done.stderr.startswith("muster: connection failed")
    assert "Traceback" not in done.stderr


def test_the_signing_key_is_made_once_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    assert install(None, "signing-key", "--folder", str(folder)).returncode == 0
    made = (folder / KEY_FILE).read_text()
    assert install(None, "signing-key", "--folder", str(folder)).returncode == 0
    assert (folder / KEY_FILE).read_text() == made


@pytest.mark.parametrize("environment", [{}, {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}])
def test_outside_of_a_pod_no_secret_is_made_and_the_reason_is_said(environment: dict[str, str], tmp_path: Path) -> None:
    done = install(None, "signing-key", "--secret", "keys", "--account", str(tmp_path), **environment)
    assert done.returncode == 1
    assert "no ServiceAccount is mounted" in done.stderr


@pytest.mark.parametrize("step", [("signing-key",), ("rotate-signing-key", "next")], ids=" ".join)
def test_an_unset_variable_is_no_folder(step: tuple[str, ...]) -> None:
    done = install(None, *step, "--folder", "")
    assert done.returncode == 2
    assert "argument --folder: names no folder" in done.stderr


def without_settings(*words: str) -> subprocess.CompletedProcess[str]:
    left_out = {"DATABASE_URL", "REDIS_URL", "MUSTER_DATABASE_URL", "MUSTER_REDIS_URL"}
    environment = {name: text for name, text in os.environ.items() if name not in left_out}
    return subprocess.run(
        [sys.executable, "-m", *words],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ("controlplane.install", "first-admin", "--file", "-"),
        ("controlplane.install", "recovery", "begin"),
        ("controlplane.install", "new-sessions"),
        ("controlplane.db.migrate",),
        ("controlplane.db.migrate", "--down", "base"),
        ("controlplane.api.serve",),
        ("controlplane.workers.run", "planner"),
    ],
    ids=" ".join,
)
def test_variables_that_are_not_set_are_named_in_a_line(words: tuple[str, ...]) -> None:
    done = without_settings(*words)
    assert (done.returncode, done.stderr) == (2, "muster: not set: DATABASE_URL, REDIS_URL\n")


@pytest.mark.parametrize(
    "words",
    [("controlplane.install", "new-sessions"), ("controlplane.api.serve",), ("controlplane.workers.run", "worker")],
    ids=" ".join,
)
def test_an_address_that_is_none_is_said_in_a_line_that_does_not_repeat_it(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *words],
        env={**os.environ, "DATABASE_URL": "postgresql://u:secret@db:port/muster", "REDIS_URL": "secret"},
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        "muster: DATABASE_URL: not an address of the form postgresql://HOST[:PORT]/NAME;"
        " REDIS_URL: not an address of the form redis://HOST[:PORT]/NAME\n"
    )


@pytest.mark.parametrize(
    ("url", "arguments", "code", "line"),
    [
        ("postgresql://muster@127.0.0.1:1/muster", (), 1, "muster: connection failed"),
        ("postgresql//secret", (), 2, "muster: DATABASE_URL: not an address of the form postgresql://"),
        ("postgresql://muster@127.0.0.1:1/muster", ("--down", ""), 2, "usage: "),
    ],
)
def test_a_migration_that_cannot_be_says_so_in_a_line(
    url: str, arguments: tuple[str, ...], code: int, line: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "controlplane.db.migrate", *arguments],
        env={**os.environ, "DATABASE_URL": url, "REDIS_URL": "redis://127.0.0.1:1/0"},
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
    )  # fmt: skip
    assert done.returncode == code
    assert done.stderr.startswith(line)
    assert not any(word in done.stderr for word in ("Traceback", "secret"))


def test_a_revision_that_there_is_not_is_said_in_a_line(database: Database) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "controlplane.db.migrate", "--down", "nowhere"],
        env={**os.environ, "REDIS_URL": "redis://127.0.0.1:1/0", **database.environment()},
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "muster: Can't locate revision identified by 'nowhere'\n")
