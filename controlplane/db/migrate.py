"""Bring the schema to a revision: `python -m controlplane.db.migrate`, or `--down REVISION` to go back.

Exit codes: 0 done, or nothing to do; 1 failed; 2 wrong input.

The revisions are in `migrations/`; this is their only door, so that time-outs and the one-runner lock always hold.
The role that migrates owns the tables; processes of the plane take another by SET ROLE.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, NullPool, create_engine
from sqlalchemy.exc import ArgumentError, OperationalError

from controlplane.db.engine import driver_url
from controlplane.settings import SettingsUnusable, settings_of_environment

REVISIONS = Path(__file__).resolve().parents[2] / "migrations"
BASE = "base"
HEAD = "head"
EXIT_FAILED = 1
EXIT_WRONG = 2
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Read DATABASE_URL, migrate; what it returns is the exit code."""
    parser = argparse.ArgumentParser(prog="python -m controlplane.db.migrate", description="Migrate the database.")
    parser.add_argument("--down", metavar="REVISION", help="go back to this revision instead of up to the newest")
    asked = parser.parse_args(arguments)
    if asked.down is not None and not asked.down.strip():
        parser.error("argument --down: names no revision")
    try:
        url = settings_of_environment().database_url.get_secret_value()
        if asked.down is None:
            upgrade(url)
        else:
            downgrade(url, asked.down)
    except (SettingsUnusable, CommandError) as error:  # as of a revision that there is not
        return _said(error, EXIT_WRONG)
    except ArgumentError as error:
        return _said(error, EXIT_WRONG)  # which does not repeat the address: a password may stand in it
    except OperationalError as error:
        return _said(error.orig or error, EXIT_FAILED)
    return 0


def _said(error: BaseException, code: int) -> int:
    sys.stderr.write(f"muster: {' '.join(str(error).split())}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
