"""Databases for tests: a migrated template once a session, a clone of it per test, the doctor at the end.

One server per test process (`conftest.servers`), so that processes share nothing.
"""

import itertools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psycopg
import sqlalchemy

from controlplane.db import doctor
from controlplane.embedded.postgres import APP_ROLE, OWNER, SUPERUSER, Postgres

ROOT = Path(__file__).parents[2]
TEMPLATE = "template_migrated"
MIGRATE_SECONDS = 120
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Database:
    """A database that one test may do anything with."""

    name: str
    url: str
    """As the owner: what the plane's processes get as DATABASE_URL, together with `app_role`."""
    superuser_url: str
    """Sees every row; for planting violations and for looking."""
    app_role: str = APP_ROLE
    """The role that a process takes by SET ROLE; owns nothing."""

    def environment(self) -> dict[str, str]:
        """What a process of the plane must be told to use this database."""
        return {"DATABASE_URL": self.url, "MUSTER_DATABASE_ROLE": self.app_role}


def on(postgres: Postgres, name: str) -> Database:
    """The database of this name."""
    return Database(name, postgres.url(OWNER, name), postgres.url(SUPERUSER, name))


def make_template(postgres: Postgres) -> None:
    """A database with the whole schema in it, nobody connected."""
    _administrate(postgres, f"CREATE DATABASE {TEMPLATE} OWNER {OWNER}")
    done = subprocess.run(
        [sys.executable, "-m", "controlplane.db.migrate"],
        check=False,
        capture_output=True,
        text=True,
        timeout=MIGRATE_SECONDS,
        cwd=ROOT,
        env={**os.environ, "REDIS_URL": "redis://127.0.0.1:1/0", **on(postgres, TEMPLATE).environment()},
    )
    assert done.returncode == 0, f"migrations failed\n{done.stdout}\n{done.stderr}"


def clone(postgres: Postgres, template: str = TEMPLATE) -> Database:
    """A fresh copy of the template."""
    name = f"test_{next(_numbers)}"
    # Its files are copied as they are: by the usual strategy each page would go through the log, ten times as dear.
    _administrate(postgres, f"CREATE DATABASE {name} TEMPLATE {template} OWNER {OWNER} STRATEGY FILE_COPY")
    return on(postgres, name)


def drop(postgres: Postgres, database: Database) -> None:
    """Remove it, whoever is still connected."""
    _administrate(postgres, f"DROP DATABASE {database.name} WITH (FORCE)")


def found_by_doctor(database: Database) -> list[str]:
    """Every violated invariant, as a sentence."""
    engine = sqlalchemy.create_engine(database.superuser_url, poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        return [str(violation) for violation in doctor.violations(connection)]


def _administrate(postgres: Postgres, statement: str) -> None:
    with psycopg.connect(postgres.url(SUPERUSER, "postgres"), autocommit=True) as connection:
        connection.execute(statement.encode())
