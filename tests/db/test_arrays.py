"""Array texts that we write ourselves come back from Postgres as they were given."""

import pytest
import sqlalchemy

from controlplane.db.arrays import plain, sparse, texts
from tests.support.databases import Database

ODD = ["", "NULL", "null", '"', "\\", "{}", "a,b", " a ", "ümläut", "line\nline", '\\"', "a\tb", None]


@pytest.fixture
def connection(database: Database) -> sqlalchemy.Connection:
    return sqlalchemy.create_engine(database.superuser_url.replace("postgresql:", "postgresql+psycopg:")).connect()


def test_any_text_survives_its_quotes(connection: sqlalchemy.Connection) -> None:
    asked = sqlalchemy.text("SELECT CAST(:given AS text[])")
    assert connection.execute(asked, {"given": texts(ODD)}).scalar_one() == ODD
    assert connection.execute(asked, {"given": texts([])}).scalar_one() == []


def test_numbers_survive_with_those_that_are_missing(connection: sqlalchemy.Connection) -> None:
    asked = sqlalchemy.text("SELECT CAST(:given AS bigint[])")
    assert connection.execute(asked, {"given": plain([1, -2, 2**62])}).scalar_one() == [1, -2, 2**62]
    assert connection.execute(asked, {"given": sparse([1, None, 3])}).scalar_one() == [1, None, 3]
