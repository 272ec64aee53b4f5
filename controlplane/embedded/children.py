"""Child processes: what one needs, how it is spawned, made ready and stopped, and how strays of it are found.

Knows nothing of any server. Restarting is `supervisor`'s work.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.embedded.errors import StartFailed
from controlplane.embedded.identity import PLAIN, Identity

TICK_SECONDS = 0.02
LOG_TAIL_LINES = 15
PROC = Path("/proc")


def _nothing() -> None:
    pass


def _at_once() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Spec:
    """One process: what runs, where it writes, when it is ready, how it ends."""

    name: str
    argv: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    folder: Path = Path("/")
    identity: Identity = PLAIN
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    """Sent by the kernel when the parent ends in any way."""
    stop_seconds: int = 5
    ready_seconds: int = 60
    before_start: Callable[[], None] = _nothing
    is_ready: Callable[[], bool] = _at_once


class Child:
    """A running process."""

    def __init__(self, spec: Spec) -> None:
        """Spawn it; call from a thread that lives as long as the child may, for its end is what the kernel watches."""
        self.spec = spec
        self._stop_by: float | None = None
        spec.before_start()
        with open(os.open(spec.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(  # argv comes from this package
                spec.identity.launch(list(spec.argv), spec.death_signal),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **spec.env},
                cwd=spec.folder,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which stops its children in order
                umask=0o077,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def end_group(self) -> None:
        """After its end: end what it started and did not take along."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait_ready(self) -> None:
        """Return when it is ready; raise with the end of its log when it ends first or takes too long."""
        deadline = time.monotonic() + self.spec.ready_seconds
        while not self.spec.is_ready():
            if (code := self.exit_code()) is not None:
                raise StartFailed(f"{self.spec.name} ended with {code} before it was ready\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise StartFailed(
                    f"{self.spec.name} was not ready after {self.spec.ready_seconds} s\n{self.log_tail()}"
                )
            time.sleep(TICK_SECONDS)

    def wait_end(self) -> int | None:
        """Its exit code; None when it still runs after its time."""
        try:
            return self._process.wait(self.spec.ready_seconds)
        except subprocess.TimeoutExpired:
            return None

    def ask_to_stop(self) -> None:
        """Send the stop signal, once; its time to end counts from here."""
        if self._stop_by is None:
            self._stop_by = time.monotonic() + self.spec.stop_seconds
            if self.exit_code() is None:
                self._process.send_signal(self.spec.stop_signal)

    def stop(self) -> None:
        """Stop it cleanly within its time, else at once."""
        self.ask_to_stop()
        try:
            self._process.wait(max(0.0, (self._stop_by or 0.0) - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.end_group()

    def log_tail(self) -> str:
        """The last lines that this run wrote."""
        with self.spec.log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])


def stop_strays(is_ours: Callable[[list[str]], bool], stop_signal: signal.Signals, within: float) -> None:
    """End every process whose argv `is_ours` says so of: first politely, after half the time by force."""
    deadline = time.monotonic() + within
    for sent in (stop_signal, signal.SIGKILL):
        strays = list(_matching(is_ours))
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sent)
        until = deadline - within / 2 if sent is stop_signal else deadline
        while strays and time.monotonic() < until:
            time.sleep(TICK_SECONDS)
            strays = list(_matching(is_ours))
        if not strays:
            return
    raise StartFailed(f"processes of an earlier run do not end: {', '.join(map(str, strays))}")


def _matching(is_ours: Callable[[list[str]], bool]) -> Iterable[int]:
    for pid, argv in _processes():
        if argv and pid != os.getpid() and is_ours(argv):
            yield pid


def _processes() -> Iterable[tuple[int, list[str]]]:
    """Each process with its argv, as far as this machine tells; dead ones have none."""
    if not PROC.is_dir():
        listing = subprocess.run(["/bin/ps", "-axo", "pid=,command="], check=True, capture_output=True, text=True)
        for line in listing.stdout.splitlines():
            pid, _, command = line.strip().partition(" ")
            yield int(pid), command.split()
        return
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                raw = (entry / "cmdline").read_bytes()
                yield int(entry.name), [part.decode(errors="replace") for part in raw.split(b"\0") if part]
