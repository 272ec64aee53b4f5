"""Reads what Queues with budgets have used, and how many Workloads are under way in other Pools.

What runs is known by its units, so a sum is right at any time until something starts or ends; a warm planner reads the
sums again after some seconds, and at once where budgets change or a period begins anew.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from controlplane.core.budgets import EVERY_FLAVOR, period_of
from controlplane.core.facts.planning import Change, Horizon, Key, Table
from controlplane.core.ids import PoolId, QueueId
from controlplane.core.tenancy import Budget, Period, Spent
from controlplane.db import spent_sql as sql

READ_AGAIN = timedelta(seconds=5)
Asked = tuple[tuple[QueueId, tuple[Budget, ...]], ...]
Read = tuple[datetime, object]  # when sums were read, and of which budgets and periods


@dataclass(slots=True)
class _Told:
    """Keys that a world of one Pool may have, whoever's it is."""

    spent: set[Key] = field(default_factory=set)
    live: set[Key] = field(default_factory=set)


class SpentReader:
    """Keeps per Pool what warm worlds may still have and must forget; what each has read is in its horizon."""

    def __init__(self) -> None:
        """Nothing read yet."""
        self._told: dict[PoolId, _Told] = defaultdict(_Told)

    def read(
        self, session: Session, pool: PoolId, now: datetime, since: Horizon | None
    ) -> tuple[list[Change], Read | None]:
        """Changes of SPENT and RUNNING_ELSEWHERE since a horizon, and what the next one says of sums."""
        told = self._told[pool]
        changes, read = self._spent(session, told, now, since)
        live = _running_elsewhere(session, pool)
        told.live |= live.keys()
        changes += [Change(Table.RUNNING_ELSEWHERE, key, live.get(key)) for key in sorted(told.live, key=repr)]
        return changes, read

    def _spent(
        self, session: Session, told: _Told, now: datetime, since: Horizon | None
    ) -> tuple[list[Change], Read | None]:
        asked = budgets(session)
        periods = asked, tuple(period_of(per, now)[0] for per in Period)
        if since is not None:
            at, before = since.spent or (None, None)
            is_new = at is not None and now - at < READ_AGAIN and before == periods
            if is_new or (not asked and not told.spent):
                return [], since.spent
        rows: dict[Key, Spent] = {_key(each): each for each in spent(session, asked, now)}
        told.spent |= rows.keys()
        return [Change(Table.SPENT, key, rows.get(key)) for key in sorted(told.spent, key=repr)], (now, periods)


def budgets(session: Session) -> Asked:
    """Every live Queue with budgets, in a fixed order."""
    return tuple((QueueId(row.id), budgets_of(row.budgets)) for row in session.execute(sql.BUDGETS))


def budgets_of(listed: Sequence[Mapping[str, Any]]) -> tuple[Budget, ...]:
    """As documents write them."""
    return tuple(
        Budget(each["flavor"], each["deviceHours"], Period(each["per"]), each.get("hard", False)) for each in listed
    )


def spent(session: Session, asked: Iterable[tuple[QueueId, tuple[Budget, ...]]], now: datetime) -> list[Spent]:
    """What these Queues have used of each of their budgets in its period."""
    wanted = {(queue, budget.flavor, budget.per) for queue, budgets in asked for budget in budgets}
    if not wanted:
        return []
    periods = sorted({(queue, per) for queue, _, per in wanted})
    given = {
        "queues": [queue for queue, _ in periods],
        "pers": [per.value for _, per in periods],
        "began": [period_of(per, now)[0] for _, per in periods],
    }
    sums: dict[tuple[QueueId, str, Period], list[int]] = {each: [0, 0, 0] for each in wanted}
    for row in session.execute(sql.SPENT, given):
        for flavor in (row.flavor, EVERY_FLAVOR):
            found = sums.get((QueueId(row.queue_id), flavor, Period(row.per)))
            if found is not None:
                for at, amount in enumerate((row.seconds, row.units, row.late)):
                    found[at] += amount
    return [
        Spent(queue, flavor, per, seconds, period_of(per, now)[0], units, late)
        for (queue, flavor, per), (seconds, units, late) in sorted(sums.items())
    ]


def _key(row: Spent) -> Key:
    return int(row.queue), f"{row.flavor} {row.per.value}"


def _running_elsewhere(session: Session, pool: PoolId) -> dict[Key, int]:
    if not session.execute(sql.COUNTS_RUNNING).scalar_one():
        return {}
    return {int(row.queue_id): int(row.live) for row in session.execute(sql.RUNNING_ELSEWHERE, {"pool": pool})}
