"""What a submit asks of the database: few statements, and a note whose number comes behind every lock."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event, text

from controlplane.core.facts.tenancy import Binding, Principal, Role
from controlplane.services.authz import Caller
from controlplane.services.errors import Invalid
from controlplane.services.ports.unit_of_work import run
from controlplane.services.recent import RecentWorld
from controlplane.services.submission import submit
from tests.api.bodies import workload
from tests.services.planes import Plane
from tests.services.test_submission import sent
from tests.support.databases import Database
from tests.support.waiting import eventually

ADMIN = Caller(Principal(1, "person", "root", (Binding(Role.PLATFORM_ADMIN),)), "request-1")
ID = "0192f3a0-0000-7000-8000-00000000000{}"


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    made = Plane(database)
    made.cluster("eu-west", nodes=4)
    made.queue("research", nominal=0)
    made.queue("research/nlp", nominal=64)
    yield made
    made.close()


def submitted(plane: Plane, name: str, number: int, recent: RecentWorld | None = None) -> None:
    run(plane.uow, lambda uow: submit(uow, ADMIN, sent(workload(name)), lambda: ID.format(number), recent))


def test_a_submit_looks_once_writes_once_and_commits_with_the_pool_s_row(plane: Plane) -> None:
    recent, said = RecentWorld(), list[str]()
    submitted(plane, "first", 1, recent)  # remembers the quota tree
    event.listen(plane.engine, "before_cursor_execute", lambda _c, _cursor, statement, *_: said.append(statement))
    submitted(plane, "second", 2, recent)
    assert [" ".join(each.split())[:11] for each in said] == ["SELECT now(", "WITH added ", "UPDATE pool"]
    assert said[-1].endswith("; COMMIT")


def test_the_note_of_a_submit_tells_who_did_what_at_the_moment_of_the_workload(plane: Plane) -> None:
    submitted(plane, "train", 1)
    (note,) = plane.rows("SELECT * FROM audit WHERE object_kind = 'workload'")
    (row,) = plane.rows("SELECT submitted_at FROM workload")
    assert (note.actor, note.action, note.object_id) == ("person:root", "workload.submit", ID.format(1))
    assert (note.state_from, note.state_to, note.request_id) == (None, "pending", "request-1")
    assert note.facts == {"name": "train", "queue": "research/nlp"}
    assert note.at == row.submitted_at


def test_a_queue_that_became_a_parent_meanwhile_takes_neither_the_workload_nor_its_note(plane: Plane) -> None:
    plane.queue("research/nlp/speech", nominal=0)
    with pytest.raises(Invalid) as refused:
        submitted(plane, "train", 1)
    assert refused.value.slug == "queue-not-leaf"
    assert plane.rows("SELECT id FROM audit WHERE object_kind = 'workload'") == []


def test_whoever_holds_the_pool_stands_before_the_submit_in_the_log(plane: Plane) -> None:
    with ThreadPoolExecutor(1) as pool, plane.engine.connect() as holder:
        holder.execute(text("SELECT id FROM pool FOR UPDATE"))
        waiting = pool.submit(submitted, plane, "train", 1)
        eventually(
            lambda: plane.rows("SELECT FROM pg_locks WHERE NOT granted"), what="the submit waits for the Pool"
        )  # fmt: skip
        note = (
            "INSERT INTO audit (at, actor, action, object_kind, object_id) VALUES (now(), 'test', 'test', 'pool', '1')"
        )
        held = holder.execute(text(f"{note} RETURNING id")).scalar_one()
        holder.commit()
        waiting.result(timeout=20)
    (submit_note,) = plane.rows("SELECT id FROM audit WHERE object_kind = 'workload'")
    assert submit_note.id > held
