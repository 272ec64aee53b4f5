"""The fixtures that every other test stands on."""

import psycopg
import pytest
import redis

from tests.support.databases import Database
from tests.support.waiting import eventually


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_gets_a_database_of_its_own(database: Database, turn: int) -> None:
    with psycopg.connect(database.url) as connection:
        connection.execute("CREATE TABLE mark (turn integer)")
        connection.execute("INSERT INTO mark VALUES (%s)", [turn])
        assert connection.execute("SELECT turn FROM mark").fetchall() == [(turn,)]


def test_a_process_may_take_the_role_that_owns_nothing(database: Database) -> None:
    with psycopg.connect(database.url) as connection:
        connection.execute(f"SET ROLE {database.app_role}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE mark (turn integer)")


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_gets_an_empty_valkey(valkey: str, turn: int) -> None:
    with redis.Redis.from_url(valkey) as client:
        assert client.dbsize() == 0
        client.set("turn", turn)


def test_waiting_ends_with_what_was_not_yet_true() -> None:
    def the_sky_falls() -> bool:
        return False

    with pytest.raises(AssertionError, match="the_sky_falls: not within"):
        eventually(the_sky_falls, within=0.1)
