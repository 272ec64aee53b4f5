"""Processes of the workers as an operator starts them, against a test's own servers."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.databases import Database

STOP_SECONDS = 10
ROOT = Path(__file__).parents[2]


class Workers:
    """Starts workers, planners and beats; each is ended with the test."""

    def __init__(self, database: Database, redis_url: str, folder: Path, **settings: str) -> None:
        self._environment = {
            **os.environ,
            **database.environment(),
            "REDIS_URL": redis_url,
            "MUSTER_SWEEP_SECONDS": "1",
            **{f"MUSTER_{name.upper()}": text for name, text in settings.items()},
        }
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, role: str, **settings: str) -> subprocess.Popen[bytes]:
        number = len(self._running)
        with (self._folder / f"{role}-{number}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "controlplane.workers.run", role],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**self._environment, **{f"MUSTER_{name.upper()}": text for name, text in settings.items()}},
            )
        self._running.append(process)
        return process

    def log(self) -> str:
        """What all of them said, for a failing test to show."""
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')}" for path in self._folder.glob("*.log"))

    def stop(self) -> None:
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def workers(database: Database, redis_url: str, folder: Path, **settings: str) -> Iterator[Workers]:
    started = Workers(database, redis_url, folder, **settings)
    try:
        yield started
    finally:
        started.stop()
