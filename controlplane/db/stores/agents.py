"""Enrolment tokens, agents' keys and sessions, the numbering of directives, and the plane's own row.

Fulfils `services.ports.fleet.AgentStore`. Numbers of directives are given under the counter's row lock, in a last,
tiny transaction, so none is ever skipped by a reader; what a crash leaves unnumbered, `unnumbered` finds.
"""

import json
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, TextClause
from sqlalchemy.orm import Session

from controlplane.core.facts.fleet import Document, KeyFact, NumberedDirective, PlaneFact, SessionFact, TokenFact
from controlplane.core.facts.ledger import AttemptKey
from controlplane.core.ids import ClusterId, PoolId
from controlplane.core.lifecycle import ClusterState
from controlplane.db.stores import agents_sql as sql

Line = Row[Any]


class AgentStore:
    """`uow.agents`."""

    def __init__(self, session: Session, now: datetime) -> None:
        self._session = session
        self._now = now

    def add_token(
        self, cluster: ClusterId, digest: bytes, created_by: str, expires_at: datetime, *, auto_accept: bool
    ) -> int:
        values = {"digest": digest, "created_by": created_by, "expires_at": expires_at, "auto_accept": auto_accept}
        made = self._session.scalar(sql.ADD_TOKEN, {**values, "cluster": cluster, "now": self._now})
        assert made is not None
        return int(made)

    def token(self, digest: bytes) -> TokenFact | None:
        row = self._session.execute(sql.TOKEN, {"digest": digest}).one_or_none()
        return None if row is None else _token(row)

    def use_token(self, token: int, thumbprint: str) -> bool:
        return self._hits(sql.USE_TOKEN, token=token, thumbprint=thumbprint, now=self._now) == 1

    def revoke_tokens(self, cluster: ClusterId) -> int:
        return self._hits(sql.REVOKE_TOKENS, cluster=cluster, now=self._now)

    def key(self, thumbprint: str) -> KeyFact | None:
        row = self._session.execute(sql.KEY, {"thumbprint": thumbprint}).one_or_none()
        return None if row is None else _key(row)

    def add_key(self, thumbprint: str, cluster: ClusterId, algorithm: str, jwk: Mapping[str, str], slot: str) -> bool:
        which = {"thumbprint": thumbprint, "cluster": cluster, "slot": slot}
        self._session.execute(sql.RETIRE_SLOT, which)
        return self._hits(sql.ADD_KEY, **which, algorithm=algorithm, jwk=json.dumps(dict(jwk)), now=self._now) == 1

    def promote(self, thumbprint: str) -> bool:
        self._session.execute(sql.RETIRE_FOR, {"thumbprint": thumbprint})
        return self._hits(sql.PROMOTE, thumbprint=thumbprint) == 1

    def take_hello(self, thumbprint: str, iat: int) -> bool:
        return self._hits(sql.TAKE_HELLO, thumbprint=thumbprint, iat=iat) == 1

    def ban_keys(self, cluster: ClusterId) -> int:
        banned = self._hits(sql.BAN_KEYS, cluster=cluster, now=self._now)
        if banned:
            self._session.execute(sql.TOUCH_CLUSTER, {"cluster": cluster})
        return banned

    def open_session(
        self, cluster: ClusterId, instance_id: str, thumbprint: str, acked_number: int, lease_until: datetime
    ) -> int:
        self.end_sessions(cluster)
        values = {"instance_id": instance_id, "thumbprint": thumbprint, "acked_number": acked_number}
        epoch = self._session.scalar(
            sql.OPEN_SESSION, {**values, "cluster": cluster, "lease_until": lease_until, "now": self._now}
        )
        assert epoch is not None
        return int(epoch)

    def end_sessions(self, cluster: ClusterId) -> None:
        self._session.execute(sql.END_SESSIONS, {"cluster": cluster, "now": self._now})

    def lock_session(self, cluster: ClusterId) -> SessionFact | None:
        return self._one_session(sql.SESSION_LOCKED, cluster)

    def session(self, cluster: ClusterId) -> SessionFact | None:
        return self._one_session(sql.SESSION, cluster)

    def take_seq(self, cluster: ClusterId, epoch: int, seq: int, acked_number: int, lease_until: datetime) -> bool:
        values = {"epoch": epoch, "seq": seq, "acked_number": acked_number, "lease_until": lease_until}
        return self._hits(sql.TAKE_SEQ, **values, cluster=cluster, now=self._now) == 1

    def store_answer(self, cluster: ClusterId, epoch: int, seq: int, answer: Document) -> Document | None:
        values = {"cluster": cluster, "epoch": epoch, "seq": seq, "answer": json.dumps(dict(answer))}
        kept: Document | None = self._session.scalar(sql.STORE_ANSWER, values)
        return kept

    def full_asked(self, cluster: ClusterId, epoch: int) -> None:
        self._session.execute(sql.FULL_ASKED, {"cluster": cluster, "epoch": epoch, "now": self._now})

    def number_directives(self, cluster_ids: Collection[ClusterId]) -> set[ClusterId]:
        if not cluster_ids:
            return set()
        which = {"clusters": sorted(cluster_ids)}
        self._session.execute(sql.ENSURE_COUNTERS, which)
        self._session.execute(sql.LOCK_COUNTERS, which)
        return {ClusterId(one) for one in self._session.scalars(sql.NUMBER, which)}

    def unnumbered(self, limit: int) -> list[ClusterId]:
        return [ClusterId(one) for one in self._session.scalars(sql.UNNUMBERED, {"limit": limit})]

    def last_number(self, cluster: ClusterId) -> int:
        return int(self._session.scalar(sql.LAST_NUMBER, {"cluster": cluster}) or 0)

    def directives_after(self, cluster: ClusterId, after: int, upto: int, limit: int) -> list[NumberedDirective]:
        values = {"cluster": cluster, "after": after, "upto": upto, "limit": limit}
        return [
            NumberedDirective(row.number, row.object_id, row.gen, row.kind, row.workload, row.attempt, row.body)
            for row in self._session.execute(sql.DIRECTIVES_AFTER, values)
        ]

    def known_objects(self, cluster: ClusterId, upto: int) -> list[tuple[str, int]]:
        rows = self._session.execute(sql.KNOWN_OBJECTS, {"cluster": cluster, "upto": upto})
        return [(row.object_id, row.gen) for row in rows]

    def plane(self) -> PlaneFact:
        row = self._session.execute(sql.PLANE).one_or_none()
        if row is None:
            self._session.execute(sql.MAKE_PLANE)
            row = self._session.execute(sql.PLANE).one()
        return PlaneFact(row.incarnation, row.epoch, row.listened_at, row.listening_since, row.recovering_since)

    def begin_recovery(self) -> int:
        """A new incarnation and epoch (returned); every cluster has to be heard, every Session is over."""
        self.plane()
        epoch = self._session.scalar(sql.BEGIN_RECOVERY, {"now": self._now})
        assert epoch is not None
        self._session.execute(sql.RECOVER_CLUSTERS)
        self.end_all_sessions()
        return int(epoch)

    def end_recovery(self) -> None:
        self._session.execute(sql.END_RECOVERY)

    def recovered(self, cluster: ClusterId) -> None:
        self._session.execute(sql.RECOVERED, {"cluster": cluster})

    def recovering(self) -> list[str]:
        return [str(name) for name in self._session.scalars(sql.RECOVERING)]

    def note_unknown(self, pool: PoolId, keys: Collection[AttemptKey], until: datetime) -> None:
        given = sorted((key.workload, key.attempt) for key in keys)
        bound = {"workloads": [workload for workload, _ in given], "attempts": [attempt for _, attempt in given]}
        self._session.execute(sql.NOTE_UNKNOWN, {**bound, "pool": pool, "until": until})

    def end_all_sessions(self) -> list[ClusterId]:
        return [ClusterId(each) for each in self._session.scalars(sql.END_ALL_SESSIONS, {"now": self._now})]

    def without_session_since(self, since: datetime) -> list[str]:
        return [str(name) for name in self._session.scalars(sql.SESSIONS_BEFORE, {"since": since})]

    def note_listening(self, gap_seconds: int) -> None:
        self.plane()
        gap_start = self._now - timedelta(seconds=gap_seconds)
        self._session.execute(sql.NOTE_LISTENING, {"now": self._now, "gap_start": gap_start})

    def _hits(self, statement: TextClause, **values: object) -> int:
        return len(self._session.execute(statement, values).all())

    def _one_session(self, statement: TextClause, cluster: ClusterId) -> SessionFact | None:
        row = self._session.execute(statement, {"cluster": cluster}).one_or_none()
        return None if row is None else _session(row)


def _token(row: Line) -> TokenFact:
    return TokenFact(
        id=row.id,
        cluster=ClusterId(row.cluster_id),
        uses=row.uses,
        uses_max=row.uses_max,
        used_by=row.used_by_thumbprint,
        auto_accept=row.auto_accept,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
    )


def _key(row: Line) -> KeyFact:
    return KeyFact(
        thumbprint=row.thumbprint,
        cluster=ClusterId(row.cluster_id),
        cluster_name=row.cluster_name,
        cluster_state=ClusterState(row.cluster_state),
        algorithm=row.algorithm,
        jwk=row.jwk,
        slot=row.slot,
        created_at=row.created_at,
        banned_at=row.banned_at,
    )


def _session(row: Line) -> SessionFact:
    return SessionFact(
        cluster=ClusterId(row.cluster_id),
        epoch=row.epoch,
        instance_id=row.instance_id,
        thumbprint=row.thumbprint,
        seq=row.seq,
        answer=row.answer,
        acked_number=row.acked_number,
        lease_until=row.lease_until,
        started_at=row.started_at,
        ended_at=row.ended_at,
        full_asked_at=row.full_asked_at,
        is_recovering=row.is_recovering,
    )
