"""The sweep that every worker and planner runs straight on Postgres, so that work ends with Redis switched off.

It also writes the process's heartbeat: a process is alive when it comes back to its sweep and reaches the
database, not when its pid exists.
"""

import threading
import time
from collections.abc import Callable

import structlog

from controlplane import telemetry
from controlplane.bootstrap import Container
from controlplane.workers.periodic import run_due

log = structlog.get_logger(__name__)
BACK_OFF_SECONDS_MAX = 30
HUNG_SECONDS = 300  # each statement ends in seconds, but one sweep may run every job, and the long ones page


class Sweeper:
    """A daemon thread that runs due periodic jobs every `sweep_seconds` until `stop`."""

    def __init__(
        self, container: Container, name: str, kind: str, makes_progress: Callable[[], bool] = lambda: True
    ) -> None:
        """`name` is the process's own, `kind` one of worker, planner, beat; without progress there is no heartbeat."""
        self._container = container
        self._name = name
        self._kind = kind
        self._makes_progress = makes_progress
        self._stop = threading.Event()
        self._turned_at = time.monotonic()
        self._reached_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        """Begin sweeping."""
        self._thread.start()

    def stop(self) -> None:
        """End after the current sweep."""
        self._stop.set()

    def is_hung(self) -> bool:
        """Whether this sweep, or what the process is there for, has not come round for far too long."""
        is_recent = time.monotonic() - self._turned_at < HUNG_SECONDS
        return not (is_recent and self._thread.is_alive() and self._makes_progress())

    def seconds_since_reached(self) -> float | None:
        """How long ago this process last wrote its heartbeat; None: never yet."""
        return None if self._reached_at is None else time.monotonic() - self._reached_at

    def _run(self) -> None:
        failures = 0
        pause = self._container.settings.sweep_seconds
        while not self._stop.wait(min(pause * 2**failures, BACK_OFF_SECONDS_MAX) if failures else pause):
            self._turned_at = time.monotonic()
            try:
                self.sweep()
                failures = 0
            except Exception as error:  # noqa: BLE001 - the database may be away; the sweep must outlive that
                failures = min(failures + 1, 5)
                log.warning("sweep failed", error=type(error).__name__, text=str(error)[:200])

    def sweep(self) -> None:
        """Say that this process is alive, and run what is due, once. A long job delays the next heartbeat, not this."""
        if self._makes_progress():
            with self._container.uow_factory() as uow:
                uow.planning.heartbeat(self._name, self._kind)
            self._reached_at = time.monotonic()
        worked = run_due(self._container)
        telemetry.SWEPT.labels(kind=self._kind).inc(worked)
