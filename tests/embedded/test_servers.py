"""Real Postgres and Valkey in one folder: start, stop, recover, refuse, keep secrets."""

import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from controlplane.embedded.children import Child
from controlplane.embedded.errors import AlreadyRunning, Refusal, StartFailed
from controlplane.embedded.home import Home
from controlplane.embedded.identity import PLAIN, Identity, Kind, choose
from controlplane.embedded.postgres import SUPERUSER, Postgres
from controlplane.embedded.servers import Servers, running
from tests.support.processes import command_lines, serving
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
NOBODY = pwd.getpwnam("nobody")
DROPPED = Identity(Kind.DROPPED, NOBODY.pw_uid, NOBODY.pw_gid)


class Holder:
    """Another process that holds a folder's servers."""

    def __init__(self, folder: Path, identity: Identity = PLAIN) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "tests.embedded.holder", str(folder)]
        self.process = subprocess.Popen(
            command if identity is PLAIN else identity.launch(command, signal.SIGKILL),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"the holder ended with {self.process.wait(10)}"
        told: dict[str, str] = json.loads(line)
        self.postgres, self.valkey, self.title, self.identity = (
            told[key] for key in ("postgres", "valkey", "title", "identity")
        )

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        self.process.communicate(timeout=20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def held(folder: Path) -> Iterator[Holder]:
    holder = Holder(folder)
    try:
        yield holder
    finally:
        holder.close()


def none_left(holder: Holder) -> bool:
    return not serving(holder.folder, holder.title)


def pid_of_postmaster(folder: Path) -> int:
    return int((folder / "postgres" / "postmaster.pid").read_text().splitlines()[0])


def test_what_was_written_is_there_after_a_clean_stop_within_ten_seconds(folder: Path) -> None:
    first = Holder(folder)
    with psycopg.connect(first.postgres) as connection:
        connection.execute("CREATE TABLE mark (n integer)")
        connection.execute("INSERT INTO mark VALUES (7)")
    started = time.monotonic()
    first.close()
    assert time.monotonic() - started < 10
    assert none_left(first)
    second = Holder(folder)
    with psycopg.connect(second.postgres) as connection:
        assert connection.execute("SELECT n FROM mark").fetchall() == [(7,)]
        assert connection.execute("SHOW fsync").fetchall() == [("on",)]
    password = Home.open(folder).password(f"postgres-{SUPERUSER}")
    with psycopg.connect(second.postgres, user=SUPERUSER, password=password) as connection:
        hashes = connection.execute("SELECT rolpassword FROM pg_authid WHERE rolcanlogin").fetchall()
    assert [text.partition(":")[0] for (text,) in hashes] == ["SCRAM-SHA-256$4096"] * 2, "dear to guess"
    second.close()


def test_killing_the_parent_leaves_no_server_behind_and_the_next_start_recovers(folder: Path) -> None:
    first = Holder(folder)
    with psycopg.connect(first.postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE mark (n integer)")
        first.kill()
        eventually(lambda: none_left(first), within=10)
    second = Holder(folder)
    with psycopg.connect(second.postgres) as connection:
        assert connection.execute("SELECT count(*) FROM mark").fetchall() == [(0,)]
    second.close()


def test_killing_every_process_at_once_loses_no_commit(folder: Path) -> None:
    first = Holder(folder)
    with psycopg.connect(first.postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE mark AS SELECT 1 AS n")
        for pid in [first.process.pid, *serving(folder, first.title)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # its parent's end took it along
        first.close()
    second = Holder(folder)
    with psycopg.connect(second.postgres) as connection:
        assert connection.execute("SELECT n FROM mark").fetchall() == [(1,)]
    second.close()


def test_a_pid_file_that_now_names_a_stranger_does_not_stop_the_start(folder: Path) -> None:
    first = Holder(folder)
    pid_file = folder / "postgres" / "postmaster.pid"
    left = pid_file.read_text()
    first.close()
    pid_file.write_text("\n".join([str(os.getpid()), *left.splitlines()[1:]]) + "\n")
    Holder(folder).close()


def test_a_stopped_postmaster_of_a_killed_run_is_ended_by_the_next_start(folder: Path) -> None:
    first = Holder(folder)
    postmaster = pid_of_postmaster(folder)
    os.kill(postmaster, signal.SIGSTOP)  # it cannot obey the kernel's word that its parent ended
    first.kill()
    second = Holder(folder)
    assert pid_of_postmaster(folder) != postmaster
    second.close()


def test_a_session_that_computes_on_after_its_postmaster_was_killed_is_ended_by_the_next_start(folder: Path) -> None:
    first = Holder(folder)
    connection = psycopg.connect(first.postgres, autocommit=True)
    backend = connection.info.backend_pid
    connection.pgconn.send_query(b"DO $$ BEGIN LOOP PERFORM 1; END LOOP; END $$")
    os.kill(pid_of_postmaster(folder), signal.SIGKILL)
    first.kill()
    assert backend in command_lines(), "it would have ended by itself, and this test shows nothing"
    second = Holder(folder)
    assert backend not in command_lines()
    second.close()
    connection.close()


def test_a_start_that_was_killed_half_way_is_begun_anew(folder: Path) -> None:
    half = Home.open(folder).path / "postgres.draft"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    Holder(folder).close()
    assert not half.exists()


def test_a_second_instance_in_the_same_folder_is_refused_in_words(held: Holder) -> None:
    with (
        pytest.raises(AlreadyRunning, match=rf"in use by process {held.process.pid}: one plane per folder"),
        running(held.folder),
    ):
        pass
    with psycopg.connect(held.postgres) as connection:
        connection.execute("SELECT 1")


def test_only_we_can_read_the_folder(held: Holder) -> None:
    entries = [held.folder, *held.folder.rglob("*")]
    open_to_others = [str(entry) for entry in entries if stat.S_IMODE(entry.lstat().st_mode) & 0o077]
    assert open_to_others == []


def test_no_password_is_in_any_command_line_or_environment_of_a_server(held: Holder) -> None:
    passwords = [file.read_text().strip() for file in (held.folder / "secrets").iterdir()]
    assert len(passwords) == 3
    shown = "\n".join(command_lines().values())
    for pid in serving(held.folder, held.title):
        shown += (Path("/proc") / str(pid) / "environ").read_bytes().decode(errors="replace")
    assert not [password for password in passwords if password in shown]


def test_nobody_gets_in_without_the_password(held: Holder) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(held.postgres, password="guessed")
    without_password = "redis://" + held.valkey.split("@")[-1]
    with redis.Redis.from_url(without_password) as stranger, pytest.raises(redis.exceptions.AuthenticationError):
        stranger.ping()


def test_servers_that_the_user_names_are_used_and_not_started(folder: Path) -> None:
    theirs = {"DATABASE_URL": "postgresql://elsewhere/muster", "REDIS_URL": "redis://elsewhere"}
    found = Servers.find(Home.open(folder), theirs)
    assert found.specs() == []
    assert found.environment() == {}


def test_a_folder_of_postgres_programs_is_used(folder: Path, postgres: Postgres) -> None:
    found = Postgres.find(Home.open(folder), {"MUSTER_POSTGRES_BIN": str(postgres.programs)})
    assert found.programs == postgres.programs


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"MUSTER_POSTGRES_BIN": "/nowhere"}, "no initdb that we may run"),
        ({"MUSTER_VALKEY_SERVER": "/nowhere/valkey"}, "which we may not run"),
    ],
)
def test_a_refusal_names_the_ways_out(folder: Path, environment: dict[str, str], why: str) -> None:
    with pytest.raises(Refusal, match=why) as refusal:
        Servers.find(Home.open(folder), environment)
    for way in ("DATABASE_URL", "REDIS_URL", "MUSTER_POSTGRES_BIN", "MUSTER_VALKEY_SERVER", "MUSTER_HOME"):
        assert way in str(refusal.value)


def test_data_of_another_major_version_is_refused_before_anything_starts(folder: Path) -> None:
    Holder(folder).close()
    (folder / "postgres" / "PG_VERSION").write_text("17\n")
    with pytest.raises((Refusal, StartFailed), match="was made by Postgres 17"), running(folder):
        pass


@pytest.fixture
def of_nobody() -> Iterator[Path]:
    """An empty folder that an ordinary user owns, with everything above it open to them."""
    path = Path(tempfile.mkdtemp(prefix="muster-", dir="/tmp"))
    try:
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid) if os.geteuid() == 0 else None
        yield path
    finally:
        shutil.rmtree(path)


