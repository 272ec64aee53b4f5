"""Documents that change while work is being submitted: who comes second sees what the first has done."""

import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from controlplane.contract.rest.workloads import WorkloadDocument
from controlplane.core.facts.tenancy import Binding, Principal, Role
from controlplane.services import applying, queues
from controlplane.services.applying import Sent
from controlplane.services.authz import Caller
from controlplane.services.documents import document_from
from controlplane.services.errors import Conflict, Invalid
from controlplane.services.ports.unit_of_work import UnitOfWork, run
from controlplane.services.preconditions import Expected
from controlplane.services.submission import Submission, Submitted, submit
from tests.api.bodies import workload
from tests.services.planes import H100, Plane
from tests.support.databases import Database
from tests.support.waiting import eventually

ADMIN = Caller(Principal(1, "person", "root", (Binding(Role.PLATFORM_ADMIN),)))
ANY = Expected(anything=True)


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    """A leaf queue and a cluster."""
    made = Plane(database)
    made.cluster("eu-west", nodes=4)
    made.queue("research", nominal=0)
    made.queue("research/nlp", nominal=64)
    made.queue("spare")
    yield made
    made.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def submitted(uow: UnitOfWork) -> Submitted:
    document, manifest = document_from(workload(pod_set={"replicas": 1}))
    assert isinstance(document, WorkloadDocument)
    return submit(uow, ADMIN, Submission(document, manifest), lambda: str(uuid.uuid4()))


def with_a_queue_below(uow: UnitOfWork) -> None:
    applied(uow, (queue("research/nlp/below", 1),))


def deleted(uow: UnitOfWork) -> None:
    applying.delete(uow, ADMIN, "Queue", "research/nlp", ANY)


def moved(uow: UnitOfWork) -> None:
    queues.move(uow, ADMIN, "research/nlp", "spare/nlp")


def moved_below(uow: UnitOfWork) -> None:
    queues.move(uow, ADMIN, "spare", "research/nlp/spare")


EDITS = {
    "made a parent": (with_a_queue_below, "queue-not-leaf"),
    "made a parent by a move": (moved_below, "queue-not-leaf"),
    "deleted": (deleted, "queue-unknown"),
    "moved": (moved, "queue-unknown"),
}


@pytest.mark.parametrize("name", EDITS)
def test_work_that_comes_while_its_queue_changes_is_judged_by_what_the_queue_becomes(
    plane: Plane, threads: ThreadPoolExecutor, name: str
) -> None:
    edit, slug = EDITS[name]
    with plane.uow() as uow:
        edit(uow)
        late = threads.submit(run, plane.uow, submitted)
        waits_for_a_lock(plane, late)
    with pytest.raises(Invalid) as refused:
        late.result(timeout=20)
    assert refused.value.slug == slug
    assert plane.rows("SELECT FROM workload") == []


@pytest.mark.parametrize("name", EDITS)
def test_a_queue_that_changes_while_work_comes_is_found_in_use(
    plane: Plane, threads: ThreadPoolExecutor, name: str
) -> None:
    edit, _ = EDITS[name]
    with plane.uow() as uow:
        submitted(uow)
        late = threads.submit(run, plane.uow, edit)
        waits_for_a_lock(plane, late)
    with pytest.raises(Conflict) as refused:
        late.result(timeout=20)
    assert refused.value.slug == "queue-in-use"


def waits_for_a_lock(plane: Plane, late: Future[Any]) -> None:
    blocked = "SELECT FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')"
    eventually(lambda: late.done() or plane.rows(blocked), within=20, what="the second to wait for the first")
    assert not late.done(), "it did not wait"


def test_a_tree_that_changes_under_planners_and_submitters_keeps_its_books(
    plane: Plane, threads: ThreadPoolExecutor
) -> None:
    def edits() -> None:
        for turn in range(6):
            both = (queue("research/nlp", 8 + turn), queue("research/new", 1))
            run(plane.uow, partial(applied, documents=both))
            run(plane.uow, lambda uow: applying.delete(uow, ADMIN, "Queue", "research/new", ANY))

    def plans() -> None:
        for turn in range(6):
            plane.workload(f"work-{turn}", leaf, pods=1)
            planner.step()

    leaf = plane.rows("SELECT id FROM queue WHERE path = 'research/nlp'")[0].id
    planner = plane.planner()
    for each in [threads.submit(edits), threads.submit(plans)]:
        each.result(timeout=60)
    planner.take()  # its lease may have run out meanwhile
    planner.step()
    [charged] = plane.rows(
        "SELECT pending + posted AS used,"
        " (SELECT coalesce(sum(amount), 0) FROM reservation WHERE state = 'held') AS held"
        " FROM account WHERE queue_id = :leaf",
        leaf=leaf,
    )
    assert charged.used == charged.held > 0


def applied(uow: UnitOfWork, documents: tuple[dict[str, Any], ...]) -> None:
    applying.apply(uow, ADMIN, [Sent(*document_from(each)) for each in documents], str)


def queue(path: str, nominal: int) -> dict[str, Any]:
    spec = {"namespace": "team", "quotas": [{"flavor": H100, "nominal": nominal}]}
    return {"apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": path}, "spec": spec}
