"""Planning a Pool: read what changed, plan, recheck, commit; and the report-only rebalancing pass.

`Planner` is the warm half: it keeps one Pool's world in memory between cycles and belongs to one thread. What a
cycle commits is `commit`'s; whoever owns the planner lease may plan, and the commit checks its epoch again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

import structlog

from controlplane.core.assumed import can_assume
from controlplane.core.budgets import next_periods
from controlplane.core.cycle import plan_cycle
from controlplane.core.facts.planning import PlannerLease, Reading
from controlplane.core.history import use_after
from controlplane.core.ids import PoolId, WorkloadId
from controlplane.core.index import FleetIndex
from controlplane.core.measure import measure
from controlplane.core.plan import Plan, goes_on, left_over
from controlplane.core.quota import QuotaTree
from controlplane.core.reasons import Reason, ReasonCode
from controlplane.core.records import World
from controlplane.core.scenario import owned_here
from controlplane.core.snapshot import Snapshot
from controlplane.services.commit import commit
from controlplane.services.cycles import Cycle, Texts, Written
from controlplane.services.history import PoolHistory
from controlplane.services.ports.planning import SnapshotReader
from controlplane.services.ports.unit_of_work import UnitOfWork, UnitOfWorkFactory, run
from controlplane.services.warm import WarmWorld

LOOK_AGAIN_SECONDS = 30

log = structlog.get_logger(__name__)
NEXT_TURN_SECONDS = 1


class Step(StrEnum):
    """What one look at a Pool came to."""

    IDLE = "idle"  # nothing was due, or nothing more can be done now
    AGAIN = "again"  # it decided something, or there is newer work
    DEPOSED = "deposed"  # another planner owns the Pool now


class Deposed(Exception):
    """The lease's epoch is over; nothing was written."""


@dataclass(frozen=True, slots=True)
class PlanningTools:
    """What a planner works with. `observe(kind, written, dropped)` is told of each commit, as `commit` tells it."""

    uow_factory: UnitOfWorkFactory
    reader: SnapshotReader
    lease_seconds: int
    base_every: int
    observe: Callable[[str, int, int], None] = field(default=lambda _kind, _written, _dropped: None)


@dataclass(frozen=True, slots=True)
class Planned:
    """A cycle that is planned and not committed: under which lease, on what, up to which dirty version."""

    lease: PlannerLease
    version: int
    reading: Reading
    snapshot: Snapshot
    plan: Plan


@dataclass(slots=True)
class Flight:
    """A cycle on its way into the database: what is written, None where nothing is. `tried` are its transactions."""

    planned: Planned
    world: WarmWorld
    cycle: Cycle | None
    tried: list[int] = field(default_factory=list)
    written: Written | None = None  # as soon as it is committed


