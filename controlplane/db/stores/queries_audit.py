"""Read models of the audit log, with names beside ids; the part of `queries` that tells what happened.

A row belongs to the Queue of its Workload, or to the Queue that it is about; what belongs to none is the plane's own.
"""

from typing import Any

from sqlalchemy import Row, text
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

_ASKED = """(CAST(:object_kind AS text) IS NULL OR audit.object_kind = :object_kind)
        AND (CAST(:object_id AS text) IS NULL OR audit.object_id = :object_id)
        AND (CAST(:actor AS text) IS NULL OR audit.actor = :actor)
        AND (CAST(:since AS timestamptz) IS NULL OR audit.at >= :since)
        AND (CAST(:before AS bigint) IS NULL OR audit.id < :before)"""

# Names are looked up for the rows of the page alone; what somebody may see of a part needs them before.
_OF_ALL = text(f"""
    WITH page AS MATERIALIZED (SELECT * FROM audit WHERE {_ASKED} ORDER BY audit.id DESC LIMIT :limit)
    SELECT audit.*, told.path, told.name FROM page AS audit {NAMED} ORDER BY audit.id DESC""")
_OF_SOME = text(f"""
    SELECT audit.*, told.path, told.name FROM audit {NAMED} WHERE {IN_SIGHT} AND {_ASKED}
    ORDER BY audit.id DESC LIMIT :limit""")


def audit(session: Session, scope: Scope, wanted: AuditFilter, before: int | None, limit: int) -> PageOf[AuditView]:
    """Youngest first; of a scope with paths, what belongs to the Queues there."""
    given: dict[str, object] = {
        "object_kind": wanted.object_kind, "object_id": wanted.object_id, "actor": wanted.actor,
        "since": wanted.since, "before": before, "limit": limit + 1,
    }  # fmt: skip
    if scope.paths is None:
        rows = session.execute(_OF_ALL, given).all()
    else:
        rows = session.execute(_OF_SOME, {**given, "paths": list(scope.paths)}).all()
    items = [_audit(row) for row in rows[:limit]]
    return PageOf(items, (str(items[-1].id),) if len(rows) > limit else None)


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
