"""Connections that died while they lay idle are replaced without anybody noticing."""

from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import Engine, text

from controlplane.db.engine import PING_AFTER_SECONDS, make_engine
from controlplane.settings import Settings
from tests.services.planes import NOBODY
from tests.support.databases import Database


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(database: Database, clock: Clock) -> Iterator[Engine]:
    given = {"DATABASE_URL": database.url, "REDIS_URL": NOBODY, "database_role": database.app_role}
    engine = make_engine(Settings.model_validate(given), clock=clock)
    yield engine
    engine.dispose()


def backend(engine: Engine) -> int:
    with engine.begin() as connection:
        return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def end(database: Database, pid: int) -> None:
    with psycopg.connect(database.superuser_url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


def test_a_connection_that_died_at_rest_is_replaced_before_it_is_used(
    database: Database, engine: Engine, clock: Clock
) -> None:
    first = backend(engine)
    end(database, first)
    clock.now += PING_AFTER_SECONDS
    assert backend(engine) != first


def test_one_that_died_a_moment_after_its_use_fails_once_and_never_again(database: Database, engine: Engine) -> None:
    first = backend(engine)
    end(database, first)
    with pytest.raises(sqlalchemy.exc.OperationalError):
        backend(engine)
    assert backend(engine) != first
