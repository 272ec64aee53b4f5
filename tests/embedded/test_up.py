"""`muster up` with everything in it: quick, frugal, and back by itself after any kill."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from controlplane.embedded.table import answers
from tests.support.planes import ROOT, LivePlane, live_plane
from tests.support.processes import command_lines, pss_bytes, tree
from tests.support.waiting import eventually

NAMES = ["postgres", "valkey", "api", "worker", "planner", "beat"]
MUSTER = [str(Path(sys.executable).with_name("muster"))]
IDLE_BYTES_MAX = 700_000_000

pytestmark = pytest.mark.xdist_group("plane-up")  # one plane for all of them, in one test process


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePlane]:
    with live_plane(tmp_path_factory.mktemp("plane") / "home") as running:
        yield running


def muster(plane: LivePlane, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MUSTER, *arguments], check=False, capture_output=True, text=True, timeout=60, env=plane.environment, cwd=ROOT
    )


def test_every_process_runs_and_the_first_admin_may_ask(plane: LivePlane) -> None:
    status = muster(plane, "status")
    assert status.returncode == 0
    assert all(name in status.stdout for name in NAMES)
    answer = httpx.get(f"{plane.api_url}/api/v1/queues", headers={"Authorization": f"Bearer {plane.admin_token}"})
    assert answer.status_code == 200


def test_no_secret_is_in_a_command_line_or_a_log(plane: LivePlane) -> None:
    secrets = [file.read_text().strip() for file in plane.home.secrets.rglob("*") if file.is_file()]
    shown = "\n".join([*command_lines().values(), *(log.read_text() for log in plane.home.logs.iterdir())])
    assert not [secret for secret in secrets if secret in shown]


def test_an_idle_plane_takes_little_memory(plane: LivePlane) -> None:
    supervisor = int((plane.home.path / "lock").read_text())
    assert sum(map(pss_bytes, tree(supervisor))) < IDLE_BYTES_MAX


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_process_comes_back_and_the_plane_is_ready_again(plane: LivePlane, name: str) -> None:
    killed = plane.kill(name)
    port = int(plane.api_url.rpartition(":")[2])
    eventually(lambda: plane.pid(name) != killed, within=30)
    plane.wait_ready()
    eventually(lambda: answers(port, "/readyz"), within=60, what="/readyz")


@pytest.mark.timeout(240)  # two starts, on a machine that does other things too
def test_killing_all_of_it_needs_no_more_than_another_start(tmp_path: Path) -> None:
    environment = {**os.environ, "MUSTER_HOME": str(tmp_path / "home")}
    for name in ("DATABASE_URL", "REDIS_URL"):
        environment.pop(name, None)

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [*MUSTER, *arguments], check=False, capture_output=True, text=True, timeout=150, env=environment, cwd=ROOT
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        assert "ready: http://127.0.0.1:" in run("up", "--detach")
        for pid in tree(int((tmp_path / "home" / "lock").read_text())):
            with contextlib.suppress(ProcessLookupError):  # its parent's end may have taken it along
                os.kill(pid, signal.SIGKILL)
        run("up", "--detach")
    finally:
        asked = time.monotonic()
        run("down")
    assert time.monotonic() - asked < 12  # ten, and what starting the command takes
    eventually(lambda: not [line for line in command_lines().values() if str(tmp_path / "home") in line])
