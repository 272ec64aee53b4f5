"""The log of events: audit rows by their places (`audit_seal`). Fulfils `services.ports.events`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.orm import Session

from controlplane.core.facts.events import EventFact
from controlplane.core.ids import WorkloadId
from controlplane.db.stores.queries_audit import NAMED

_EVENTS = f"""
    SELECT place.position, audit.at, audit.object_kind, audit.object_id, audit.action, audit.actor, audit.state_from,
           audit.state_to, audit.facts, CAST(workload.id AS text) AS workload, told.name, told.path
    FROM /*places*/ JOIN audit ON audit.id = place.audit_id {NAMED}
    ORDER BY place.position LIMIT :limit"""

_AFTER = text(
    _EVENTS.replace(
        "/*places*/", "(SELECT * FROM audit_seal WHERE position > :after ORDER BY position LIMIT :limit) AS place"
    )
)
_OF_WORKLOAD = text(
    _EVENTS.replace(
        "/*places*/",
        """(
        SELECT audit_seal.* FROM audit AS mine JOIN audit_seal ON audit_seal.audit_id = mine.id
        WHERE audit_seal.position > :after
            AND ((mine.object_kind = 'workload' AND mine.object_id = :workload)
                 OR (mine.object_kind = 'attempt' AND mine.object_id = ANY(ARRAY(
                     SELECT :workload || '.' || attempt FROM attempt WHERE workload_id = CAST(:workload AS uuid)))))
        ORDER BY audit_seal.position LIMIT :limit) AS place""",
    )
)


class EventStore:
    """`uow.events`."""

    def __init__(self, session: Session, now: datetime) -> None:
        """Take the transaction's session and its reading of the clock."""
        self._session = session
        self._now = now

    def after(self, position: int, limit: int) -> Sequence[EventFact]:
        """All that follows, in order, at most `limit`; positions have no gaps."""
        return [_event(row) for row in self._session.execute(_AFTER, {"after": position, "limit": limit})]

    def of_workload(self, workload: WorkloadId, position: int, limit: int) -> Sequence[EventFact]:
        """The same of one Workload and its Attempts, from an index of its own."""
        given = {"after": position, "limit": limit, "workload": workload}
        return [_event(row) for row in self._session.execute(_OF_WORKLOAD, given)]


def _event(row: Row[Any]) -> EventFact:
    attempt = row.object_id.rpartition(".")[2] if row.object_kind == "attempt" else ""
    return EventFact(
        position=row.position,
        at=row.at,
        kind=row.object_kind,
        object_id=row.object_id,
        action=row.action,
        actor=row.actor,
        state_from=row.state_from,
        state_to=row.state_to,
        workload=row.workload,
        name=row.name,
        path=row.path,
        attempt=int(attempt) if attempt.isdecimal() else None,
        facts=row.facts,
    )
