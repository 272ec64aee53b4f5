"""A database from a dump: its rows bear another server's transaction numbers until they are settled."""

import sqlalchemy as sa

from controlplane.db.restored import settle_transactions
from controlplane.services import events
from tests.services import agents
from tests.services.agents import node
from tests.services.planes import Plane
from tests.support.databases import Database

FUTURE = "CAST('888888888888' AS xid8)"


def test_rows_from_another_servers_future_become_ours_once_and_their_rules_hold_again(database: Database) -> None:
    plane = Plane(database)
    try:
        agents.ready(plane, "east", node("east-0"))
        plane.queue("team", nominal=8)
        events.settle(plane.uow)
        with sa.create_engine(database.superuser_url, poolclass=sa.NullPool).begin() as connection:
            for table, column in (("cluster", "changed_xid"), ("audit", "xid"), ("audit_seal", "horizon")):
                connection.execute(sa.text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
                connection.execute(sa.text(f"UPDATE {table} SET {column} = {FUTURE}"))
                connection.execute(sa.text(f"ALTER TABLE {table} ENABLE TRIGGER USER"))

        assert settle_transactions(database.url) > 0
        assert settle_transactions(database.url) == 0

        assert not plane.rows(f"SELECT FROM cluster WHERE changed_xid >= {FUTURE}")
        agents.create(plane, "west")  # its audit row is of a transaction that the old horizon would have passed over
        events.settle(plane.uow)
        unsealed = plane.rows(
            "SELECT id FROM audit WHERE NOT EXISTS (SELECT FROM audit_seal WHERE audit_id = audit.id)"
        )
        assert not unsealed
    finally:
        plane.close()
