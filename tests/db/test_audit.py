"""The audit log: written with the deed, sealed into a chain that shows whoever touches it later."""

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from controlplane.core.facts.ledger import AuditEntry
from tests.builders.rows import Rows
from tests.support.databases import Database


@pytest.fixture
def rows(database: Database) -> Iterator[Rows]:
    made = Rows(database)
    yield made
    made.dispose()


def deeds(rows: Rows, *names: str) -> None:
    with rows.uow() as uow:
        uow.audit.record_many([AuditEntry("person:ada", "test", "thing", name, facts={"n": 1}) for name in names])


def seal(rows: Rows, limit: int = 100) -> int:
    with rows.uow() as uow:
        return uow.audit.seal(limit)


def test_entries_are_written_in_their_order_with_everything_that_they_say(rows: Rows) -> None:
    with rows.uow() as uow:
        uow.audit.record(
            actor="agent:one", action="move", object_kind="thing", object_id="7", state_from="a", state_to="b",
            facts={"why": "ü"}, request_id="r-1",
        )  # fmt: skip
        uow.audit.record_many([AuditEntry("x", "y", "z", str(number)) for number in range(3)])
        moment = uow.now
    found = rows.run(
        "SELECT at, actor, action, object_kind, object_id, state_from, state_to, facts, request_id"
        " FROM audit ORDER BY id"
    )
    assert found[0] == (moment, "agent:one", "move", "thing", "7", "a", "b", {"why": "ü"}, "r-1")
    assert [row[4] for row in found] == ["7", "0", "1", "2"]


def test_a_seal_covers_what_is_there_and_the_next_one_goes_on(rows: Rows) -> None:
    deeds(rows, "a", "b", "c")
    assert seal(rows, limit=2) == 2
    deeds(rows, "d")
    assert seal(rows) == 2
    assert seal(rows) == 0
    assert rows.run("SELECT count(*), max(position) FROM audit_seal") == [(4, 4)]


def test_a_row_that_commits_behind_a_sealed_one_is_sealed_too(rows: Rows) -> None:
    with rows.uow() as late:
        late.audit.record(actor="slow", action="test", object_kind="thing", object_id="late")
        late.audit.write()  # type: ignore[attr-defined]  # the store's own; it takes the number before the others do
        deeds(rows, "early")
        assert seal(rows) == 1
    assert seal(rows) == 1


def test_a_row_stands_behind_what_it_rests_on_whenever_their_transactions_began(rows: Rows) -> None:
    """Three begin; the last one ends first, the first one does what rests on it, and one in between goes on."""
    first, between = rows.uow(), rows.uow()
    with between:
        with first:
            for name, began in (("first", first), ("between", between)):
                began.tenancy.put_principal("person", name)  # takes its transaction's number
            deeds(rows, "cause")
            first.audit.record(actor="person:ada", action="test", object_kind="thing", object_id="effect")
        assert seal(rows) == 2
    places = rows.run("SELECT object_id FROM audit JOIN audit_seal ON audit_id = audit.id ORDER BY position")
    assert [row[0] for row in places] == ["cause", "effect"]


def test_a_sealer_reads_no_more_than_what_came_since_and_whoever_was_late(rows: Rows) -> None:
    deeds(rows, *(str(number) for number in range(50)))
    seal(rows)
    deeds(rows, "new")
    seal(rows)
    plan = rows.run(
        "EXPLAIN (ANALYZE, FORMAT JSON) SELECT id FROM audit WHERE xid >= (SELECT horizon FROM audit_seal"
        " ORDER BY position DESC LIMIT 1)"
    )
    (told,) = cast("list[dict[str, Any]]", plan[0][0])
    assert told["Plan"]["Actual Rows"] <= 1


def test_a_log_that_was_written_by_another_server_goes_on(rows: Rows) -> None:
    """A dump is read back where transactions are numbered lower than in the log."""
    deeds(rows, "a", "b")
    seal(rows, limit=1)
    rows.run(
        "INSERT INTO audit_seal (position, audit_id, chain, horizon) SELECT 2, id, sha256(chain || audit_bytes(audit)),"
        " '900000000000' FROM audit_seal, audit WHERE object_id = 'b'"
    )
    deeds(rows, "c")
    assert seal(rows) == 1
    deeds(rows, "d")
    assert seal(rows) == 1


def test_two_sealers_at_once_make_one_chain(rows: Rows) -> None:
    deeds(rows, *(str(number) for number in range(200)))
    sealed: list[int] = []

    def work() -> None:
        while count := seal(rows, limit=20):
            sealed.append(count)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    seal(rows)
    assert rows.run("SELECT count(*), count(DISTINCT audit_id) FROM audit_seal") == [(200, 200)]
