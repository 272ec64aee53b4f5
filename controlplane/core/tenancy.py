"""Queues and their Quotas as documents state them; the arithmetic is in `quota`."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from controlplane.core.ids import FlavorName, QueueId


@dataclass(frozen=True, slots=True)
class Quota:
    """One Queue's limits for one Flavor, in units.

    None: `nominal` of a root counts what clusters own; no borrowing limit; all of it is lendable.
    """

    flavor: FlavorName
    nominal: int | None
    borrow: int | None = None
    lend: int | None = None


class Period(StrEnum):
    """Stretches of the calendar, in UTC; weeks begin on Monday."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


@dataclass(frozen=True, slots=True)
class Budget:
    """Device-hours that a Queue and all below it may use in each period; "*" counts every Flavor together.

    A hard one stops admission when it is used up; a soft one is told, and puts the Queue behind its siblings.
    """

    flavor: str
    device_hours: int
    per: Period
    is_hard: bool = False


@dataclass(frozen=True, slots=True)
class Spent:
    """Device-seconds that a Queue and all below it used of a Flavor ("*": all) since a period `began`.

    `device_seconds` is what has ended. What runs now are `units`, which together came `late` device-seconds after the
    period began: so it is known what they have used at any time, and a row changes only when something starts or ends.
    """

    queue: QueueId
    flavor: str
    per: Period
    device_seconds: int
    began: datetime | None = None
    units: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What a Queue's history comes to, as reckoned last: see `history`.

    `weight` is what counts of its plain one, in millionths, by the Flavor that it used most of. `contended` is its
    decayed contended usage in device-seconds, `credit` its burst credit (below 0: spent in advance), both over the
    half-life's window and all its Flavors.
    """

    weight: int
    contended: int = 0
    credit: int = 0
    reckoned_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """A node of the quota tree. `weight` in whole parts; `path` is its name, parents first."""

    id: QueueId
    path: str
    parent: QueueId | None
    weight: int
    quotas: tuple[Quota, ...]
    namespace: str = ""
    budgets: tuple[Budget, ...] = ()
    most_running: int | None = None  # Workloads with a live Attempt, in it and below it
