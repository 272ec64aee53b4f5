"""Revisions run beside a plane at work: who is in the way for a moment is waited for, whatever way they hold."""

import threading
from collections.abc import Iterator

import psycopg
import pytest

from controlplane.db import migrate
from controlplane.embedded.postgres import Postgres
from tests.support import databases
from tests.support.databases import Database
from tests.support.waiting import eventually

BEFORE = "0023"  # the next one takes locks on three tables
WAITING = """SELECT count(*) FROM pg_stat_activity
             WHERE application_name = 'muster-migrate' AND wait_event_type = 'Lock' AND datname = current_database()"""


@pytest.fixture
def older(postgres: Postgres) -> Iterator[Database]:
    """A database at an older revision."""
    fresh = databases.clone(postgres, "template1")
    migrate.upgrade(fresh.url, BEFORE)
    yield fresh
    databases.drop(postgres, fresh)


def test_a_deadlock_with_somebody_at_work_costs_another_try_and_not_the_upgrade(older: Database) -> None:
    """They hold what the revision wants and want what it holds; theirs is the longer patience, so ours ends."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            migrate.upgrade(older.url)
        except BaseException as error:  # noqa: BLE001 - told to the test's own thread
            failures.append(error)

    runner = threading.Thread(target=run)
    with psycopg.connect(older.superuser_url) as worker, psycopg.connect(older.superuser_url, autocommit=True) as watch:
        worker.execute("SET deadlock_timeout = '1h'")
        worker.execute("SELECT FROM cluster")
        runner.start()
        eventually(lambda: watch.execute(WAITING.encode()).fetchone() == (1,), 30, "the runner waits for a lock")
        worker.execute("SELECT FROM plane")  # which the revision has altered already
        worker.commit()
        runner.join(60)
        assert not failures
        found = watch.execute("SELECT version_num > %s FROM alembic_version", (BEFORE,)).fetchone()
        assert found == (True,)


def test_who_holds_a_table_for_longer_than_a_lock_is_waited_for_is_outlasted(older: Database) -> None:
    with psycopg.connect(older.superuser_url) as worker, psycopg.connect(older.superuser_url, autocommit=True) as watch:
        worker.execute("LOCK TABLE workload IN ACCESS EXCLUSIVE MODE")
        runner = threading.Thread(target=migrate.upgrade, args=(older.url,))
        runner.start()
        eventually(lambda: watch.execute(WAITING.encode()).fetchone() == (1,), 30, "the runner waits for a lock")
        eventually(lambda: watch.execute(WAITING.encode()).fetchone() == (0,), 30, "it gives way", pause=0.005)
        worker.commit()
        runner.join(60)
        assert watch.execute("SELECT version_num > %s FROM alembic_version", (BEFORE,)).fetchone() == (True,)
