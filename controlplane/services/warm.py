"""A planner's warm world: rows as last read, what is being committed on top of them, and the log that replay needs.

It belongs to one thread. Each change that reaches the world is logged, by row, until a cycle is stored with it.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from controlplane.core.assumed import Assumption
from controlplane.core.facts.planning import Change, Horizon, Key, Reading, Table
from controlplane.core.ids import PoolId, WorkloadId
from controlplane.core.index import FleetIndex
from controlplane.core.plan import Plan
from controlplane.core.quota import QuotaTree
from controlplane.core.records import World
from controlplane.core.snapshot import Snapshot
from controlplane.services.cycles import Written
from controlplane.services.ports.planning import SnapshotReader


@dataclass(frozen=True, slots=True)
class Log:
    """What happened to the world since the cycle that was stored before; of a base, every row."""

    changes: tuple[Change, ...]
    is_base: bool
    assumes: bool


class WarmWorld:
    """One Pool's world between two loads of it."""

    def __init__(self, pool: PoolId, base_every: int) -> None:
        """Empty; the first reading loads it whole. Every `base_every`th log is a base."""
        self._pool = pool
        self._base_every = base_every
        self._world = World(pool)
        self._horizon: Horizon | None = None
        self._assumption: Assumption | None = None
        self._log: dict[tuple[Table, Key], Change] = {}  # by row: a Pool where nothing is decided must not grow
        self._assumes = False
        self._since_base = 0

    def read(
        self, reader: SnapshotReader, left_over: Collection[WorkloadId] = (), tried: Collection[int] = ()
    ) -> Reading | None:
        """Bring it up to date; what is being committed stays on top. `left_over` is the cycle's before.

        None, and nothing changed, if one of the transactions that commit it was over when this was read: whether its
        rows are in it is known when that commit has told its end.
        """
        reading = reader.read(self._pool, self._horizon)
        if any(reading.is_over(transaction) for transaction in tuple(tried)):
            return None
        self._world.rename(reading.pool_name)
        assumption = self._assumption
        self._apply(reading.changes if assumption is None else assumption.merged(reading.changes))
        self._apply(self._world.of_left_over(left_over))
        self._horizon = reading.horizon
        return reading

    @property
    def horizon(self) -> Horizon:
        """Up to where it was read."""
        assert self._horizon is not None
        return self._horizon

    def freeze(self) -> tuple[Snapshot, FleetIndex, QuotaTree]:
        """What a cycle is planned on."""
        snapshot = self._world.freeze()
        index = self._world.warm_index(snapshot)
        return snapshot, index, self._world.warm_tree(snapshot, index)

    def log(self) -> Log:
        """Take what is to be stored with the cycle that was planned on the world as it is."""
        is_base = self._since_base == 0 or self._since_base >= self._base_every
        changes = self._world.changes() if is_base else tuple(self._log.values())
        log = Log(changes, is_base, self._assumes and not is_base)
        self._since_base = 1 if is_base else self._since_base + 1
        self._log, self._assumes = {}, False
        return log

    def assume(self, snapshot: Snapshot, plan: Plan, now: datetime) -> None:
        """Go on as if all of the Plan were committed, after its log was taken."""
        self._assumption = Assumption(snapshot, plan, now)
        self._world.apply(self._assumption.changes)
        self._assumes = True

    def lose(self) -> None:
        """The cycle whose log was taken may not be stored: the next one that is stores every row."""
        self.undo()
        self._since_base = 0

    def undo(self) -> None:
        """A part of what was assumed was not committed: all of it is read anew."""
        if self._assumption is not None:
            changes = self._assumption.undo(self._world.freeze().nodes)
            self._assumption = None
            self._apply(changes)

    def keep(self, written: Written) -> None:
        """All of what was assumed is committed, and need not be read back."""
        if self._assumption is not None:
            before, self._assumption = self.horizon, None
            self._horizon = replace(
                before,
                own=(*before.own, written.own),
                nodes_again=(*before.nodes_again, *written.nodes_again),
                workloads_again=(*before.workloads_again, *written.workloads_again),
            )

    def _apply(self, changes: Iterable[Change]) -> None:
        self._note(self._world.apply(changes))

    def _note(self, changes: Iterable[Change]) -> None:
        """The last change of a row counts; a whole node comes before the counters that follow it."""
        for change in changes:
            if change.table is Table.NODES:
                self._log.pop((Table.HELD, change.key), None)
            self._log.pop((change.table, change.key), None)
            self._log[change.table, change.key] = change
