"""The planner's half of a planner process: who owns which Pool, and when to plan it.

One thread plans (so that the warm world needs no lock) while one of each Pool commits, one renews leases, one asks for
queues, since a broker that is away makes whoever asks it wait; Celery's own thread only sets a flag. A planner that
owns a Pool subscribes to the Pool's queue; a standby does not, so that no poke is lost on it.
"""

import threading
import time
from typing import Protocol

import structlog

from controlplane import telemetry
from controlplane.bootstrap import Container
from controlplane.core.facts.collisions import Collision, Unavailable
from controlplane.core.ids import PoolId
from controlplane.services.overlap import Overlap
from controlplane.services.scheduling import Planner, Step

log = structlog.get_logger(__name__)
RENEW_SECONDS = 1.0
STANDBY_SECONDS = 0.3  # between two looks whether a Pool is to be had
HUNG_SECONDS = 60.0  # far more than a cycle may take
CYCLES_IN_A_ROW_MAX = 50  # then other Pools get their turn


class Subscribe(Protocol):
    """Listens to a Pool's queue, or stops listening."""

    def __call__(self, pool: PoolId, *, on: bool) -> bool:
        """Take up (`on`) or leave the Pool's queue; False if it could not be done now. Must not raise."""
        ...


class PlannerLoop:
    """Plans every Pool that this process holds the lease of."""

    def __init__(self, container: Container, owner: str, subscribe: Subscribe) -> None:
        """`owner` must be unique to this process; `subscribe(pool, on)` listens to the Pool's queue or stops."""
        self._container = container
        self._owner = owner
        self._subscribe = subscribe
        self._planners: dict[PoolId, Planner] = {}
        self._overlaps: dict[PoolId, Overlap] = {}
        self._held: set[PoolId] = set()
        self._heard: set[PoolId] = set()  # whose queues this process reads
        self._woken = threading.Event()
        self._stop = threading.Event()
        self._looked_at = time.monotonic()
        self._threads = [
            threading.Thread(target=self._plan_for_ever, name="planner", daemon=True),
            threading.Thread(target=self._renew_for_ever, name="planner-lease", daemon=True),
            threading.Thread(target=self._subscribe_for_ever, name="planner-queues", daemon=True),
        ]

    def start(self) -> None:
        """Begin planning and renewing."""
        for thread in self._threads:
            thread.start()

    def wake(self, _pool: int) -> None:
        """Look for work now; called by the poke's task."""
        self._woken.set()

    def makes_progress(self) -> bool:
        """Whether planning goes on: each of its threads lives, and no cycle hangs."""
        is_recent = time.monotonic() - self._looked_at < HUNG_SECONDS + self._container.settings.sweep_seconds
        return is_recent and all(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """End, and let the next planner take over at once."""
        self._stop.set()
        self._woken.set()
        for thread in self._threads[:2]:
            thread.join(timeout=self._container.settings.planner_lease_seconds)
        for overlap in self._overlaps.values():
            overlap.close()
        for planner in self._planners.values():
            planner.let_go()

    def _plan_for_ever(self) -> None:
        while not self._stop.is_set():
            self._woken.wait(timeout=self._container.settings.sweep_seconds / 2)
            self._woken.clear()
            self._looked_at = time.monotonic()
            for pool, overlap in list(self._overlaps.items()):
                self._plan(pool, overlap)

    def _plan(self, pool: PoolId, overlap: Overlap) -> None:
        if pool not in self._held:
            return
        began = self._looked_at = time.monotonic()

        def told(step: Step) -> bool:
            nonlocal began
            self._looked_at = time.monotonic()
            if step is Step.AGAIN:
                telemetry.CYCLES.labels(str(pool)).inc()
                telemetry.CYCLE_SECONDS.labels(str(pool)).observe(self._looked_at - began)
            began = self._looked_at
            return not self._stop.is_set()

        try:
            overlap.run(CYCLES_IN_A_ROW_MAX, told)
        except (Collision, Unavailable) as error:  # the warm world is as it was read, whatever was written
            log.warning("cycle not committed", pool=pool, error=type(error).__name__, text=str(error)[:200])
        except Exception as error:
            log.exception("cycle failed", pool=pool, error=type(error).__name__)
            self._planners[pool].forget()

    def _subscribe_for_ever(self) -> None:
        while not self._stop.wait(RENEW_SECONDS):
            for pool in self._held ^ self._heard:
                on = pool in self._held
                if self._subscribe(pool, on=on):
                    (self._heard.add if on else self._heard.discard)(pool)
                    self._woken.set()  # what was sent before anybody listened

    def _renew_for_ever(self) -> None:
        while True:
            try:
                self._renew()
            except Exception as error:  # noqa: BLE001 - the database may be away; leases lapse by themselves then
                log.warning("lease not renewed", error=type(error).__name__, text=str(error)[:200])
            if self._stop.wait(RENEW_SECONDS if self._held.issuperset(self._planners) else STANDBY_SECONDS):
                return

    def _renew(self) -> None:
        with self._container.uow_factory() as uow:
            pools = [pool for pool, _ in uow.planning.pools()]
        for pool in pools:
            planner = self._planners.get(pool)
            if planner is None:
                planner = Planner(pool, self._owner, self._container.planning_tools())
                self._planners[pool] = planner
                self._overlaps[pool] = Overlap(planner)
            held = planner.take()
            if held != (pool in self._held):
                (self._held.add if held else self._held.discard)(pool)
                log.info("planner lease", pool=pool, held=held)
                self._woken.set()
