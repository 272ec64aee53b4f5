"""Statements that read Queues, Quotas, Pools and Policies; all of Principals, tokens and idempotency keys.

Fulfils `services.ports.tenancy`; what is applied is written by `stores.documents`. Locks of the quota tree are the
ledger's (`LedgerStore.lock_tree`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, bindparam, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from controlplane.core.facts.tenancy import (
    EVERY_SCOPE,
    Binding,
    NewToken,
    PoolFact,
    Principal,
    QueueFact,
    Role,
    StoredAnswer,
    TokenFact,
    TokenScope,
)
from controlplane.core.ids import FlavorName, PoolId, QueueId
from controlplane.core.tenancy import Queue, Quota

KEY_LOCK_CLASS = 7_303  # first key of the two-key advisory lock; the second is a hash of whose idempotency key it is

_QUEUE = "SELECT id, path, parent_id, weight, namespace, labels, version FROM queue WHERE deleted_at IS NULL"
_DEPTH = "array_length(string_to_array(path, '/'), 1)"

# One statement for all that every request must know. Bindings, and what bounds the token, are gone with their Queue.
_BY_TOKEN = text("""
    SELECT principal.id, principal.kind, principal.name, api_token.id AS token, api_token.scopes,
           api_token.expires_at, api_token.last_used_on, bound.path AS within,
           ARRAY(SELECT role_binding.role || ' ' || coalesce(queue.path, '')
                 FROM role_binding LEFT JOIN queue ON queue.id = role_binding.queue_id
                 WHERE role_binding.principal_id = principal.id
                     AND (role_binding.queue_id IS NULL OR queue.deleted_at IS NULL)
                 ORDER BY role_binding.id) AS bindings
    FROM api_token JOIN principal ON principal.id = api_token.principal_id
    LEFT JOIN queue AS bound ON bound.id = api_token.within_queue_id
    WHERE api_token.token_sha256 = :digest AND api_token.revoked_at IS NULL AND principal.disabled_at IS NULL
        AND (api_token.expires_at IS NULL OR api_token.expires_at > :now) AND bound.deleted_at IS NULL""")

_BINDINGS = text("""
    SELECT role_binding.role, queue.path
    FROM role_binding LEFT JOIN queue ON queue.id = role_binding.queue_id
    WHERE role_binding.principal_id = :principal AND (role_binding.queue_id IS NULL OR queue.deleted_at IS NULL)
    ORDER BY role_binding.id""")


class TenancyStore:
    """`uow.tenancy`."""

    def __init__(self, session: Session, now: datetime) -> None:
        """Take the transaction's session and its reading of the clock."""
        self._session = session
        self._now = now

    def queues(self) -> Sequence[QueueFact]:
        """Every live Queue, by path; parents before children."""
        return [_queue(row) for row in self._session.execute(text(f"{_QUEUE} ORDER BY {_DEPTH}, path"))]

    def queue(self, path: str) -> QueueFact | None:
        """The live Queue at this path."""
        row = self._session.execute(text(f"{_QUEUE} AND path = :path"), {"path": path}).one_or_none()
        return None if row is None else _queue(row)

    def tree(self) -> Sequence[Queue]:
        """Every live Queue with its listed Quotas, as the quota tree takes them; parents first."""
        listed: dict[int, list[Quota]] = defaultdict(list)
        rows = self._session.execute(text("SELECT * FROM quota WHERE is_listed ORDER BY queue_id, flavor"))
        for row in rows:
            listed[row.queue_id].append(Quota(FlavorName(row.flavor), row.nominal, row.borrow_limit, row.lend_limit))
        return [
            Queue(queue.id, queue.path, queue.parent, queue.weight, tuple(listed[queue.id]), queue.namespace)
            for queue in self.queues()
        ]

    def pool(self, name: str) -> PoolFact | None:
        """The Pool of this name."""
        return next((pool for pool in self.pools() if pool.name == name), None)

    def pools(self) -> Sequence[PoolFact]:
        """Every Pool, by name."""
        rows = self._session.execute(
            text("SELECT id, name, spec, policy_version FROM pool WHERE deleted_at IS NULL ORDER BY name")
        )
        return [PoolFact(PoolId(row.id), row.name, row.spec, row.policy_version) for row in rows]

    def policy(self, pool: PoolId) -> Mapping[str, object]:
        """The spec of the version in force; empty where none was applied."""
        statement = text(
            "SELECT policy.spec FROM pool JOIN policy ON policy.pool_id = pool.id"
            " AND policy.version = pool.policy_version WHERE pool.id = :pool"
        )
        return dict(self._session.execute(statement, {"pool": pool}).scalar_one_or_none() or {})

    def principal_of_token(self, token_sha256: bytes) -> Principal | None:
        """Whose live bearer token has this hash."""
        row = self._session.execute(_BY_TOKEN, {"digest": token_sha256, "now": self._now}).one_or_none()
        if row is None:
            return None
        bindings = tuple(_binding(each) for each in row.bindings)
        token = TokenFact(row.token, row.expires_at, row.within, row.last_used_on)
        return Principal(row.id, row.kind, row.name, bindings, _scopes(row.scopes), token).bounded()

    def principal(self, kind: str, name: str) -> Principal | None:
        """The enabled Principal of this name."""
        statement = text(
            "SELECT id, kind, name FROM principal WHERE kind = :kind AND name = :name AND disabled_at IS NULL"
        )
        row = self._session.execute(statement, {"kind": kind, "name": name}).one_or_none()
        return None if row is None else self._principal(row)

    def put_principal(self, kind: str, name: str) -> int:
        """Write it if it is not there; return its id."""
        statement = text(
            "INSERT INTO principal (kind, name, created_at) VALUES (:kind, :name, :now)"
            " ON CONFLICT (kind, name) DO UPDATE SET name = excluded.name RETURNING id"
        )
        given = {"kind": kind, "name": name, "now": self._now}
        return int(self._session.execute(statement, given).scalar_one())

    def add_token(self, token: NewToken) -> int:
        """Store a token's hash."""
        statement = text(
            "INSERT INTO api_token (principal_id, token_sha256, name, scopes, created_at, expires_at, created_by,"
            " within_queue_id) VALUES (:principal, :digest, :name, :scopes, :now, :expires, :created_by,"
            " (SELECT id FROM queue WHERE path = CAST(:within AS text) AND deleted_at IS NULL)) RETURNING id"
        ).bindparams(bindparam("scopes", type_=JSONB))
        given = {
            "principal": token.principal_id, "digest": token.token_sha256, "name": token.name,
            "scopes": sorted(token.scopes), "now": self._now, "expires": token.expires_at,
            "created_by": token.created_by, "within": token.within,
        }  # fmt: skip
        return int(self._session.execute(statement, given).scalar_one())

    def has_admin_token(self, besides: int = 0) -> bool:
        """Whether a token (besides this one) lives whose bearer may do everything with it."""
        statement = text(
            "SELECT EXISTS (SELECT FROM api_token JOIN principal ON principal.id = api_token.principal_id"
            " JOIN role_binding ON role_binding.principal_id = principal.id"
            " WHERE role_binding.role = :role AND role_binding.queue_id IS NULL AND principal.disabled_at IS NULL"
            " AND (api_token.scopes = '[]' OR api_token.scopes ? 'admin') AND api_token.within_queue_id IS NULL"
            " AND api_token.id <> :besides"
            " AND api_token.revoked_at IS NULL AND (api_token.expires_at IS NULL OR api_token.expires_at > :now))"
        )
        asked = {"role": Role.PLATFORM_ADMIN, "now": self._now, "besides": besides}
        return bool(self._session.execute(statement, asked).scalar_one())

    def revoke_token(self, token_id: int) -> bool:
        """End a token; False where there is none that lives."""
        statement = text("UPDATE api_token SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL RETURNING id")
        return self._session.execute(statement, {"now": self._now, "id": token_id}).one_or_none() is not None

    def hold_key(self, principal_id: int, key: str) -> bool:
        """Keep others off an idempotency key until the transaction ends; False where another has it now."""
        held = self._session.execute(
            text("SELECT pg_try_advisory_xact_lock(:class, hashtext(:key))"),
            {"class": KEY_LOCK_CLASS, "key": f"{principal_id} {key}"},
        )
        return bool(held.scalar_one())

    def claim_key(self, principal_id: int, key: str, body_sha256: bytes) -> StoredAnswer | None:
        """Insert an idempotency key, or return what an earlier request stored under it."""
        given = {"principal": principal_id, "key": key, "digest": body_sha256, "now": self._now}
        inserted = self._session.execute(
            text(
                "INSERT INTO idempotency_key (principal_id, key, body_sha256, created_at)"
                " VALUES (:principal, :key, :digest, :now) ON CONFLICT DO NOTHING RETURNING key"
            ),
            given,
        ).one_or_none()
        if inserted is not None:
            return None
        found = self._session.execute(
            text(
                "SELECT body_sha256, status, response FROM idempotency_key"
                " WHERE principal_id = :principal AND key = :key"
            ),
            given,
        ).one()
        return StoredAnswer(bytes(found.body_sha256), found.status, found.response)

    def store_answer(self, principal_id: int, key: str, status: int, response: Mapping[str, object]) -> None:
        """Keep the answer for whoever sends the same request again."""
        statement = text(
            "UPDATE idempotency_key SET status = :status, response = :response"
            " WHERE principal_id = :principal AND key = :key"
        ).bindparams(bindparam("response", type_=JSONB))
        given = {"principal": principal_id, "key": key, "status": status, "response": dict(response)}
        self._session.execute(statement, given)

    def drop_idempotency_keys(self, before: datetime, limit: int) -> int:
        """Delete idempotency keys older than `before`; return how many went."""
        statement = text(
            "DELETE FROM idempotency_key WHERE (principal_id, key) IN ("
            " SELECT principal_id, key FROM idempotency_key WHERE created_at < :before"
            " ORDER BY created_at LIMIT :limit) RETURNING key"
        )
        return len(self._session.execute(statement, {"before": before, "limit": limit}).all())

    def _principal(self, row: Row[Any]) -> Principal:
        bindings = self._session.execute(_BINDINGS, {"principal": row.id})
        return Principal(row.id, row.kind, row.name, tuple(Binding(Role(each.role), each.path) for each in bindings))


def _binding(text: str) -> Binding:
    role, _, path = text.partition(" ")
    return Binding(Role(role), path or None)


def _scopes(stored: Sequence[str]) -> frozenset[TokenScope]:
    """None stored: all of them. What a later release may have added is not known here, so it allows nothing."""
    known = [TokenScope(each) for each in stored if each in set(TokenScope)]
    return frozenset().union(*(each.holds() for each in known)) if stored else EVERY_SCOPE


def _queue(row: Row[Any]) -> QueueFact:
    parent = None if row.parent_id is None else QueueId(row.parent_id)
    return QueueFact(QueueId(row.id), row.path, parent, row.weight, row.namespace, row.labels, row.version)
