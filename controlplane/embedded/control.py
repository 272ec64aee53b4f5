"""Starts, waits for and stops a detached plane from another process; `muster up --detach`, `down` and `demo` use it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from controlplane.embedded.errors import AlreadyRunning, StartFailed
from controlplane.embedded.home import Home, default_folder
from controlplane.embedded.state import Phase, PlaneState, read_state
from controlplane.embedded.table import ask

READY_SECONDS = 120
STOP_SECONDS = 15
PAUSE_SECONDS = 0.05
SUPERVISOR = [sys.executable, "-m", "controlplane.embedded.supervisor"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many of each class of worker."""

    workers: int = 1
    planners: int = 1

    def options(self) -> list[str]:
        """As the supervisor's command line takes them."""
        return ["--workers", str(self.workers), "--planners", str(self.planners)]


def refuse_second(home: Home) -> None:
    """Raise AlreadyRunning where a plane runs in this folder."""
    if home.is_locked():
        raise AlreadyRunning(f"a plane runs in {home.path} already: `muster status` shows it, `muster down` stops it")


def start_detached(home: Home, sizes: Sizes, watch: Callable[[PlaneState], None] = lambda _: None) -> PlaneState:
    """A plane that outlives us, once it is ready; `watch` sees each change on the way."""
    refuse_second(home)
    log = home.log("supervisor")
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        process = subprocess.Popen(
            [*SUPERVISOR, *sizes.options()],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=home.path,
            env=os.environ if home.path == default_folder() else {**os.environ, "MUSTER_HOME": str(home.path)},
            start_new_session=True,
        )
    return _until_ready(home, process, watch)


def _until_ready(home: Home, process: subprocess.Popen[bytes], watch: Callable[[PlaneState], None]) -> PlaneState:
    deadline = time.monotonic() + READY_SECONDS
    seen: PlaneState | None = None
    while process.poll() is None and time.monotonic() < deadline:
        state = read_state(home)
        if state is not None and state.supervisor == process.pid and state != seen:
            seen = state
            watch(state)
            if state.ready:
                process.returncode = 0  # it is nobody's child from now on, and outlives us on purpose
                return state
        time.sleep(PAUSE_SECONDS)
    said = home.log("supervisor").read_text(encoding="utf-8", errors="replace").strip()
    if process.poll() is not None:
        raise StartFailed(f"the plane ended while starting\n{said}")
    why = _what_is_late(seen) if seen else "the servers"
    stop(home)
    raise StartFailed(f"not ready after {READY_SECONDS} s: {why}; see {home.logs}\n{said}")


def _what_is_late(state: PlaneState) -> str:
    late = [each.name for each in state.processes if each.phase is not Phase.READY]
    _, told = ask(int(state.api_url.rpartition(":")[2]), "/readyz")
    return f"{', '.join(late)} (/readyz says: {told})" if told else ", ".join(late)


def stop(home: Home) -> bool:
    """Stop the plane of this folder, by force when it takes too long; whether one ran."""
    if not home.is_locked():
        return False
    pid = home.holder()
    for sent, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
        if pid is not None:
            try:
                os.kill(pid, sent)
            except ProcessLookupError:
                pid = None
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not home.is_locked():
                return True
            time.sleep(PAUSE_SECONDS)
    raise StartFailed(f"the process that holds {home.path} does not end")
