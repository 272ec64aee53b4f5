"""Starts, freezes and ends the programs of a test cluster so that none of them can outlive the test run.

Each child asks the kernel to be killed when the thread that started it ends: start them from the main thread. What a
program says goes into a file named after it.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
LOG_BYTES_SHOWN = 2_000
EXIT_SECONDS_MAX = 5
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class ProgramDied(Exception):
    """A program of the cluster ended by itself; the message carries its last words."""


class Program:
    """One running program and its log."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.command = list(command)
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert threading.current_thread() is threading.main_thread(), "children would die with this thread"
        with self.log.open("ab") as sink:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,  # Ctrl-C is for the test run, which then ends its children in the right order
                preexec_fn=dying_with_us(),  # noqa: PLW1509 - two system calls, no lock is taken in there
            )

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def check(self) -> None:
        """Raise ProgramDied if it has ended."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise ProgramDied(f"{self.name} ended with {code}:\n{self.last_words()}")

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it at once; its data is thrown away anyway."""
        if self.is_running():
            os.kill(self.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait(EXIT_SECONDS_MAX)
        self._process = None  # from here on its absence is wanted

    def last_words(self) -> str:
        return self.log.read_bytes()[-LOG_BYTES_SHOWN:].decode(errors="replace") if self.log.exists() else ""


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; somebody may still take one, so a start that fails is tried again."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def dying_with_us() -> Callable[[], None]:
    """For a child to call before it becomes another program: it will be killed when the thread that made it ends."""
    parent = os.getpid()

    def ask() -> None:
        if _LIBC is not None:
            _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it ended between fork and prctl
                os._exit(1)

    return ask
