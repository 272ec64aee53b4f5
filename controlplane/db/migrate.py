"""Bring the schema to a revision: `python -m controlplane.db.migrate`, or `--down REVISION` to go back.

The revisions are in `migrations/`; this is their only door, so that time-outs and the one-runner lock always hold.
The role that migrates owns the tables; processes of the plane take another by SET ROLE.
"""

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, NullPool, create_engine
from sqlalchemy.exc import OperationalError

from controlplane.db.engine import driver_url
from controlplane.settings import Settings

REVISIONS = Path(__file__).resolve().parents[2] / "migrations"
BASE = "base"
HEAD = "head"
IN_THE_WAY = frozenset({"40P01", "55P03"})  # a deadlock, a lock that was not given in time
TRIES_MAX, PAUSE_SECONDS_MAX = 20, 1.0


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
    _insist(url, lambda config: command.upgrade(config, revision))


def downgrade(url: str, revision: str) -> None:
    """Take revisions back down to this one; `base` leaves nothing."""
    _insist(url, lambda config: command.downgrade(config, revision))


def _insist(url: str, run: Callable[[Config], None]) -> None:
    """Run revisions beside a plane at work: what somebody's lock has stopped is undone whole, and tried again.

    A revision is a transaction of its own, so those before it stay done.
    """
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            with _connected(url) as connection:
                run(configuration(connection))
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) not in IN_THE_WAY or not tries_left:
                raise
            time.sleep(random.uniform(0.1, PAUSE_SECONDS_MAX))  # noqa: S311 - spreads tries, guards nothing
        else:
            return


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
