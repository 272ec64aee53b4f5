"""Makes a database that was filled from a dump usable: numbers of transactions in its rows are another server's.

Readers ask for rows by the transaction that wrote them. A dump carries those numbers along, and a new server counts
from the beginning, so they lie in its future. Run as the owner of the tables, with no process of the plane running.
"""

from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError

from controlplane.db.engine import driver_url
from controlplane.db.failures import translated

COLUMNS = text("""
    SELECT c.table_name, c.column_name FROM information_schema.columns c
    JOIN information_schema.tables t USING (table_schema, table_name)
    WHERE c.table_schema = 'public' AND c.udt_name = 'xid8' AND t.table_type = 'BASE TABLE'
    ORDER BY c.table_name, c.column_name""")
HORIZON = ("audit_seal", "horizon")
"""Says that everything before it is sealed; nothing is known of that in another server's numbers."""


def settle_transactions(url: str) -> int:
    """Let no row be written by a transaction that is still to come; returns how many were. Twice is once.

    Raises Unavailable.
    """
    engine = create_engine(driver_url(url), poolclass=NullPool, connect_args={"application_name": "muster-restored"})
    try:
        with engine.begin() as connection:
            found = connection.execute(COLUMNS).all()
            return sum(_settle(connection, row.table_name, row.column_name) for row in found)
    except DBAPIError as error:
        raise translated(error) or error from error


def _settle(connection: Connection, table: str, column: str) -> int:
    """Rules about who may change such rows are for the plane's processes; they are put aside for this statement."""
    fresh = "CAST('0' AS xid8)" if (table, column) == HORIZON else "pg_current_xact_id()"
    late = f'"{column}" > pg_current_xact_id()'
    if not connection.scalar(text(f'SELECT count(*) FROM "{table}" WHERE {late}')):
        return 0
    connection.execute(text(f'ALTER TABLE "{table}" DISABLE TRIGGER USER'))
    done = connection.execute(text(f'UPDATE "{table}" SET "{column}" = {fresh} WHERE {late}'))
    connection.execute(text(f'ALTER TABLE "{table}" ENABLE TRIGGER USER'))
    return done.rowcount