@dataclass(frozen=True, slots=True)
class Landed:
    """What became of a flight; without `written` it came to nothing, and the Pool is another planner's."""

    written: Written | None
    is_newer: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all was written that was decided, so that what was planned on it stands."""
        return self.written is not None and not self.written.fallen


class Planner:
    """One Pool's planner: its lease, its warm world, its cycles.

    A cycle goes through `plan`, `begin`, `write` and `end`. Only `write` may run on another thread, while the next
    cycle is planned on the world as it will be (`overlap`); `step` does all of them one after the other.
    """

    def __init__(self, pool: PoolId, owner: str, tools: PlanningTools) -> None:
        """`owner` names this process in the lease, uniquely."""
        self._pool = pool
        self._owner = owner
        self._tools = tools
        self._lease: PlannerLease | None = None
        self._epoch = -1
        self.forget()

    def take(self) -> bool:
        """Take or renew the lease; called by the renewing thread. False: another planner owns the Pool."""
        with self._tools.uow_factory() as uow:
            self._lease = uow.planning.take_lease(self._pool, self._owner, self._tools.lease_seconds)
        return self._lease is not None

    def let_go(self) -> None:
        """Give the lease back, so that the next planner need not wait for it to lapse."""
        with self._tools.uow_factory() as uow:
            uow.planning.drop_lease(self._pool, self._owner)
        self._lease = None

    def forget(self) -> None:
        """Drop the warm world; the next step loads it whole."""
        self._world = WarmWorld(self._pool, self._tools.base_every)
        self._said: dict[WorkloadId, tuple[Reason, ...]] = {}
        self._left_over: frozenset[WorkloadId] = frozenset()
        self._history = PoolHistory(self._pool)

    def step(self) -> Step:
        """Look whether the Pool has work, and if so plan and commit one cycle."""
        planned = self.plan()
        return Step.IDLE if planned is None else self.commit(planned)

    def plan(self, flight: Flight | None = None) -> Planned | None:
        """Read what changed and plan on it, with no transaction open; None if there is nothing to plan.

        With a flight on its way, it is planned on what that will leave; None, too, if it has just arrived: `end` it,
        and plan again.
        """
        lease = self._lease
        if lease is None:
            return None
        with self._tools.uow_factory() as uow:
            version, is_due = uow.planning.is_due(self._pool)
            is_recovering = uow.agents.plane().recovering_since is not None
        if is_recovering:
            return None  # the rows speak of a past; it stays due
        if lease.epoch != self._epoch:
            if flight is not None:
                return None
            self.forget()
            self._epoch = lease.epoch
        elif not is_due:
            return None
        reading = self._world.read(self._tools.reader, self._left_over, () if flight is None else flight.tried)
        if reading is None:
            return None
        snapshot, index, tree = self._world.freeze()
        plan = plan_cycle(snapshot, reading.policy, reading.now, index, tree)
        self._remember(snapshot, plan, reading, index, tree)
        return Planned(lease, version, reading, snapshot, plan)

    def commit(self, planned: Planned) -> Step:
        """Write what still holds on fresh rows, and note up to where the Pool is planned."""
        flight = self.begin(planned)
        landed: Landed | None = None
        try:
            landed = self.write(flight)
        finally:
            step = self.end(flight, landed)
        return step

    def _remember(self, snapshot: Snapshot, plan: Plan, reading: Reading, index: FleetIndex, tree: QuotaTree) -> None:
        """Keep account of what is contended, and now and then reckon it into the weights of the next cycles."""
        policy, now, lease = reading.policy, reading.now, self._lease
        if self._history.wants_a_look(policy, now):
            self._history.look(snapshot, policy, use_after(snapshot, plan, tree, now), now)
        if lease is None or not self._history.is_due(policy, now):
            return

        def work(uow: UnitOfWork) -> bool:
            if not uow.planning.lock_pool(self._pool, lease.epoch):
                return False  # whoever owns the Pool now keeps account
            self._history.reckon(uow, policy, tree, owned_here(snapshot, index), now)
            return True

        try:
            if run(self._tools.uow_factory, work):
                self._history.reckoned(now)
        except Exception:  # whatever becomes of the past, the present is planned; what was gathered is kept
            log.exception("history not reckoned", pool=self._pool)
            self._history.put_off(now)

    def begin(self, planned: Planned) -> Flight:
        """What is to be written of a cycle; from here on, the world counts as if it were."""
        units_max = planned.reading.policy.work_units_max
        self._left_over = left_over(planned.plan, units_max, planned.snapshot.left_over)
        said = self._new_reasons(planned.plan)
        if not planned.plan.decisions and not said:
            return Flight(planned, self._world, None)  # a cycle that changes nothing is not stored
        log = self._world.log()
        cycle = Cycle(
            lease=planned.lease,
            snapshot=planned.snapshot,
            plan=planned.plan,
            policy=planned.reading.policy,
            now=planned.reading.now,
            changes=log.changes,
            is_base=log.is_base,
            said=said,
            horizon=self._world.horizon,
            assumes=log.assumes,
        )
        self._said.update(said)
        if can_assume(planned.plan):
            self._world.assume(planned.snapshot, planned.plan, planned.reading.now)
        return Flight(planned, self._world, cycle)

    def write(self, flight: Flight) -> Landed:
        """Commit it in one short transaction, number its directives, and note up to where the Pool is planned."""
        planned, cycle, written = flight.planned, flight.cycle, Written()
        if cycle is not None:
            texts = Texts.of(cycle)

            def work(uow: UnitOfWork) -> Written:
                if not uow.planning.lock_pool(self._pool, planned.lease.epoch):
                    raise Deposed
                own = uow.planning.transaction()
                flight.tried.append(own)
                return commit(uow, cycle, texts, self._tools.observe, own)

            try:
                flight.written = written = run(self._tools.uow_factory, work)
            except Deposed:
                return Landed(None)
            self._number(planned.snapshot, planned.plan)
        now, most = planned.reading.now, planned.reading.policy.work_units_max
        has_more = goes_on(planned.plan, most, planned.snapshot.left_over)
        check = now if has_more else next_moment(planned.snapshot, planned.plan, now)
        with self._tools.uow_factory() as uow:
            is_newer = not uow.planning.settle_pool(self._pool, planned.version, check)
        return Landed(written, is_newer or has_more)

    def end(self, flight: Flight, landed: Landed | None) -> Step:
        """Take note of what became of it; None: something failed, and perhaps nothing is written."""
        if flight.world is self._world:
            self._note(flight)
        if landed is None:
            return Step.IDLE
        if landed.written is None:
            self.forget()
            return Step.DEPOSED
        return Step.AGAIN if landed.written.decisions or landed.is_newer else Step.IDLE

    def _note(self, flight: Flight) -> None:
        if flight.cycle is None:
            return
        if flight.written is None:
            self._world.lose()
            self._said = {workload: why for workload, why in self._said.items() if workload not in flight.cycle.said}
        elif flight.written.fallen:
            self._world.undo()
        else:
            self._world.keep(flight.written)

    def _number(self, snapshot: Snapshot, plan: Plan) -> None:
        """Give the new directives their numbers, in a transaction of its own that is over at once."""
        if plan.decisions:
            with self._tools.uow_factory() as uow:
                for cluster in uow.agents.number_directives(sorted(snapshot.clusters)):
                    uow.notify_cluster(cluster)  # only a directive with a number is told

    def _new_reasons(self, plan: Plan) -> dict[WorkloadId, tuple[Reason, ...]]:
        """Reasons of another kind than last time. Numbers alone move too often; `explain` works them out anew."""
        self._said = {workload: said for workload, said in self._said.items() if workload in plan.reasons}
        return {
            workload: reasons
            for workload, reasons in plan.reasons.items()
            if _codes(self._said.get(workload, ())) != _codes(reasons)
        }


def _codes(reasons: tuple[Reason, ...]) -> list[ReasonCode]:
    return [reason.code for reason in reasons]


def next_moment(snapshot: Snapshot, plan: Plan, now: datetime) -> datetime | None:
    """When to look again although nobody says so. None: nobody waits.

    Time alone ends a back-off, an earmark, an exclusion or a budget's period; and what another Pool gives back to a
    shared account wakes that Pool's planner only, so whoever waits is looked at again after a while in any case.
    """
    if plan.left_over:  # at once, as long as something is decided; in turns, where all that is left may not start
        return now if plan.decisions else now + timedelta(seconds=NEXT_TURN_SECONDS)
    if not plan.reasons:
        return None
    latest = now + timedelta(seconds=LOOK_AGAIN_SECONDS)
    moments = [workload.not_before for workload in snapshot.waiting.values() if workload.not_before is not None]
    moments += [earmark.until for earmark in snapshot.earmarks.values()]
    moments += [exclusion.until for exclusion in snapshot.exclusions]
    moments += next_periods(snapshot.spent, now)
    return min([latest, *(moment for moment in moments if moment > now)])


def expire_earmarks(uow: UnitOfWork, limit: int) -> int:
    """End earmarks whose time has passed and let their Pools be planned again."""
    pools = uow.planning.expire_earmarks(limit)
    for pool in pools:
        uow.wake_pool(pool)
    return len(pools)


def rebalance_once(uow_factory: UnitOfWorkFactory, reader: SnapshotReader) -> int:
    """Measure every Pool and store the report; nothing is moved."""
    with uow_factory() as uow:
        pools = uow.planning.pools()
    for pool, name in pools:
        world = World(pool, name)
        world.apply(reader.read(pool, None).changes)
        report = measure(world.freeze())
        with uow_factory() as uow:
            uow.planning.store_report(pool, report.as_record())
    return len(pools)
