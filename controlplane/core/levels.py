"""Who stands in the way of a waiting Workload at each level of the quota tree, as numbers: limits, and who uses them.

From its leaf to the root, for each Flavor that it asks for, as things are before the next cycle. Where a limit stops
it, those who hold most below that Queue are named; whether the asker may know them is for who tells (`services`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest

from controlplane.core.demand import RunningAttempt, Workload
from controlplane.core.entitlement import first_choice
from controlplane.core.ids import FlavorName, QueueId, WorkloadId
from controlplane.core.index import FleetIndex
from controlplane.core.quota import QuotaTree
from controlplane.core.resources import add
from controlplane.core.scenario import Scenario
from controlplane.core.snapshot import Snapshot

HOLDERS_MAX = 5


@dataclass(frozen=True, slots=True)
class Holder:
    """A live Attempt and the units that it holds."""

    workload: WorkloadId
    queue: QueueId
    units: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Level:
    """One Queue on the way to the root. `used` is what reaches its account, `limit` None where it sets none of its own.

    `holders` and `kept` (by earmarks of others below it) are counted where `stops` is true.
    """

    queue: QueueId
    flavor: FlavorName
    wanted: int
    used: int
    limit: int | None
    available: int
    stops: bool
    holders: tuple[Holder, ...] = ()
    kept: int = 0


def levels(
    snapshot: Snapshot,
    now: datetime,
    workload: Workload,
    index: FleetIndex | None = None,
    tree: QuotaTree | None = None,
) -> tuple[Level, ...]:
    """Leaf first, Flavor by Flavor of its first choices; what earmarks keep for others counts as used.

    `index` and `tree`, if given, are warm ones of this Snapshot, and come back as they were.
    """
    scenario = Scenario(snapshot, now, index, tree)
    scenario.open_earmark(workload.id)
    found: tuple[Level, ...] = ()
    if workload.queue in scenario.tree:
        asked = first_choice(workload)
        found = tuple(level for flavor, wanted in asked for level in _of(scenario, workload, flavor, wanted))
    scenario.rollback(scenario.start)
    return found


def _of(scenario: Scenario, workload: Workload, flavor: FlavorName, wanted: int) -> Iterable[Level]:
    snapshot, tree = scenario.snapshot, scenario.tree
    kept = scenario.kept_for_others(workload.id)
    stopper = tree.limit(workload.queue, flavor).queue
    is_short = tree.available(workload.queue, flavor) < wanted
    for queue in tree.path(workload.queue):
        account = tree.account(queue, flavor)
        own = account.s if account.parent is None else None
        limit = own if account.b is None else add(account.s, account.b)
        stops = is_short and queue == stopper
        yield Level(
            queue=queue,
            flavor=flavor,
            wanted=wanted,
            used=account.u,
            limit=limit,
            available=max(0, account.available()),
            stops=stops,
            holders=_holders(snapshot, tree, queue, flavor) if stops else (),
            kept=kept.get((queue, flavor), 0) if stops else 0,
        )


def _holders(snapshot: Snapshot, tree: QuotaTree, queue: QueueId, flavor: FlavorName) -> tuple[Holder, ...]:
    """Those below it that hold most, the oldest of equals first."""
    found = (
        Holder(attempt.workload, attempt.queue, units, attempt.placed_at)
        for attempt in snapshot.running.values()
        for units in [_units(attempt, flavor)]
        if units and attempt.queue in tree and queue in tree.path(attempt.queue)
    )
    return tuple(nsmallest(HOLDERS_MAX, found, key=lambda each: (-each.units, each.since, each.workload)))


def _units(attempt: RunningAttempt, flavor: FlavorName) -> int:
    return sum(units for name, units in attempt.charges if name == flavor)
