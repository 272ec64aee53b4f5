"""`muster up`: servers, migrations, API, workers, planners and beat under one parent that restarts what ends.

Restarts back off with full jitter. When this process ends in any way its children end too; the next start recovers.
It imports little on purpose: it stays in memory as long as the plane.
"""

import argparse
import os
import random
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType

from controlplane.embedded import servers
from controlplane.embedded.children import Child, Spec
from controlplane.embedded.errors import AlreadyRunning, Refusal, StartFailed
from controlplane.embedded.home import Home, default_folder
from controlplane.embedded.state import Phase, PlaneState, ProcessState, write_state
from controlplane.embedded.table import Plane, Step, Table

WAIT_MIN_SECONDS = 0.2
WAIT_MAX_SECONDS = 30.0
DOUBLINGS_MAX = 16
STABLE_SECONDS = 60
"""Who ran this long starts again with the shortest back-off."""
LOOK_SECONDS = 0.1
IDLE_SECONDS = 5.0
LOG_BYTES_MAX = 20_000_000
ALREADY_RUNNING = 4
"""Exit code where a plane runs in the folder already: refused, as the command line counts."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
Chance = Callable[[float, float], float]


class Charge:
    """One process in our care, through all its restarts."""

    def __init__(self, spec: Spec, child: Child | None = None) -> None:
        """Started already, or due at once."""
        self.spec = spec
        self.child = child
        self.started = time.monotonic()
        self.due = self.started
        self.failures = 0
        self.restarts = 0
        self.last_exit: int | None = None
        self.is_ready = False

    def look(self, chance: Chance) -> None:
        """Notice an end, start what is due, ask whether it is ready."""
        if self.child is None:
            if time.monotonic() >= self.due:
                self._start(chance)
        elif (code := self.child.exit_code()) is not None:
            self.child.end_group()
            self.child = None
            self.last_exit = code
            self._back_off(chance)
        elif not self.is_ready:
            self.is_ready = self.spec.is_ready()

    def state(self) -> ProcessState:
        """For people."""
        phase = Phase.WAITING if self.child is None else Phase.READY if self.is_ready else Phase.STARTING
        pid = None if self.child is None else self.child.pid
        return ProcessState(self.spec.name, phase, pid, self.restarts, self.last_exit)

    def _start(self, chance: Chance) -> None:
        self.started = time.monotonic()
        try:
            self.child = Child(self.spec)
        except (OSError, Refusal, StartFailed) as error:
            say(f"{self.spec.name} cannot be started: {error}")
            self._back_off(chance)

    def _back_off(self, chance: Chance) -> None:
        now = time.monotonic()
        self.failures = 1 if now - self.started > STABLE_SECONDS else self.failures + 1
        self.restarts += 1
        self.is_ready = False
        wait = back_off(self.failures, chance)
        self.due = now + wait
        say(f"{self.spec.name} ended with {self.last_exit}; it starts again in {wait:.1f} s")


def back_off(failures: int, chance: Chance) -> float:
    """Seconds before the next try: full jitter under a doubling roof, and never nothing."""
    roof = min(WAIT_MAX_SECONDS, WAIT_MIN_SECONDS * 2.0 ** min(failures, DOUBLINGS_MAX))
    return max(WAIT_MIN_SECONDS, chance(0.0, roof))


class Supervisor:
    """The parent of one plane."""

    def __init__(self, plane: Table, chance: Chance) -> None:
        """`chance(low, high)` draws the jitter."""
        self.plane = plane
        self.chance = chance
        self.charges: list[Charge] = []
        self._is_complete = False
        self._written: PlaneState | None = None

    def run(self) -> None:
        """Bring everything up and keep it up until a signal ends us; always leaves nothing running."""
        alarm = _wake_on_signals()
        try:
            self._start()
            while True:
                self._look()
                asleep = all(charge.is_ready for charge in self.charges)
                _wait(alarm, IDLE_SECONDS if asleep else LOOK_SECONDS)
        finally:
            _ignore_signals()
            self._stop()

    def _start(self) -> None:
        started = servers.start(self.plane.home)
        self.charges = [Charge(child.spec, child) for child in started.children]
        self._look()
        told = started.servers.environment() | self.plane.environment()
        for step in self.plane.steps():
            run_step(step, self.plane.home, told)
        self.charges += [Charge(spec) for spec in self.plane.specs(told)]
        self._is_complete = True

    def _look(self) -> None:
        for charge in self.charges:
            charge.look(self.chance)
        trim_logs(self.plane.home)
        processes = [charge.state() for charge in self.charges]
        ready = self._is_complete and all(process.phase is Phase.READY for process in processes)
        state = PlaneState(os.getpid(), ready, self.plane.api_url, self.plane.agent_url, processes)
        if state != self._written:
            write_state(self.plane.home, state)
            if ready and not (self._written and self._written.ready):
                say(f"ready: {self.plane.api_url} (Ctrl-C or `muster down` stops it)")
            self._written = state

    def _stop(self) -> None:
        """The plane first, so that it can still write its last words into the servers."""
        running = [charge.child for charge in self.charges if charge.child is not None]
        of_servers = {"postgres", "valkey"}
        servers.stop([child for child in running if child.spec.name not in of_servers])
        servers.stop([child for child in running if child.spec.name in of_servers])
        self.plane.home.state.unlink(missing_ok=True)


def run_step(step: Step, home: Home, told: dict[str, str]) -> None:
    """Run it to its end, or raise with the end of what it said."""
    spec = Spec(step.name, step.argv, home.log(step.name), env=told, folder=home.path, ready_seconds=step.seconds)
    child = Child(spec)
    try:
        code = child.wait_end()
    finally:
        child.stop()
    if code != 0:
        ended = f"did not end within {step.seconds} s" if code is None else f"ended with {code}"
        raise StartFailed(f"{step.name} {ended}\n{child.log_tail()}")


def trim_logs(home: Home) -> None:
    """Keep each log within twice its bound; writers append, so cutting it under them is safe."""
    for log in home.logs.glob("*.log"):
        if log.stat().st_size > LOG_BYTES_MAX:
            with log.open("r+b") as file:
                file.seek(-LOG_BYTES_MAX // 2, os.SEEK_END)
                kept = file.read()
                file.seek(0)
                file.write(kept)
                file.truncate()


def say(event: str) -> None:
    """One line to the terminal, or to the supervisor's log when detached."""
    sys.stderr.write(f"muster: {event}\n")
    sys.stderr.flush()


