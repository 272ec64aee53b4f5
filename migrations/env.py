"""How alembic runs revisions here: one runner at a time, one transaction per revision, short waits for locks.

`controlplane.db.migrate` hands over the connection; there is no alembic.ini. A session-level advisory lock does not
pass a transaction pooler, so migrations connect to Postgres directly.
"""

import time

from alembic import context
from sqlalchemy import Connection, text

from controlplane.db.base import Base
from controlplane.db.tables import fleet, ledger, tenancy, workloads

ONE_RUNNER = 0x6D75_7300
WAIT_SECONDS, WAIT_PAUSE_SECONDS = 660, 0.2  # an index may take 600 s
TABLES = (fleet, ledger, tenancy, workloads)  # imported for the tables that they register


def run(connection: Connection) -> None:
    """Run what is asked for while no other runner does."""
    _wait_for_turn(connection)
    # After that nobody who queues up behind us waits for long.
    connection.execute(text("SET lock_timeout = '4s'"))
    connection.execute(text("SET statement_timeout = '5s'"))
    connection.commit()
    try:
        context.configure(connection=connection, target_metadata=Base.metadata, transaction_per_migration=True)
        with context.begin_transaction():
            context.run_migrations()
    finally:
        connection.rollback()
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": ONE_RUNNER})
        connection.commit()


def _wait_for_turn(connection: Connection) -> None:
    """Whoever comes second waits for the first, in no transaction: an index that is built waits for every open one."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": ONE_RUNNER}).scalar_one():
        connection.commit()
        if time.monotonic() > deadline:
            raise TimeoutError(f"another runner has been migrating for more than {WAIT_SECONDS} s")
        time.sleep(WAIT_PAUSE_SECONDS)


run(context.config.attributes["connection"])
