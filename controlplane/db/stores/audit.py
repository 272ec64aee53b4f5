"""The audit log: append only, sealed afterwards into a chain of hashes.

Rows are written in the transaction of the deed. The chain is made later, by one sealer, because rows commit in another
order than they were numbered; `audit_seal` gives each row its place in the chain, without a gap, and what a deed rests
on stands before it. The stream of events is this order. The doctor checks the chain.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.orm import Session

from controlplane.core.facts.ledger import AuditEntry

GENESIS = bytes(32)
CHANNEL = "muster"  # of `db.listen`
_SEALER = 0x6D75_7301  # advisory lock: one sealer at a time

_INSERT = text("""
INSERT INTO audit (at, actor, request_id, action, object_kind, object_id, state_from, state_to, facts,
                   before_sha256, after_sha256)
SELECT :now, e->>0, e->>1, e->>2, e->>3, e->>4, e->>5, e->>6, e->7, decode(e->>8, 'hex'), decode(e->>9, 'hex')
FROM jsonb_array_elements(CAST(:entries AS jsonb)) WITH ORDINALITY AS listed (e, position) ORDER BY position
""")

# The last seal, and how far the log was read for it. A horizon beyond every transaction of this server was written by
# another one, whose dump this is; then nothing is known.
_LAST = text("""
SELECT position, chain, horizon AS since, horizon > pg_snapshot_xmax(pg_current_snapshot()) AS is_foreign
FROM audit_seal ORDER BY position DESC LIMIT 1
""")

# Rows commit in another order than they were numbered, so one may appear behind those that have their place already.
# All of them are of transactions that were not over at the last look. In the order of their ids, which are drawn when
# everything is locked that the deed needs: of two deeds on one object, the earlier one has the smaller id.
_UNSEALED = """
SELECT audit.id, audit_bytes(audit), pg_snapshot_xmin(pg_current_snapshot()) AS xmin FROM audit
WHERE {late} AND NOT EXISTS (SELECT FROM audit_seal WHERE audit_seal.audit_id = audit.id)
ORDER BY audit.id LIMIT :limit
"""
_OF_LATE = text(
    _UNSEALED.format(late="audit.xid >= CAST(:since AS xid8) AND audit.xid < pg_snapshot_xmax(pg_current_snapshot())")
)
_OF_ALL = text(_UNSEALED.format(late="true"))
_SEAL = text("""
INSERT INTO audit_seal (position, audit_id, chain, horizon)
SELECT place, id, link, CAST(:horizon AS xid8)
FROM unnest(CAST(:positions AS bigint[]), CAST(:ids AS bigint[]), CAST(:chains AS bytea[])) AS listed (place, id, link)
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
        """Give up to `limit` rows their place in the log and its chain; 0 also where another sealer is at work.

        Whoever waits for news of the log (`db.listen`) is woken by the commit.
        """
        if not self._session.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _SEALER}).scalar_one():
            return 0
        last = self._session.execute(_LAST).one_or_none()
        position, chain = (0, GENESIS) if last is None else (int(last.position), bytes(last.chain))
        since = "0" if last is None or last.is_foreign else str(last.since)
        given = {"limit": limit} if since == "0" else {"limit": limit, "since": since}
        rows = self._session.execute(_OF_ALL if since == "0" else _OF_LATE, given).all()
        if not rows:
            return 0
        chains: list[bytes] = []
        for _, content, _ in rows:
            chain = hashlib.sha256(chain + bytes(content)).digest()
            chains.append(chain)
        self._session.execute(
            _SEAL,
            {
                "positions": list(range(position + 1, position + 1 + len(rows))),
                "ids": [row.id for row in rows],
                "chains": chains,
                "horizon": since if len(rows) == limit else str(rows[0].xmin),  # what the limit left is not read yet
            },
        )
        self._session.execute(text("SELECT pg_notify(:channel, '')"), {"channel": CHANNEL})
        return len(rows)

    def head(self) -> int:
        """The last place that was given in the log; 0: none."""
        return int(self._session.execute(text("SELECT coalesce(max(position), 0) FROM audit_seal")).scalar_one())


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()
