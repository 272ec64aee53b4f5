"""Long polls wake at the commit, only for their own cluster, and also after Postgres was away."""

import asyncio
import time
from collections.abc import Iterator

import psycopg
import pytest

from controlplane.core.ids import ClusterId
from controlplane.db import listen
from controlplane.db.listen import Waker
from tests.builders.rows import Rows
from tests.db.test_unit_of_work import kill_others
from tests.support.databases import Database
from tests.support.waiting import eventually

MINE, OTHER = ClusterId(3), ClusterId(4)


@pytest.fixture
def rows(database: Database) -> Iterator[Rows]:
    made = Rows(database)
    yield made
    made.dispose()


@pytest.fixture
def waker(rows: Rows) -> Iterator[Waker]:
    made = Waker(rows.database.url)
    made.start()
    try:
        eventually(lambda: listeners(rows) == 1, what="the waker to listen")
        yield made
    finally:
        made.stop()


def listeners(rows: Rows) -> int:
    with psycopg.connect(rows.database.superuser_url) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'muster-listen' AND query LIKE 'LISTEN%'"
            " AND datname = current_database()"
        ).fetchone()
    assert found
    return int(found[0])


def commit(rows: Rows, *clusters: ClusterId) -> None:
    with rows.uow() as uow:
        for cluster in clusters:
            uow.notify_cluster(cluster)


async def wait_while(waker: Waker, rows: Rows, *clusters: ClusterId) -> bool:
    """What a long poll for MINE learns while somebody else commits news for `clusters`."""
    waiting = asyncio.create_task(waker.wait(MINE))
    await asyncio.sleep(0)
    await asyncio.to_thread(commit, rows, *clusters)
    return await waiting


async def test_a_commit_wakes_the_long_poll_of_its_cluster(waker: Waker, rows: Rows) -> None:
    began = time.monotonic()
    assert await wait_while(waker, rows, OTHER, MINE)
    assert time.monotonic() - began < listen.POLL_SECONDS


async def test_news_for_another_cluster_leave_it_to_the_poll(waker: Waker, rows: Rows) -> None:
    assert not await wait_while(waker, rows, OTHER)


async def test_many_wait_for_one_cluster_and_all_wake(waker: Waker, rows: Rows) -> None:
    waiting = [asyncio.create_task(waker.wait(MINE)) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.to_thread(commit, rows, MINE)
    assert all(await asyncio.gather(*waiting))


async def test_nobody_waits_longer_than_he_asked_for(waker: Waker) -> None:
    began = time.monotonic()
    assert not await waker.wait(MINE, 0.05)
    assert time.monotonic() - began < listen.POLL_SECONDS


async def test_it_listens_again_after_its_connection_was_lost(waker: Waker, rows: Rows) -> None:
    kill_others(rows.database)
    rows.engine.dispose()
    await asyncio.to_thread(eventually, lambda: listeners(rows) == 1, 10.0, "the waker to listen again")
    assert await wait_while(waker, rows, MINE)


def test_it_ends_without_waiting_for_its_next_poll_and_says_nothing_of_it(
    rows: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    waker = Waker(rows.database.url, poll_seconds=3_600)
    waker.start()
    eventually(lambda: listeners(rows) == 1, what="the waker to listen")
    waker.stop()
    eventually(lambda: listeners(rows) == 0, what="its connection to be closed")
    assert capsys.readouterr().out == ""


async def test_whoever_waited_while_it_was_deaf_is_woken_when_it_hears_again(rows: Rows) -> None:
    waker = Waker(rows.database.url)
    waiting = asyncio.create_task(waker.wait(MINE))
    await asyncio.sleep(0)
    waker.start()
    assert await waiting
    waker.stop()
