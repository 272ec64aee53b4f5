"""How alembic runs revisions here: one runner at a time, one transaction per revision, short waits for locks.

`controlplane.db.migrate` hands over the connection; there is no alembic.ini. A session-level advisory lock does not
pass a transaction pooler, so migrations connect to Postgres directly.
"""

from alembic import context
from sqlalchemy import Connection, text

from controlplane.db.base import Base
from controlplane.db.tables import fleet, ledger, tenancy, workloads

ONE_RUNNER = 0x6D75_7300
TABLES = (fleet, ledger, tenancy, workloads)  # imported for the tables that they register


def run(connection: Connection) -> None:
    """Run what is asked for while no other runner does."""
    # Whoever comes second waits for the first; after that nobody who queues up behind us waits for long.
    connection.execute(text("SET lock_timeout = '60s'"))
    connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": ONE_RUNNER})
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


run(context.config.attributes["connection"])
