"""The audit log: append only, sealed afterwards into a chain of hashes.

Rows are written in the transaction of the deed. The chain is made later, by one sealer, because rows commit in another
order than they were numbered; `audit_seal` gives each row its place in the chain. The doctor checks it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.orm import Session

from controlplane.core.facts.ledger import AuditEntry

GENESIS = bytes(32)
_SEALER = 0x6D75_7301  # advisory lock: one sealer at a time

_INSERT = text("""
INSERT INTO audit (at, actor, request_id, action, object_kind, object_id, state_from, state_to, facts,
                   before_sha256, after_sha256)
SELECT :now, e->>0, e->>1, e->>2, e->>3, e->>4, e->>5, e->>6, e->7, decode(e->>8, 'hex'), decode(e->>9, 'hex')
FROM jsonb_array_elements(CAST(:entries AS jsonb)) WITH ORDINALITY AS listed (e, position) ORDER BY position
""")

# Ids are given before commits, so a row may appear behind one that is sealed already; it can be late by the length
# of a transaction, for which an hour is more than the time-outs allow.
_UNSEALED = text("""
SELECT a.id, audit_bytes(a) FROM audit a
WHERE a.at >= coalesce((SELECT b.at - interval '1 hour' FROM audit b JOIN audit_seal s ON s.audit_id = b.id
                        ORDER BY s.position DESC LIMIT 1), '-infinity')
  AND NOT EXISTS (SELECT FROM audit_seal s WHERE s.audit_id = a.id)
ORDER BY a.at, a.id LIMIT :limit
""")


class AuditStore:
    """Collects entries and writes them in one statement when the transaction ends."""

    def __init__(self, session: Session, now: datetime) -> None:
        self._session = session
        self._now = now
        self._entries: list[AuditEntry] = []

    def record(  # noqa: PLR0913 - an audit row has that many parts; all but four have a default
        self,
        *,
        actor: str,
        action: str,
        object_kind: str,
        object_id: str,
        state_from: str | None = None,
        state_to: str | None = None,
        facts: Mapping[str, object] | None = None,
        request_id: str = "",
    ) -> None:
        """Note one deed; it is written before the transaction commits."""
        self._entries.append(
            AuditEntry(actor, action, object_kind, object_id, state_from, state_to, facts or {}, request_id)
        )

    def record_many(self, entries: Sequence[AuditEntry]) -> None:
        """Note many deeds at once."""
        self._entries.extend(entries)

    def write(self) -> None:
        """Write what was noted so far."""
        if not self._entries:
            return
        rows = [
            [
                e.actor, e.request_id, e.action, e.object_kind, e.object_id, e.state_from, e.state_to, dict(e.facts),
                _hex(e.before_sha256), _hex(e.after_sha256),
            ]
            for e in self._entries
        ]  # fmt: skip
        self._session.execute(_INSERT, {"now": self._now, "entries": json.dumps(rows)})
        self._entries.clear()

    def seal(self, limit: int) -> int:
        """Chain up to `limit` rows that are not sealed yet; 0 also where another sealer is at work."""
        if not self._session.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _SEALER}).scalar_one():
            return 0
        last = self._session.execute(
            text("SELECT position, chain FROM audit_seal ORDER BY position DESC LIMIT 1")
        ).one_or_none()
        position, chain = (0, GENESIS) if last is None else (int(last.position), bytes(last.chain))
        seals: list[dict[str, object]] = []
        for audit_id, content in self._session.execute(_UNSEALED, {"limit": limit}):
            position += 1
            chain = hashlib.sha256(chain + bytes(content)).digest()
            seals.append({"position": position, "audit_id": audit_id, "chain": chain})
        if seals:
            self._session.execute(
                text("INSERT INTO audit_seal (position, audit_id, chain) VALUES (:position, :audit_id, :chain)"), seals
            )
        return len(seals)


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()