def _wake_on_signals() -> socket.socket:
    """Ends of children wake the loop; a request to end becomes SystemExit wherever we are."""
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.settimeout(0)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for asked in ENDING:
        if signal.getsignal(asked) is not signal.SIG_IGN:  # nohup
            signal.signal(asked, _leave)
    return reader


def _leave(_number: int, _frame: FrameType | None) -> None:
    _ignore_signals()
    sys.exit(0)


def _ignore_signals() -> None:
    for asked in ENDING:
        signal.signal(asked, signal.SIG_IGN)


def _wait(alarm: socket.socket, seconds: float) -> None:
    if select.select([alarm], [], [], seconds)[0]:
        alarm.recv(4096)


def main() -> None:
    """`python -m controlplane.embedded.supervisor`: what `muster up` becomes."""
    parser = argparse.ArgumentParser(prog="muster up")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--planners", type=int, default=1)
    asked = parser.parse_args()
    try:
        home = Home.open(default_folder())
        with home.lock():
            say(f"starting; data and logs are in {home.path}")
            plane = Plane.choose(home, asked.workers, asked.planners)
            Supervisor(plane, random.SystemRandom().uniform).run()
    except AlreadyRunning as error:  # the command line looked before: somebody was quicker
        say(str(error))
        sys.exit(ALREADY_RUNNING)
    except (Refusal, StartFailed) as error:
        say(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
