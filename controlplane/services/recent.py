"""The quota tree and what clusters own, remembered for seconds by one process, so that a submit need not read them.

What is remembered may only ever let something in: a Workload that no cycle could admit waits with a Reason, which harms
nobody. Whoever would refuse looks again at the truth of the transaction (`World.fresh`).
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.core.facts.workloads import FleetShape
from controlplane.core.quota import QuotaTree
from controlplane.services.ports.unit_of_work import UnitOfWork

AGE_MAX = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class World:
    """The tree with the limits of every Queue, the units of each Flavor that each enrolled cluster owns, and the shape
    of what they have.
    """

    tree: QuotaTree
    totals: Mapping[str, Mapping[str, int]]
    shape: FleetShape
    at: datetime


class RecentWorld:
    """Safe for threads; one of them reads anew, the others go on with what is remembered."""

    def __init__(self, age_max: timedelta = AGE_MAX) -> None:
        self._age_max = age_max
        self._lock = threading.Lock()
        self._held: World | None = None

    def get(self, uow: UnitOfWork) -> World:
        """What was true at most `age_max` ago, or while it was last read."""
        held = self._held
        if held is not None and uow.now - held.at <= self._age_max:
            return held
        if held is not None and self._lock.locked():
            return held
        with self._lock:
            held = self._held
            if held is None or uow.now - held.at > self._age_max:
                held = self._held = read_world(uow)
            return held

    def fresh(self, uow: UnitOfWork) -> World:
        """What is true in this transaction. Not remembered: it may show what is never committed."""
        return read_world(uow)


def read_world(uow: UnitOfWork) -> World:
    """Read it whole."""
    tree = QuotaTree(uow.tenancy.tree(), owned=uow.ledger.owned(), is_as_given=True)  # hardware may yet come
    return World(tree, uow.workloads.owned_totals(), uow.workloads.fleet_shape(), uow.now)