def test_an_ordinary_user_gets_the_same_servers_without_any_namespace(of_nobody: Path, folder: Path) -> None:
    """Root becomes `nobody` for it; where Python lies in a home that is closed to `nobody`, a user without rights."""
    if os.geteuid() != 0:
        holder = Holder(folder)
    elif can_be(DROPPED):
        holder = Holder(of_nobody / "home", DROPPED)
    else:
        holder = Holder(folder, Identity(Kind.NAMESPACE, NOBODY.pw_uid, NOBODY.pw_gid))
    assert holder.identity == "plain"
    with psycopg.connect(holder.postgres) as connection:
        connection.execute("SELECT 1")
    holder.close()


def can_be(identity: Identity) -> bool:
    return identity.can_run(
        sys.executable, "-c", f"import sys; sys.path.append({str(ROOT)!r}); import tests.embedded.holder"
    )


def test_root_without_user_namespaces_gives_the_data_to_nobody(of_nobody: Path, postgres: Postgres) -> None:
    """Where `nobody` cannot run the programs, because they lie in root's home, the obstacle is named instead."""
    if os.geteuid() != 0:
        assert choose(postgres.programs / "postgres", of_nobody) == PLAIN
        return
    os.chown(of_nobody, 0, 0)
    of_nobody.chmod(0o711)
    home = Home.open(of_nobody / "home")
    home.path.chmod(0o711)
    obstacle = DROPPED.obstacle(postgres.programs / "postgres", home.path)
    if obstacle:
        assert obstacle.startswith("cannot run")
        return
    server = Postgres(home, postgres.programs, DROPPED, home.port("postgres"))
    child = Child(server.spec())
    try:
        child.wait_ready()
        with psycopg.connect(server.url()) as connection:
            connection.execute("CREATE TABLE mark (n integer)")
    finally:
        child.stop()
    assert {entry.stat().st_uid for entry in server.data.rglob("*")} == {NOBODY.pw_uid}
    assert (home.path / "secrets").stat().st_uid == 0


def test_a_folder_that_no_identity_can_reach_is_named_before_anything_is_made(
    of_nobody: Path, postgres: Postgres
) -> None:
    if os.geteuid() != 0:
        with pytest.raises(Refusal, match="cannot be made"):
            Home.open(Path("/proc/home"))
        return
    home = Home.open(of_nobody / "home")
    of_nobody.chmod(0o700)
    os.chown(of_nobody, NOBODY.pw_uid + 1, NOBODY.pw_gid)  # somebody else's closed folder: only real root passes
    with pytest.raises(Refusal, match=rf"user namespace root cannot reach {home.path}; the user 'nobody' cannot"):
        choose(postgres.programs / "postgres", home.path)
    assert not (home.path / "postgres").exists()
