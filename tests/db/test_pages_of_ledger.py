"""Pages of transfers: the same lines whichever way they are looked for, and no more than was asked for."""

from collections.abc import Iterator

import pytest

from controlplane.core.facts.queries import LedgerFilter, Scope
from controlplane.core.ids import WorkloadId
from controlplane.core.lifecycle import Outcome
from controlplane.services import attempts
from tests.services import agents
from tests.services.agents import node
from tests.services.planes import H100, Plane
from tests.support.databases import Database

ALL = Scope(None)


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    plane = Plane(database)
    yield plane
    plane.close()


@pytest.fixture
def ids(plane: Plane) -> dict[str, str]:
    """Of lab/a: one that ran to its end and one that was voided; of lab/b: one that is placed."""
    eu = agents.ready(plane, "eu", *(node(f"n{number}") for number in range(4)))
    plane.queue("lab", nominal=0)
    first, second = plane.queue("lab/a", nominal=16), plane.queue("lab/b", nominal=16)
    ran, name = agents.placed(plane, eu, first, pods=1, name="ran")
    eu.run(name)
    eu.finish(name)
    eu.bury(name)
    voided, name = agents.placed(plane, eu, first, pods=1, name="voided")
    plane.do("UPDATE workload SET not_before = now() + interval '1 hour' WHERE name = 'voided'")
    with plane.uow() as uow:
        attempts.stop(uow, uow.attempts.live_of([WorkloadId(voided)]), Outcome.VOIDED, None, attempts.PLANE)
    eu.sync()
    eu.bury(name)
    placed, _ = agents.placed(plane, eu, second, pods=1, name="placed")
    return {"ran": ran, "voided": voided, "placed": placed}


def kinds(plane: Plane, scope: Scope = ALL, limit: int = 2, **asked: str) -> list[str]:
    """Over all pages: "workload kind", the youngest first."""
    found: list[str] = []
    before = None
    with plane.uow() as uow:
        while True:
            page = uow.queries.transfers(scope, LedgerFilter(**asked), before, limit)
            assert all(each.legs for each in page.items)
            found += [f"{each.name} {each.kind}" for each in page.items if each.workload]
            if page.last is None:
                return found
            before = int(page.last[0])


def test_all_that_became_of_a_workload_is_found_by_it(plane: Plane, ids: dict[str, str]) -> None:
    assert kinds(plane, workload=ids["ran"]) == ["ran reverse", "ran post", "ran place"]
    assert kinds(plane, workload=ids["voided"]) == ["voided void", "voided place"]
    for scope in (ALL, Scope(("lab",)), Scope(("lab/b",))):
        assert kinds(plane, scope, workload=ids["placed"]) == ["placed place"]
    assert kinds(plane, Scope(("lab/a",)), workload=ids["placed"]) == []
    assert kinds(plane, queue="lab/a", workload=ids["placed"]) == []


def test_from_wherever_one_looks_the_lines_are_the_same(plane: Plane, ids: dict[str, str]) -> None:
    assert ids
    of_a = ["voided void", "voided place", "ran reverse", "ran post", "ran place"]
    for scope, asked in (
        (ALL, {}),
        (ALL, {"queue": "lab"}),
        (ALL, {"flavor": H100}),
        (Scope(("lab",)), {"flavor": H100}),
        (Scope(("lab/a", "lab/b")), {}),
    ):
        for limit in (1, 2, 50):
            assert kinds(plane, scope, limit, **asked) == ["placed place", *of_a], (scope, asked)
    assert kinds(plane, Scope(("lab/a",))) == kinds(plane, queue="lab/a") == of_a
    assert kinds(plane, Scope(())) == kinds(plane, flavor="none") == []
