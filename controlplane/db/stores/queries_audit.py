"""Read models of the audit log, with names beside ids; the part of `queries` that tells what happened.

A row belongs to the Queue of its Workload, or to the Queue that it is about; what belongs to none is the plane's own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Row, TextClause, text
from sqlalchemy.orm import Session

from controlplane.contract.rest.operations import AuditView
from controlplane.core.facts.queries import AuditFilter, PageOf, Scope

Line = Row[Any]

# Ids in audit rows are text, since every kind has its own; a name is looked up where people use another word.
NAMED = """
    LEFT JOIN workload ON workload.id = CASE
        WHEN audit.object_kind IN ('workload', 'attempt') AND audit.object_id ~ '^[0-9a-f-]{36}([.]|$)'
        THEN CAST(left(audit.object_id, 36) AS uuid) END
    LEFT JOIN queue AS owning ON owning.id = workload.queue_id
    LEFT JOIN cluster ON audit.object_kind = 'cluster' AND audit.object_id ~ '^[0-9]{1,18}$'
        AND cluster.id = CASE WHEN audit.object_id ~ '^[0-9]{1,18}$' THEN CAST(audit.object_id AS bigint) END
    LEFT JOIN node ON audit.object_kind = 'node'
        AND node.id = CASE WHEN audit.object_id ~ '^[0-9]{1,18}$' THEN CAST(audit.object_id AS bigint) END
    CROSS JOIN LATERAL (
        SELECT coalesce(owning.path, CASE WHEN audit.object_kind = 'queue' THEN audit.object_id END) AS path,
               coalesce(workload.name, cluster.name, node.name, '') AS name) AS told"""
IN_SIGHT = """EXISTS (SELECT FROM unnest(CAST(:paths AS text[])) AS seen (path)
    WHERE told.path = seen.path OR starts_with(told.path, seen.path || '/'))"""

_ASKED = {
    "object_kind": "audit.object_kind = :object_kind",
    "object_id": "audit.object_id = :object_id",
    "actor": "audit.actor = ANY(:actor)",
    "since": "audit.at >= :since",
    "before": "audit.id < :before",
}


@dataclass(frozen=True, slots=True)
class Looks:
    """How many rows one statement looks through for those in somebody's sight, and how often for one page."""

    rows: int = 10_000
    most: int = 10


USUAL = Looks()


def audit(
    session: Session, scope: Scope, wanted: AuditFilter, before: int | None, limit: int, looks: Looks = USUAL
) -> PageOf[AuditView]:
    """Youngest first; of a scope with paths, what belongs to the Queues there.

    Whose a row is stands in no index, so such a page ends after so many looks, full or not, where others follow.
    """
    asked: dict[str, object | None] = {
        "object_kind": wanted.object_kind, "object_id": wanted.object_id, "actor": _actors(wanted),
        "since": wanted.since,
    }  # fmt: skip
    given = {name: value for name, value in asked.items() if value is not None}
    if scope.paths is None:
        rows = session.execute(*_question(_page, given, before, limit=limit + 1)).all()
        return _paged(rows, limit)
    rows, floor = [], before
    for _ in range(looks.most):
        look = session.execute(*_question(_look, given, floor, limit=looks.rows)).one()
        if look.floor is None:
            return _paged(rows, limit)
        told = {"floor": look.floor, "paths": list(scope.paths), "limit": limit + 1 - len(rows)}
        rows += session.execute(*_question(_in_sight, given, floor, **told)).all()
        if len(rows) > limit or look.rows < looks.rows:
            return _paged(rows, limit)
        floor = look.floor
    return PageOf(_paged(rows, limit).items, (str(floor),))


def _actors(wanted: AuditFilter) -> list[str] | None:
    """A bare name is also that of a person or service, whose kind the log writes before it."""
    if wanted.actor is None or ":" in wanted.actor:
        return None if wanted.actor is None else [wanted.actor]
    return [wanted.actor, f"person:{wanted.actor}", f"service:{wanted.actor}"]


def _paged(rows: Sequence[Line], limit: int) -> PageOf[AuditView]:
    items = [_audit(row) for row in rows[:limit]]
    return PageOf(items, (str(items[-1].id),) if len(rows) > limit else None)


def _question(
    ask: Callable[[str], TextClause], given: Mapping[str, object], before: int | None, **more: object
) -> tuple[TextClause, dict[str, object]]:
    """A statement with the conditions that were asked for and no others (see `queries_workloads`), and their values."""
    values = {**given, **({} if before is None else {"before": before})}
    where = " AND ".join(["true", *(condition for name, condition in _ASKED.items() if name in values)])
    return ask(where), {**values, **more}


@cache
def _page(where: str) -> TextClause:
    # Names are looked up for the rows of the page alone; what somebody may see of a part needs them before.
    return text(f"""
        WITH page AS MATERIALIZED (SELECT * FROM audit WHERE {where} ORDER BY audit.id DESC LIMIT :limit)
        SELECT audit.*, told.path, told.name FROM page AS audit {NAMED} ORDER BY audit.id DESC""")


@cache
def _look(where: str) -> TextClause:
    return text(f"""
        SELECT min(id) AS floor, count(*) AS rows
        FROM (SELECT audit.id FROM audit WHERE {where} ORDER BY audit.id DESC LIMIT :limit) AS looked""")


@cache
def _in_sight(where: str) -> TextClause:
    return text(f"""
        WITH looked AS MATERIALIZED (SELECT * FROM audit WHERE audit.id >= :floor AND {where})
        SELECT audit.*, told.path, told.name FROM looked AS audit {NAMED} WHERE {IN_SIGHT}
        ORDER BY audit.id DESC LIMIT :limit""")


def _audit(row: Line) -> AuditView:
    return AuditView(
        id=row.id,
        at=row.at,
        actor=row.actor,
        action=row.action,
        object_kind=row.object_kind,
        object_id=row.object_id,
        object_name=row.name,
        queue=row.path,
        state_from=row.state_from,
        state_to=row.state_to,
        request_id=row.request_id,
        facts=row.facts,
        before_sha256=None if row.before_sha256 is None else bytes(row.before_sha256).hex(),
        after_sha256=None if row.after_sha256 is None else bytes(row.after_sha256).hex(),
    )
