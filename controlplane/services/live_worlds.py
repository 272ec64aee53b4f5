"""Live worlds for those who ask questions: one per Pool, remembered by a process, brought up to date for each question.

What a planner would plan on now, read like a planner reads it: whole the first time, then only what changed. Never
writes. A world that nobody asked for in a while is let go; at most `worlds_max` are kept. Answers take a while, so that
at most `questions_max` are waited for at once: the others of a process's threads are for those who ask nothing.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.core.facts.planning import Horizon
from controlplane.core.ids import PoolId
from controlplane.core.index import FleetIndex
from controlplane.core.policy import Policy
from controlplane.core.quota import QuotaTree
from controlplane.core.records import World
from controlplane.core.snapshot import Snapshot
from controlplane.services.errors import TooMany
from controlplane.services.ports.planning import SnapshotReader

WORLDS_MAX = 4
QUESTIONS_MAX = 16  # of the forty threads on which a process answers people
IDLE_MAX = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class LiveWorld:
    """One Pool now, with the index and the tree of its Snapshot; whoever plans on them gives them back as they were."""

    snapshot: Snapshot
    policy: Policy
    now: datetime
    index: FleetIndex
    tree: QuotaTree


class _Held:
    """A Pool's world and up to where it was read; used by whoever has its lock."""

    def __init__(self, pool: PoolId) -> None:
        self.lock = threading.Lock()
        self.asked_at: datetime | None = None
        self._pool = pool
        self._world = World(pool)
        self._horizon: Horizon | None = None

    def now(self, reader: SnapshotReader) -> LiveWorld:
        """Read what changed; whatever fails on the way, the next one reads it whole."""
        world, since = self._world, self._horizon
        self._world, self._horizon = World(self._pool), None
        reading = reader.read(self._pool, since)
        world.rename(reading.pool_name)
        world.apply(reading.changes)
        snapshot = world.freeze()
        index = world.warm_index(snapshot)
        tree = world.warm_tree(snapshot, index)
        self._world, self._horizon, self.asked_at = world, reading.horizon, reading.now
        return LiveWorld(snapshot, reading.policy, reading.now, index, tree)


class LiveWorlds:
    """Safe for threads; questions about one Pool are answered one after the other."""

    def __init__(
        self,
        reader: SnapshotReader,
        worlds_max: int = WORLDS_MAX,
        idle_max: timedelta = IDLE_MAX,
        questions_max: int = QUESTIONS_MAX,
    ) -> None:
        """Nothing is read yet."""
        self._reader, self._worlds_max, self._idle_max = reader, worlds_max, idle_max
        self._places = threading.BoundedSemaphore(questions_max)
        self._lock = threading.Lock()
        self._held: OrderedDict[PoolId, _Held] = OrderedDict()  # the last asked last

    @contextmanager
    def of(self, pool: PoolId) -> Iterator[LiveWorld]:
        """The Pool as it is now, for as long as the block lasts; raises TooMany."""
        if not self._places.acquire(blocking=False):
            raise TooMany("many ask why work waits, and each answer takes a while; ask again in a second")
        try:
            held = self._held_of(pool)
            with held.lock:
                world = held.now(self._reader)
                yield world
            self._let_go(world.now)
        finally:
            self._places.release()

    def _held_of(self, pool: PoolId) -> _Held:
        with self._lock:
            held = self._held.setdefault(pool, _Held(pool))
            self._held.move_to_end(pool)
            while len(self._held) > self._worlds_max:
                self._held.popitem(last=False)
        return held

    def _let_go(self, now: datetime) -> None:
        with self._lock:
            for pool, held in list(self._held.items()):
                if held.asked_at is not None and now - held.asked_at > self._idle_max:
                    del self._held[pool]
