"""Runs `muster` on a terminal of its own: it sees a tty, and somebody types."""

import contextlib
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Mapping

from tests.cli.running import SECONDS, Muster, Ran
from tests.support.databases import ROOT

CHUNK = 65_536


def on_a_terminal(muster: Muster, line: str, typed: str = "", told: Mapping[str, str] | None = None) -> Ran:
    """Its exit code and all that stood on the screen; `typed` is what somebody answers."""
    screen, theirs = pty.openpty()
    command = [sys.executable, "-m", "controlplane.cli.main", *shlex.split(line)]
    environment = {**muster.environment(told or {}), "TERM": "xterm", "PYTHONUTF8": "1"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment)
    os.close(theirs)
    os.write(screen, typed.encode())
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal is an error, not an empty read
        while part := os.read(screen, CHUNK):
            shown += part
    os.close(screen)
    return Ran(process.wait(SECONDS), shown.decode().replace("\r\n", "\n"), "")
