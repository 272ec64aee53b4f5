"""One transaction as services see it, and the helper that runs one again when another was in the way.

What a store can do stands in the port of its noun. A service takes a `UnitOfWork` (its caller commits) or a
`UnitOfWorkFactory` (it opens its own). READ COMMITTED; locks are taken in this order everywhere: documents
(advisory), Pool (advisory), Cluster, accounts by (Queue, Flavor), node counters by (node, Flavor), Workloads by id,
holds by pod.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from random import Random, SystemRandom
from types import TracebackType
from typing import Protocol, Self, TypeVar

from controlplane.core.facts.collisions import Collision
from controlplane.core.ids import ClusterId, PoolId
from controlplane.services.ports.attempts import AttemptStore
from controlplane.services.ports.cordons import CordonStore
from controlplane.services.ports.documents import DocumentStore
from controlplane.services.ports.events import EventStore
from controlplane.services.ports.fleet import AgentStore, FleetStore
from controlplane.services.ports.history import HistoryStore
from controlplane.services.ports.ledger import AuditStore, LedgerStore
from controlplane.services.ports.people import PeopleStore
from controlplane.services.ports.planning import PlanningStore
from controlplane.services.ports.queries import QueryStore
from controlplane.services.ports.tenancy import TenancyStore
from controlplane.services.ports.workloads import WorkloadStore

Result = TypeVar("Result")

TRIES_MAX = 5
_FIRST_PAUSE_SECONDS = 0.02
_CHANCE = SystemRandom()


class UnitOfWork(Protocol):
    """One transaction: leaving the block commits it, an exception rolls it back."""

    @property
    def now(self) -> datetime:
        """The database's clock, read once when the transaction began."""
        ...

    @property
    def tenancy(self) -> TenancyStore: ...

    @property
    def people(self) -> PeopleStore: ...

    @property
    def documents(self) -> DocumentStore: ...

    @property
    def workloads(self) -> WorkloadStore: ...

    @property
    def queries(self) -> QueryStore: ...

    @property
    def history(self) -> HistoryStore: ...

    @property
    def fleet(self) -> FleetStore: ...

    @property
    def cordons(self) -> CordonStore: ...

    @property
    def agents(self) -> AgentStore: ...

    @property
    def attempts(self) -> AttemptStore: ...

    @property
    def planning(self) -> PlanningStore: ...

    @property
    def ledger(self) -> LedgerStore: ...

    @property
    def events(self) -> EventStore: ...

    @property
    def audit(self) -> AuditStore: ...

    def notify_cluster(self, cluster: ClusterId) -> None:
        """Wake the long poll of this Cluster's agent when the transaction commits."""
        ...

    def wake_pool(self, pool: PoolId) -> None:
        """Give the Pool's planner work: its row is made due as the last write, the poke follows the commit."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


UnitOfWorkFactory = Callable[[], UnitOfWork]


def run(
    factory: UnitOfWorkFactory,
    work: Callable[[UnitOfWork], Result],
    *,
    chance: Random = _CHANCE,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """`work` in a transaction of its own, again from the start after a Collision, at most TRIES_MAX times.

    Pauses have full jitter, so that those who collided do not meet again.
    """
    for attempt in range(TRIES_MAX):
        try:
            with factory() as uow:
                return work(uow)
        except Collision:
            if attempt == TRIES_MAX - 1:
                raise
            sleep(chance.uniform(0, _FIRST_PAUSE_SECONDS * 2**attempt))
    raise AssertionError("the last try returns or raises")


def rehearse(factory: UnitOfWorkFactory, work: Callable[[UnitOfWork], Result]) -> Result:
    """What `work` would return; all that it wrote is rolled back, and nobody is woken."""
    told: list[Result] = []

    def take_back(uow: UnitOfWork) -> None:
        told.append(work(uow))
        raise _TakenBack

    with suppress(_TakenBack):
        run(factory, take_back)
    return told[-1]


class _TakenBack(Exception):
    """Rolls a rehearsal back."""
