"""One transaction: commit or nothing, one clock, one NOTIFY, the poke after the commit, errors in our own words."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from controlplane.core.facts.collisions import Collision, Refused, Unavailable
from controlplane.core.ids import ClusterId, PoolId
from controlplane.db.engine import make_engine
from controlplane.db.unit_of_work import SqlUnitOfWork, payload
from controlplane.services.ports.unit_of_work import TRIES_MAX, UnitOfWork, run
from controlplane.settings import Settings
from tests.support.databases import Database


@dataclass
class Pokes:
    """Wakeups that are only counted."""

    pools: list[int] = field(default_factory=list)

    def poke(self, pool: PoolId) -> None:
        self.pools.append(pool)


@dataclass
class Plane:
    """What bootstrap would put together for one database."""

    engine: sa.Engine
    pokes: Pokes

    def __call__(self) -> UnitOfWork:
        return SqlUnitOfWork(self.engine, self.pokes)

    def scalar(self, statement: str) -> object:
        with self.engine.begin() as connection:
            return connection.execute(sa.text(statement)).scalar_one()


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    engine = make_engine(settings(database))
    yield Plane(engine, Pokes())
    engine.dispose()


def settings(database: Database) -> Settings:
    return Settings.model_validate(
        {"DATABASE_URL": database.url, "REDIS_URL": "redis://127.0.0.1:1/0", "database_role": database.app_role}
    )


def deed(uow: UnitOfWork) -> None:
    uow.audit.record(actor="person:ada", action="test", object_kind="thing", object_id="1")


def test_a_block_that_ends_commits_and_one_that_fails_leaves_nothing(plane: Plane) -> None:
    with plane() as uow:
        deed(uow)
    with pytest.raises(ValueError, match="no"):
        fail_after(plane, deed)
    assert plane.scalar("SELECT count(*) FROM audit") == 1


def test_the_clock_is_read_once_and_is_the_database_s(plane: Plane) -> None:
    with plane() as uow:
        deed(uow)
        moment = uow.now
    assert plane.scalar("SELECT at FROM audit") == moment
    assert moment.tzinfo is not None


def test_who_first_asks_for_the_time_after_the_end_is_refused(plane: Plane) -> None:
    with plane() as uow:
        pass
    with pytest.raises(sa.exc.InvalidRequestError, match="closed"):
        _ = uow.now


def test_processes_own_nothing_and_cannot_change_history(plane: Plane) -> None:
    for statement in ("UPDATE audit SET actor = 'x'", "DELETE FROM leg", "UPDATE transfer SET kind = 'post'"):
        with pytest.raises(sa.exc.ProgrammingError, match="permission denied"), plane.engine.begin() as connection:
            connection.execute(sa.text(statement))


def test_one_notify_at_the_commit_names_every_cluster_once(plane: Plane, database: Database) -> None:
    with psycopg.connect(database.url, autocommit=True) as listener:
        listener.execute("LISTEN muster")
        with plane() as uow:
            for cluster in (7, 3, 7):
                uow.notify_cluster(ClusterId(cluster))
        assert [heard.payload for heard in listener.notifies(timeout=5, stop_after=1)] == ["3,7"]


def test_a_payload_that_would_be_too_long_wakes_everybody() -> None:
    assert payload({ClusterId(number) for number in range(10_000)}) == "*"


def test_a_pool_that_was_given_work_is_due_and_poked_after_the_commit_only(plane: Plane) -> None:
    pool = PoolId(int(str(plane.scalar("INSERT INTO pool (name) VALUES ('default') RETURNING id"))))
    with plane() as uow:
        uow.wake_pool(pool)
        uow.wake_pool(pool)
        assert plane.pokes.pools == []
        moment = uow.now
    assert plane.pokes.pools == [pool]
    assert plane.scalar("SELECT dirty_version FROM pool") == 1
    assert plane.scalar("SELECT next_check_at FROM pool") == moment
    with pytest.raises(ValueError, match="no"):
        fail_after(plane, lambda uow: uow.wake_pool(pool))
    assert plane.pokes.pools == [pool]


def test_every_pool_that_was_given_work_is_written_in_the_message_that_commits(plane: Plane) -> None:
    for name in ("a", "b"):
        plane.scalar(f"INSERT INTO pool (name) VALUES ('{name}') RETURNING id")
    with plane() as uow:
        deed(uow)
        for number in (1, 2):
            uow.wake_pool(
                PoolId(int(str(plane.scalar(f"SELECT id FROM pool ORDER BY id LIMIT 1 OFFSET {number - 1}"))))
            )
    assert plane.scalar("SELECT array_agg(dirty_version) FROM pool") == [1, 1]
    assert plane.scalar("SELECT count(*) FROM audit") == 1
    assert len(plane.pokes.pools) == 2


def test_where_the_last_message_fails_nothing_is_left_and_nobody_is_poked(plane: Plane, database: Database) -> None:
    pool = PoolId(int(str(plane.scalar("INSERT INTO pool (name) VALUES ('default') RETURNING id"))))
    with psycopg.connect(database.superuser_url, autocommit=True) as owner:
        owner.execute("ALTER TABLE pool ADD CONSTRAINT never CHECK (dirty_version < 1)")
    with pytest.raises(Refused, match="never"):
        deed_that_gives_work(plane, pool)
    assert plane.scalar("SELECT count(*) FROM audit") == 0
    assert plane.pokes.pools == []
    with plane() as uow:  # its connection is of use again
        deed(uow)
    assert plane.scalar("SELECT count(*) FROM audit") == 1


def test_what_commits_the_same_again_and_again_is_never_prepared_as_one_statement(plane: Plane) -> None:
    pool = PoolId(int(str(plane.scalar("INSERT INTO pool (name) VALUES ('default') RETURNING id"))))
    for _ in range(10):  # psycopg prepares what it has seen five times, and takes one statement at a time then
        with SqlUnitOfWork(plane.engine, plane.pokes, clock=lambda _session: datetime(2026, 1, 1, tzinfo=UTC)) as uow:
            uow.wake_pool(pool)
    assert plane.scalar("SELECT dirty_version FROM pool") == 10


def test_a_collision_runs_the_whole_work_again_with_growing_random_pauses(plane: Plane) -> None:
    tries: list[int] = []
    pauses: list[float] = []

    def work(uow: UnitOfWork) -> str:
        deed(uow)
        tries.append(1)
        if len(tries) < 3:
            raise Collision("deadlock")
        return "done"

    assert run(plane, work, chance=Random(1), sleep=pauses.append) == "done"
    assert plane.scalar("SELECT count(*) FROM audit") == 1
    assert len(pauses) == 2
    assert all(0 <= pause <= 0.02 * 2**number for number, pause in enumerate(pauses))


def test_collisions_without_end_are_told_to_the_caller(plane: Plane) -> None:
    tries: list[int] = []

    def work(_uow: UnitOfWork) -> None:
        tries.append(1)
        raise Collision("deadlock")

    with pytest.raises(Collision):
        run(plane, work, chance=Random(1), sleep=lambda _: None)
    assert len(tries) == TRIES_MAX


def test_errors_of_the_driver_come_out_in_words_that_services_know(plane: Plane, database: Database) -> None:
    with pytest.raises(Refused) as refusal:
        in_session(plane, "INSERT INTO pool (name) VALUES ('twice'), ('twice')")
    assert refusal.value.rule == "uq_pool_name"
    with pytest.raises(Collision):
        in_session(plane, "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40P01'; END $$")
    with pytest.raises(Unavailable):
        in_session(plane, "SET LOCAL statement_timeout = '20ms'", "SELECT pg_sleep(5)")
    with pytest.raises(Unavailable):
        deed_while_killed(plane, database)
    with plane() as uow:
        deed(uow)


def fail_after(plane: Plane, work: Callable[[UnitOfWork], None]) -> None:
    with plane() as uow:
        work(uow)
        raise ValueError("no")


def deed_that_gives_work(plane: Plane, pool: PoolId) -> None:
    with plane() as uow:
        deed(uow)
        uow.wake_pool(pool)


def deed_while_killed(plane: Plane, database: Database) -> None:
    with plane() as uow:
        assert uow.now.tzinfo is not None  # it has begun
        kill_others(database)
        deed(uow)


def in_session(plane: Plane, *statements: str) -> None:
    def clock(session: Session) -> datetime:
        for statement in statements:
            session.execute(sa.text(statement))
        return datetime(2026, 1, 1, tzinfo=UTC)

    with SqlUnitOfWork(plane.engine, plane.pokes, clock=clock):
        pass


def kill_others(database: Database) -> None:
    with psycopg.connect(database.superuser_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
