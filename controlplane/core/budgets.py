"""Limits beside quota: device-hours per stretch of the calendar, and how many Workloads may be under way at once.

A hard budget stops admission, in its Queue and below, as soon as what was used since its period began reaches it: what
the ledger has settled, and what live Attempts have used up to now. It stops nothing that runs, so a period may end with
more than its budget: by what runs on. A soft one puts its Queue behind its siblings. Both begin anew with each period.

`most_running` counts live Attempts, also those that are being stopped. Each Pool's planner keeps it with what it knows
of the others; two that decide in the same moment may pass it by what both admit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from controlplane.core.demand import PodSet, Workload
from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.quota import QuotaTree
from controlplane.core.reasons import Reason, ReasonCode, reason
from controlplane.core.resources import times
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Budget, Period, Spent

EVERY_FLAVOR = "*"
HOUR = 3_600
_NONE: Mapping[str, tuple[QueueId, "Balance"]] = MappingProxyType({})
_SECOND = timedelta(seconds=1)
_MONTHS = {Period.MONTH: 1, Period.QUARTER: 3, Period.YEAR: 12}


def period_of(per: Period, now: datetime) -> tuple[datetime, datetime]:
    """When the period that `now` lies in began, and when the next one begins; in UTC, weeks from Monday."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if per is Period.DAY:
        return day, day + timedelta(days=1)
    if per is Period.WEEK:
        monday = day - timedelta(days=day.weekday())
        return monday, monday + timedelta(days=7)
    length = _MONTHS[per]
    months = day.year * 12 + (day.month - 1) // length * length
    return _first_of(months), _first_of(months + length)


