"""Pages of the audit log of a part of the tree: bounded work for each, and no line left out over all of them."""

from collections.abc import Iterator

import pytest

from controlplane.core.facts.ledger import AuditEntry
from controlplane.core.facts.queries import AuditFilter, Scope
from controlplane.db.stores.queries_audit import USUAL, Looks, audit
from tests.services.planes import Plane
from tests.support.databases import Database

MINE = 7
EVERYTHING = AuditFilter()


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    """A row of lab in every ten; the others are the plane's and a neighbour's."""
    plane = Plane(database)
    mine, other = (plane.workload("gang", plane.queue(path), pods=1) for path in ("lab", "shop"))
    with plane.uow() as uow:
        for number in range(10 * MINE):
            kind, name = ("workload", mine) if number % 10 == 0 else ("attempt", f"{other}.1")
            uow.audit.record_many([AuditEntry("ada" if number % 20 else "ben", f"deed-{number}", kind, name)])
    yield plane
    plane.close()


def pages(plane: Plane, limit: int, asked: AuditFilter = EVERYTHING, looks: Looks = USUAL) -> list[list[str]]:
    """Deeds of lab, page by page."""
    found: list[list[str]] = []
    before = None
    with plane.uow() as uow:
        session = uow.queries._session  # noqa: SLF001 - the statements themselves are on trial
        while True:
            page = audit(session, Scope(("lab",)), asked, before, limit, looks)
            found.append([each.action for each in page.items if each.action.startswith("deed-")])
            if page.last is None:
                return found
            before = int(page.last[0])


DEEDS = [f"deed-{10 * number}" for number in reversed(range(MINE))]


@pytest.mark.parametrize("limit", [1, 3, MINE, 100])
def test_each_line_comes_once_however_few_a_page_may_look_through(plane: Plane, limit: int) -> None:
    assert [deed for page in pages(plane, limit) for deed in page] == DEEDS
    short = pages(plane, limit, looks=Looks(rows=4, most=2))
    assert [deed for page in short for deed in page] == DEEDS
    assert [] in short, "a page may have nothing where others follow"


def test_what_else_is_asked_for_is_obeyed_in_each_look(plane: Plane) -> None:
    looks = Looks(rows=2)
    assert [deed for page in pages(plane, 2, AuditFilter(actor="ben"), looks) for deed in page] == DEEDS[::2]
    assert pages(plane, 100, AuditFilter(object_kind="pool"), looks) == [[]]
