"""One transaction of the plane: one reading of the clock, one NOTIFY, commit or nothing.

Fulfils `services.ports.unit_of_work`. A Pool that was given work is written last and in one message with the commit, so
that its row, which everybody writes, is locked while the server commits, not while this process is busy. What follows
a commit (the poke) may be lost: due rows are swept.
"""

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import Protocol, Self

from psycopg import sql
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from controlplane.core.ids import ClusterId, PoolId
from controlplane.db.failures import translated
from controlplane.db.moment import Moment
from controlplane.db.stores.agents import AgentStore
from controlplane.db.stores.attempts import AttemptStore
from controlplane.db.stores.audit import AuditStore
from controlplane.db.stores.cordons import CordonStore
from controlplane.db.stores.documents import DocumentStore
from controlplane.db.stores.events import EventStore
from controlplane.db.stores.fleet import FleetStore
from controlplane.db.stores.history import SqlHistoryStore
from controlplane.db.stores.ledger import LedgerStore
from controlplane.db.stores.people import PeopleStore
from controlplane.db.stores.planning import PlanningStore
from controlplane.db.stores.queries import QueryStore
from controlplane.db.stores.tenancy import TenancyStore
from controlplane.db.stores.workloads import WorkloadStore

CHANNEL = "muster"
EVERYBODY = "*"
_PAYLOAD_BYTES_MAX = 7_900  # Postgres refuses 8,000

_NOTIFY = text("SELECT pg_notify(:channel, :payload)")
_GIVE_WORK = sql.SQL("UPDATE pool SET dirty_version = dirty_version + 1, next_check_at = {now} WHERE id = {pool}; ")

_AS_IT_IS = {"no_parameters": True}

Clock = Callable[[Session], datetime]


class Wakeups(Protocol):
    """Hints to planners; losing one costs a sweep's interval."""

    def poke(self, pool: PoolId) -> None:
        """Tell the Pool's planner that there is work."""
        ...


class SqlUnitOfWork:
    """Use it once, as a context manager."""

    def __init__(self, engine: Engine, wakeups: Wakeups, clock: Clock | None = None) -> None:
        """`clock` is a door for tests that set the time, read on entry; everybody else reads the database's."""
        # Once closed it takes nothing more: the clock, asked for too late, would begin another transaction.
        self._session = Session(engine, expire_on_commit=False, close_resets_only=False)
        self._wakeups = wakeups
        self._clock = clock
        self._moment = Moment(self._session)
        self._clusters: set[ClusterId] = set()
        self._pools: set[PoolId] = set()

    def __enter__(self) -> Self:
        if self._clock is not None:
            try:
                self._moment.told(self._clock(self._session))
            except SQLAlchemyError as error:
                self._session.close()
                raise translated(error) or error from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._commit()
        except SQLAlchemyError as failure:
            error = failure
        finally:
            # Closing rolls back whatever was not committed.
            self._session.close()
        if error is not None:
            meaning = translated(error)
            if meaning is not None:
                raise meaning from error
            if kind is None:
                raise error
            return
        for pool in sorted(self._pools):
            self._wakeups.poke(pool)

    @property
    def now(self) -> datetime:
        """The moment at which the transaction began, by the database's clock; read when it is first asked for."""
        return self._moment.get()

    def notify_cluster(self, cluster: ClusterId) -> None:
        """Wake the long poll of this Cluster's agent when the transaction commits."""
        self._clusters.add(cluster)

    def wake_pool(self, pool: PoolId) -> None:
        """Give the Pool's planner work, at the end of this transaction."""
        self._pools.add(pool)

    @cached_property
    def tenancy(self) -> TenancyStore:
        """Queues, Quotas, Pools, Policies, Principals."""
        return TenancyStore(self._session, self.now)

    @cached_property
    def people(self) -> PeopleStore:
        """Tokens and role bindings, as people manage them."""
        return PeopleStore(self._session, self.now)

    @cached_property
    def documents(self) -> DocumentStore:
        """Documents as they are applied, read and deleted."""
        return DocumentStore(self._session, self.now)

    @cached_property
    def workloads(self) -> WorkloadStore:
        """Workloads and their PodSets."""
        return WorkloadStore(self._session, self._moment)

    @cached_property
    def queries(self) -> QueryStore:
        """Read models."""
        return QueryStore(self._session, self.now)

    @cached_property
    def history(self) -> SqlHistoryStore:
        """What turns remember."""
        return SqlHistoryStore(self._session)

    @cached_property
    def fleet(self) -> FleetStore:
        """Clusters, Nodes, Devices."""
        return FleetStore(self._session, self.now)

    @cached_property
    def cordons(self) -> CordonStore:
        """What is out of planning, and what lives in a Cluster."""
        return CordonStore(self._session, self.now)

    @cached_property
    def agents(self) -> AgentStore:
        """Agents' keys and Sessions, and what they are told."""
        return AgentStore(self._session, self.now)

    @cached_property
    def attempts(self) -> AttemptStore:
        """Attempts, Placements, pods, holds."""
        return AttemptStore(self._session, self.now)

    @cached_property
    def planning(self) -> PlanningStore:
        """The planner's lease, and what a commit reads fresh or writes."""
        return PlanningStore(self._session, self.now)

    @cached_property
    def ledger(self) -> LedgerStore:
        """Accounts, Transfers, reservations, usage."""
        return LedgerStore(self._session, self.now)

    @cached_property
    def events(self) -> EventStore:
        """What happened, in order."""
        return EventStore(self._session, self.now)

    @cached_property
    def audit(self) -> AuditStore:
        """Who did what."""
        return AuditStore(self._session, self.now)

    def _commit(self) -> None:
        self._session.flush()
        if "audit" in self.__dict__:
            self.audit.write()
        if self._clusters:
            self._session.execute(_NOTIFY, {"channel": CHANNEL, "payload": payload(self._clusters)})
        if self._pools:
            self._session.connection().exec_driver_sql(last_words(self._pools, self.now), execution_options=_AS_IT_IS)
        self._session.commit()  # costs nothing where the last words did it


def last_words(pools: set[PoolId], now: datetime) -> str:
    """Statements that give each Pool's planner work and commit; they go in one message, which takes no parameters."""
    at = sql.Literal(now)
    given = [_GIVE_WORK.format(now=at, pool=sql.Literal(int(pool))).as_string() for pool in sorted(pools)]
    return "".join(given) + "COMMIT"


def payload(clusters: set[ClusterId]) -> str:
    """The text of the one NOTIFY: ids with commas between them, or everybody where that would be too long."""
    listed = ",".join(map(str, sorted(clusters)))
    return listed if len(listed) <= _PAYLOAD_BYTES_MAX else EVERYBODY