def used_of(spent: Spent | None, per: Period, now: datetime) -> int:
    """Device-seconds used from the period's beginning up to `now`."""
    if spent is None:
        return 0
    began, _ = period_of(per, now)
    if spent.began is not None and spent.began != began:  # read in the period before: what ran then may still run
        return times(spent.units, (now - began) // _SECOND)
    return spent.device_seconds + max(0, times(spent.units, (now - began) // _SECOND) - spent.late)


@dataclass(frozen=True, slots=True)
class Balance:
    """One Queue's budget as it stands: device-seconds used of it, and when it begins anew."""

    budget: Budget
    used: int
    until: datetime

    @property
    def left(self) -> int:
        """Device-seconds; never below 0."""
        return max(0, self.budget.device_hours * HOUR - self.used)


def balances(
    queue: QueueId, budgets: Iterable[Budget], spent: Mapping[tuple[QueueId, str, Period], Spent], now: datetime
) -> tuple[Balance, ...]:
    """Budgets of one Queue as they stand."""
    return tuple(
        Balance(each, used_of(spent.get((queue, each.flavor, each.per)), each.per, now), period_of(each.per, now)[1])
        for each in budgets
    )


class Allowances:
    """What budgets and numbers of live Attempts leave to one cycle; follows what the cycle admits."""

    def __init__(self, snapshot: Snapshot, tree: QuotaTree, now: datetime) -> None:
        """Only Queues that are asked for are looked at: most of 100,000 have nothing waiting."""
        self._snapshot, self._tree, self._now = snapshot, tree, now
        self._spent = {(each.queue, each.flavor, each.per): each for each in snapshot.spent}
        self._balances: dict[QueueId, tuple[Balance, ...]] = {}
        self._used_up: dict[QueueId, dict[str, tuple[QueueId, Balance]]] = {}
        self._bounded: dict[QueueId, tuple[QueueId, ...]] = {}
        self._live: dict[QueueId, int] | None = None

    def refuses(self, workload: Workload) -> Reason | None:
        """Why no hard budget has anything left for it; None if some choice of Flavors may go on."""
        used_up = self._hard(workload.queue)
        for pod_set in workload.pod_sets if used_up else ():
            if pod_set.devices and pod_set.flavors:
                if EVERY_FLAVOR in used_up:
                    return self._said(*used_up[EVERY_FLAVOR])
                if all(flavor in used_up for flavor in pod_set.flavors):
                    return self._said(*used_up[pod_set.flavors[0]])
        return None

    def narrowed(self, workload: Workload) -> Workload:
        """The same without the Flavors whose budgets are used up, where it has others to choose."""
        used_up = self._hard(workload.queue)
        if not used_up:
            return workload
        return replace(workload, pod_sets=tuple(_without(pod_set, used_up) for pod_set in workload.pod_sets))

    def is_over(self, queue: QueueId) -> bool:
        """Whether a soft budget of this very Queue is used up: it goes behind its siblings."""
        if not self._spent:  # who has used nothing is over no budget
            return False
        return any(not at.budget.is_hard and at.left == 0 for at in self._of(queue))

    def crowded(self, workload: Workload) -> Reason | None:
        """The Queue on its way to the root that has as many Workloads under way as it may."""
        for queue in self._bounds(workload.queue):
            most, live = self._snapshot.queues[queue].most_running, self._counted().get(queue, 0)
            if most is not None and live >= most:
                path = self._snapshot.queues[queue].path
                return reason(ReasonCode.MOST_RUNNING, queue=path, limit=most, running=live)
        return None

    def admitted(self, workload: Workload) -> None:
        """It starts, so it counts."""
        for queue in self._bounds(workload.queue):
            live = self._counted()
            live[queue] = live.get(queue, 0) + 1

    def _hard(self, leaf: QueueId) -> Mapping[str, tuple[QueueId, Balance]]:
        """By Flavor, the hard budget nearest to the leaf that is used up."""
        if not self._spent:
            return _NONE
        found = self._used_up.get(leaf)
        if found is None:
            found = self._used_up[leaf] = {}
            for queue in self._tree.path(leaf):
                for at in self._of(queue):
                    if at.budget.is_hard and at.left == 0:
                        found.setdefault(at.budget.flavor, (queue, at))
        return found

    def _of(self, queue: QueueId) -> tuple[Balance, ...]:
        found = self._balances.get(queue)
        if found is None:
            found = self._balances[queue] = balances(
                queue, self._snapshot.queues[queue].budgets, self._spent, self._now
            )
        return found

    def _said(self, queue: QueueId, at: Balance) -> Reason:
        return reason(
            ReasonCode.BUDGET_SPENT,
            queue=self._snapshot.queues[queue].path,
            used=at.used // HOUR,
            limit=at.budget.device_hours,
            flavor="all flavors" if at.budget.flavor == EVERY_FLAVOR else at.budget.flavor,
            period=at.budget.per.value,
            until=at.until.isoformat(timespec="seconds"),
        )

    def _bounds(self, leaf: QueueId) -> Sequence[QueueId]:
        """Queues on the way to the root that say how many may be under way."""
        found = self._bounded.get(leaf)
        if found is None:
            path = self._tree.path(leaf)
            found = tuple(queue for queue in path if self._snapshot.queues[queue].most_running is not None)
            self._bounded[leaf] = found
        return found

    def _counted(self) -> dict[QueueId, int]:
        """Live Attempts in and below each Queue; counted when somebody asks."""
        if self._live is None:
            live = self._live = {}
            leaves: dict[QueueId, int] = dict(self._snapshot.running_elsewhere)
            for attempt in self._snapshot.running.values():
                leaves[attempt.queue] = leaves.get(attempt.queue, 0) + 1
            for leaf, count in leaves.items():
                for queue in self._tree.path(leaf) if leaf in self._tree else ():
                    live[queue] = live.get(queue, 0) + count
        return self._live


def next_periods(spent: Iterable[Spent], now: datetime) -> list[datetime]:
    """When budgets begin anew, each moment once."""
    return sorted({period_of(per, now)[1] for per in {each.per for each in spent}})


def _first_of(months: int) -> datetime:
    return datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)


def _without(pod_set: PodSet, used_up: Mapping[str, object]) -> PodSet:
    kept = [at for at, flavor in enumerate(pod_set.flavors) if flavor not in used_up]
    if len(kept) == len(pod_set.flavors) or not kept:
        return pod_set
    flavors: tuple[FlavorName, ...] = tuple(pod_set.flavors[at] for at in kept)
    return replace(pod_set, flavors=flavors, speeds=tuple(pod_set.speeds[at] for at in kept if pod_set.speeds))
