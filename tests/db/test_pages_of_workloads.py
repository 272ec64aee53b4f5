"""Pages of Workloads: both ways of reading them give the same lines, whatever is asked for."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from controlplane.core.facts.queries import Scope, WorkloadFilter
from controlplane.db.stores import documents_sql, queries_sql
from controlplane.db.stores import queries_workloads as pages
from tests.services.planes import Plane
from tests.support.databases import Database

QUEUES = ("lab", "lab/nlp", "lab/vision", "lab/vision/video", "laboratory", "shop")


@pytest.fixture
def filled(database: Database) -> Iterator[Plane]:
    """Some Workloads in each Queue, with two owners, many of them at the same moment."""
    plane = Plane(database)
    ids = {path: plane.queue(path) for path in QUEUES}
    for number in range(30):
        path = QUEUES[number % len(QUEUES)]
        plane.workload(f"gang-{number}", ids[path], pods=2)
    plane.do("UPDATE workload SET owner = 'ben' WHERE right(name, 1) IN ('1', '2', '3')")
    plane.do("""
        INSERT INTO workload (id, name, queue_id, pool_id, owner, priority, state, kind, spec, shape, submitted_at,
            state_changed_at)
        SELECT gen_random_uuid(), name || '-twin', queue_id, pool_id, owner, priority, state, kind, spec, shape,
            submitted_at, state_changed_at FROM workload""")
    yield plane
    plane.close()


def lines(plane: Plane, scope: Scope, wanted: WorkloadFilter, *, few: bool) -> list[str]:
    """Names over all pages of seven."""
    bounds, names, after = pages.sight(scope, wanted), [], None
    with plane.uow() as uow:
        session = uow.queries._session  # noqa: SLF001 - the statements themselves are on trial
        queues = list(session.execute(pages.queues_in_sight(bounds), bounds).scalars())
        while True:
            given = pages.conditions(wanted, after) | {"limit": 7}
            if few:
                rows = session.execute(pages.of_few(given), given | {"queues": queues}).all()
            else:
                rows = session.execute(pages.of_many(bounds, given), given | bounds).all()
            names += [f"{row.queue} {row.name}" for row in rows]
            if len(rows) < 7:
                return names
            after = rows[-1].submitted_at, str(rows[-1].id)


ASKED = [
    (Scope(None), WorkloadFilter(), 60),
    (Scope(None), WorkloadFilter(owner="ben"), 18),
    (Scope(None), WorkloadFilter(name="gang-7"), 1),
    (Scope(None), WorkloadFilter(states=("running",)), 0),
    (Scope(None), WorkloadFilter(queue="lab"), 40),
    (Scope(("lab/vision",)), WorkloadFilter(), 20),
    (Scope(("lab/vision", "shop")), WorkloadFilter(queue="lab"), 20),
    (Scope(()), WorkloadFilter(), 0),
]


def test_reading_queue_by_queue_and_walking_along_all_of_them_is_one(filled: Plane) -> None:
    for scope, wanted, count in ASKED:
        few = lines(filled, scope, wanted, few=True)
        assert few == lines(filled, scope, wanted, few=False), (scope, wanted)
        assert len(few) == len(set(few)) == count, (scope, wanted)


def test_a_name_and_what_a_queue_holds_are_found_by_an_index(filled: Plane) -> None:
    """Both grow with all that ever ran; one is asked at every turn, the other while every account is locked."""
    asked = (
        (queries_sql.NAMED, {"name": "gang-7", "paths": None}, "ix_workload_name"),
        (documents_sql.QUEUE_USES, {"queues": [1]}, "ix_reservation_held_queue"),
    )
    with filled.engine.begin() as connection:
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        for statement, given, index in asked:
            plan = connection.execute(text(f"EXPLAIN {statement.text}"), given)
            assert index in "\n".join(plan.scalars())
