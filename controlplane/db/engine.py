"""Connections to Postgres: pool, role, time-outs.

No transaction begins here (see `unit_of_work`); migrations make their own connection with other time-outs.
"""

import time
from collections.abc import Callable

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from controlplane.settings import Settings

POOL_WAIT_SECONDS = 3
STATEMENT_MS_MAX = 5_000
LOCK_MS_MAX = 2_000
PING_AFTER_SECONDS = 1.0
IDLE_MS_MAX = 30_000  # a forgotten transaction would keep every warm reader's horizon back
# A server that vanished without a word is noticed in seconds; by itself a waiting client notices it after hours.
KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 3, "keepalives_count": 3, "tcp_user_timeout": 15_000}


def make_engine(
    settings: Settings,
    *,
    name: str = "muster",
    statement_ms_max: int = STATEMENT_MS_MAX,
    clock: Callable[[], float] = time.monotonic,
) -> Engine:
    """An engine for one process; `name` shows in pg_stat_activity. Make it after a fork, never before."""
    engine = create_engine(
        driver_url(settings.database_url.get_secret_value()),
        pool_size=settings.database_pool_size,
        max_overflow=0,
        pool_timeout=POOL_WAIT_SECONDS,
        connect_args=KEEPALIVE
        | {
            "application_name": name,
            "connect_timeout": POOL_WAIT_SECONDS,
            "options": f"-c statement_timeout={statement_ms_max} -c lock_timeout={LOCK_MS_MAX}"
            f" -c idle_in_transaction_session_timeout={IDLE_MS_MAX} -c timezone=UTC",
        },
    )
    _ping_after_a_pause(engine, clock)
    if settings.database_role:
        _take_role(engine, settings.database_role)
    return engine


def driver_url(url: str) -> URL:
    """The address that everybody writes (`postgresql://…`), with the driver that we use."""
    return make_url(url).set(drivername="postgresql+psycopg")


def _ping_after_a_pause(engine: Engine, clock: Callable[[], float]) -> None:
    """Ask a connection that lay idle whether it still lives; one that was used a moment ago is trusted."""

    @event.listens_for(engine, "checkin")
    def note(_connection: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
        record.info["rested_at"] = clock()

    @event.listens_for(engine, "checkout")
    def ask(connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: object) -> None:
        rested_at = record.info.get("rested_at")
        if rested_at is None or clock() - rested_at < PING_AFTER_SECONDS:
            return
        try:
            alive = engine.dialect.do_ping(connection)
        except Exception as error:  # whatever the driver says of a dead connection
            raise DisconnectionError from error
        if not alive:
            raise DisconnectionError


def _take_role(engine: Engine, role: str) -> None:
    quoted = engine.dialect.identifier_preparer.quote_identifier(role)

    @event.listens_for(engine, "connect")
    def set_role(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET ROLE {quoted}")
        cursor.close()
        connection.commit()
