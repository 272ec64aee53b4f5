"""Bring the schema to a revision: `python -m controlplane.db.migrate`, or `--down REVISION` to go back.

The revisions are in `migrations/`; this is their only door, so that time-outs and the one-runner lock always hold.
The role that migrates owns the tables; processes of the plane take another by SET ROLE.
"""

import argparse
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, NullPool, create_engine

from controlplane.db.engine import driver_url
from controlplane.settings import Settings

REVISIONS = Path(__file__).resolve().parents[2] / "migrations"
BASE = "base"
HEAD = "head"


def configuration(connection: Connection) -> Config:
    """Alembic's settings, for revisions run over this connection."""
    config = Config()
    config.set_main_option("script_location", str(REVISIONS).replace("%", "%%"))
    config.set_main_option(
        "file_template", "%%(year)d_%%(month).2d_%%(day).2d_%%(hour).2d%%(minute).2d_%%(rev)s_%%(slug)s"
    )
    config.attributes["connection"] = connection
    return config


def upgrade(url: str, revision: str = HEAD) -> None:
    """Run every revision up to this one; nothing to do, nothing done."""
    with _connected(url) as connection:
        command.upgrade(configuration(connection), revision)


def downgrade(url: str, revision: str) -> None:
    """Take revisions back down to this one; `base` leaves nothing."""
    with _connected(url) as connection:
        command.downgrade(configuration(connection), revision)


def _connected(url: str) -> Connection:
    engine = create_engine(
        driver_url(url),
        poolclass=NullPool,
        connect_args={"application_name": "muster-migrate", "connect_timeout": 10, "options": "-c timezone=UTC"},
    )
    return engine.connect()


def main() -> None:
    """Read DATABASE_URL, migrate."""
    parser = argparse.ArgumentParser(prog="python -m controlplane.db.migrate", description="Migrate the database.")
    parser.add_argument("--down", metavar="REVISION", help="go back to this revision instead of up to the newest")
    asked = parser.parse_args()
    url = Settings().database_url.get_secret_value()
    if asked.down:
        downgrade(url, asked.down)
    else:
        upgrade(url)


if __name__ == "__main__":
    main()
