"""Planes for tests: `live_plane`, the whole product over real servers; `start_tiny`, a supervisor over trivia."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane.embedded import control
from controlplane.embedded.home import Home, free_port
from controlplane.embedded.identity import PLAIN
from controlplane.embedded.state import PlaneState, read_state
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
START_SECONDS = 90


@dataclass(frozen=True, slots=True)
class LivePlane:
    """A plane of this test's own, under its supervisor."""

    home: Home
    api_url: str
    agent_url: str

    @property
    def admin_token(self) -> str:
        return self.home.admin_token.read_text(encoding="utf-8").strip()

    @property
    def environment(self) -> dict[str, str]:
        """What a `muster` command must be told to speak to this plane."""
        return {**os.environ, "MUSTER_HOME": str(self.home.path)}

    def pid(self, name: str) -> int:
        """The process that now bears this name in the supervisor's table."""
        state = read_state(self.home)
        assert state, "no plane runs"
        found = [each.pid for each in state.processes if each.name == name]
        assert found, f"no process is called {name}"
        assert found[0], f"{name} waits to be started again"
        return found[0]

    def kill(self, name: str) -> int:
        """`kill -9`; the supervisor starts it again. Returns the pid that was killed."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_ready(self, within: float = START_SECONDS) -> None:
        """Until every process runs and the API is ready."""
        ready(self.home, within)


@contextmanager
def live_plane(
    folder: Path, environment: Mapping[str, str] | None = None, workers: int = 1, planners: int = 1
) -> Iterator[LivePlane]:
    """The whole plane on free ports, ready; ends with the block, and with this process should that be killed."""
    home = Home.open(folder)
    ports = {"MUSTER_API_PORT": str(free_port()), "MUSTER_AGENT_PORT": str(free_port())}
    ours = {name: text for name, text in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
    command = [*control.SUPERVISOR, *control.Sizes(workers, planners).options()]
    supervisor = subprocess.Popen(
        PLAIN.launch(command, signal.SIGTERM),
        cwd=ROOT,
        env={**ours, **ports, "MUSTER_HOME": str(home.path), **(environment or {})},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        state = ready(home, START_SECONDS, supervisor)
        yield LivePlane(home, state.api_url, state.agent_url)
    finally:
        supervisor.terminate()
        supervisor.communicate(timeout=20)


def start_tiny(home: Home, *kinds: str) -> subprocess.Popen[str]:
    """A supervisor over the processes of `tests.embedded.tiny`; the caller ends it."""
    command = [sys.executable, "-m", "tests.embedded.tiny", str(home.path), *kinds]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def ready(home: Home, within: float = 30, supervisor: subprocess.Popen[str] | None = None) -> PlaneState:
    """Its state once everything runs; fails at once when the supervisor has ended."""

    def look() -> PlaneState | None:
        if supervisor is not None and supervisor.poll() is not None:
            assert supervisor.stderr
            raise RuntimeError(f"the plane ended while starting\n{supervisor.stderr.read()}")
        state = read_state(home)
        return state if state and state.ready else None

    found = eventually(look, within, what=f"a ready plane in {home.path}")
    assert found
    return found
