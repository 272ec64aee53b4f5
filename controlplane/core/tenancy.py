"""Queues and their Quotas as documents state them; the arithmetic is in `quota`."""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Queue:
    """A node of the quota tree. `weight` in whole parts; `path` is its name, parents first."""

    id: QueueId
    path: str
    parent: QueueId | None
    weight: int
    quotas: tuple[Quota, ...]
    namespace: str = ""
