"""Where adapters meet services: the one place that sees both sides. `build_container` once per process, after a fork.

Nothing connects before it is used, so building one never fails because a server is away.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import redis
from sqlalchemy import Engine

from controlplane import telemetry
from controlplane.contract.rest.operations import ViolationView
from controlplane.db.engine import make_engine
from controlplane.db.health import schema_trouble
from controlplane.db.listen import Waker
from controlplane.db.snapshot_reader import SqlSnapshotReader
from controlplane.db.unit_of_work import SqlUnitOfWork
from controlplane.services import health, tokens
from controlplane.services.errors import Unauthenticated
from controlplane.services.live_worlds import LiveWorlds
from controlplane.services.ports.planning import SnapshotReader
from controlplane.services.ports.unit_of_work import UnitOfWorkFactory, run
from controlplane.services.recent import RecentWorld
from controlplane.services.scheduling import PlanningTools
from controlplane.services.signing import Signer, load_signer
from controlplane.settings import Settings
from controlplane.wakeups import Wakeups

REDIS_SECONDS = 2
SWEEPS_MISSED_MAX = 5
HEARTBEAT_SECONDS_MIN = 15


@dataclass(frozen=True, slots=True)
class Container:
    """What a process of the plane works with."""

    settings: Settings
    engine: Engine
    uow_factory: UnitOfWorkFactory
    glance_factory: UnitOfWorkFactory
    """For one look: statements stand alone, in no transaction, so that two round trips are spared."""
    wakeups: Wakeups
    snapshot_reader: SnapshotReader
    live_worlds: LiveWorlds
    waker: Waker
    recent: RecentWorld = field(default_factory=RecentWorld)
    new_id: Callable[[], str] = field(default=lambda: str(uuid.uuid4()))

    def planning_tools(self) -> PlanningTools:
        """What a planner works with."""
        return PlanningTools(
            uow_factory=self.uow_factory,
            reader=self.snapshot_reader,
            lease_seconds=self.settings.planner_lease_seconds,
            base_every=self.settings.cycle_base_every,
            observe=_observe_decisions,
        )

    def signer(self) -> Signer:
        """The plane's own key, made on first use; raises ValueError where no folder is named for it."""
        if self.settings.secrets_dir is None:
            raise ValueError("MUSTER_SECRETS_DIR: name a folder for the plane's signing key; only the API writes there")
        return load_signer(self.settings.secrets_dir)

    def probes(self) -> Mapping[str, Callable[[], str]]:
        """What `/readyz` asks beside the heartbeats."""
        return {health.DATABASE: self._database_trouble, "redis": self._redis_trouble}

    def heartbeat_seconds_max(self) -> int:
        """A process that has been silent for longer makes no progress."""
        return max(HEARTBEAT_SECONDS_MIN, SWEEPS_MISSED_MAX * self.settings.sweep_seconds)

    def violations(self) -> list[ViolationView]:
        """Every broken invariant that rows can show."""
        # Late: nobody but this question needs it, and it costs every process memory.
        from controlplane.db import doctor  # noqa: PLC0415 - see above

        with self.engine.connect() as connection:
            return [ViolationView(invariant=each.invariant, detail=str(each)) for each in doctor.violations(connection)]

    def close(self) -> None:
        """End its threads and connections."""
        self.wakeups.close()
        self.engine.dispose()

    def _database_trouble(self) -> str:
        return schema_trouble(self.engine)

    def _redis_trouble(self) -> str:
        url = self.settings.redis_url.get_secret_value()
        with redis.Redis.from_url(url, socket_timeout=REDIS_SECONDS, socket_connect_timeout=REDIS_SECONDS) as client:
            client.ping()
        return ""


def build_container(settings: Settings) -> Container:
    """Make everything that a process needs."""
    engine = make_engine(settings)
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    wakeups = Wakeups(settings.redis_url.get_secret_value())
    return Container(
        settings=settings,
        engine=engine,
        uow_factory=lambda: SqlUnitOfWork(engine, wakeups),
        glance_factory=lambda: SqlUnitOfWork(alone, wakeups),
        wakeups=wakeups,
        snapshot_reader=SqlSnapshotReader(engine),
        live_worlds=LiveWorlds(SqlSnapshotReader(engine)),
        waker=Waker(settings.database_url.get_secret_value()),
    )


def first_admin_token(settings: Settings, *, only_first: bool = False) -> str:
    """A new token for the first admin; who can open the database may do everything anyway.

    Raises Conflict with `only_first` where an administrator has a token that lives.
    """
    container = build_container(settings)
    try:
        return run(container.uow_factory, tokens.only_admin if only_first else tokens.first_admin)
    finally:
        container.close()


def settle_transactions(settings: Settings) -> int:
    """Take the rows of a restored dump for this server's own, as the owner of the tables; returns how many were not."""
    # Late: a process of the plane never needs it.
    from controlplane.db import restored  # noqa: PLC0415 - see above

    return restored.settle_transactions(settings.database_url.get_secret_value())


def knows_token(settings: Settings, token: str) -> bool:
    """Whether somebody may call with this token here."""
    container = build_container(settings)
    try:
        with container.uow_factory() as uow:
            tokens.principal_of(uow, token)
    except Unauthenticated:
        return False
    finally:
        container.close()
    return True


def _observe_decisions(kind: str, committed: int, dropped: int) -> None:
    if committed:
        telemetry.DECISIONS.labels(kind).inc(committed)
    if dropped:
        telemetry.DECISIONS_DROPPED.labels(kind).inc(dropped)
