"""Queues, Quotas, Policies, and who may do what: principals, roles, API tokens."""

from datetime import date

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, Numeric, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from controlplane.db.base import Base, Big, BigKey, Document, Moment, Tracked


class Queue(Tracked, Base):
    """A node of the quota tree; `path` is its name, parents first ("research/nlp")."""

    __tablename__ = "queue"
    __table_args__ = (
        CheckConstraint("path = lower(path) AND path <> ''", name="path_normal"),
        CheckConstraint("parent_id IS DISTINCT FROM id", name="not_own_parent"),
        CheckConstraint("weight BETWEEN 0 AND 1000000", name="weight_range"),
        Index("ix_queue_budgets", "id", postgresql_where=text("budgets <> '[]'")),
        Index("ix_queue_most_running", "id", postgresql_where=text("most_running IS NOT NULL")),
    )
    id: Mapped[BigKey]
    path: Mapped[str] = mapped_column(unique=True)
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("queue.id"), index=True)
    weight: Mapped[int] = mapped_column(server_default="1")
    namespace: Mapped[str] = mapped_column(server_default="")  # "" = inherited from the parent
    most_running: Mapped[int | None]
    budgets: Mapped[list[dict[str, object]]] = mapped_column(JSONB, server_default=text("'[]'"))
    spec: Mapped[Document] = mapped_column(server_default=text("'{}'"))  # the applied document, as given
    labels: Mapped[Document] = mapped_column(server_default=text("'{}'"))
    version: Mapped[int] = mapped_column(server_default="1")
    created_at: Mapped[Moment]
    deleted_at: Mapped[Moment | None]


class Quota(Tracked, Base):
    """One Queue's limits for one Flavor. NULL nominal: a root counts what clusters own."""

    __tablename__ = "quota"
    __table_args__ = (
        CheckConstraint("nominal IS NULL OR nominal >= 0", name="nominal_range"),
        CheckConstraint("borrow_limit IS NULL OR borrow_limit >= 0", name="borrow_range"),
        CheckConstraint("lend_limit IS NULL OR lend_limit >= 0", name="lend_range"),
    )
    queue_id: Mapped[int] = mapped_column(ForeignKey("queue.id"), primary_key=True)
    flavor: Mapped[str] = mapped_column(primary_key=True)
    nominal: Mapped[int | None]
    borrow_limit: Mapped[int | None]
    lend_limit: Mapped[int | None]
    is_listed: Mapped[bool] = mapped_column(server_default=text("true"))  # false: withdrawn by a later document


class QueueHistory(Tracked, Base):
    """What a Queue had lately of what its siblings waited for: device-microseconds; weight in millionths."""

    __tablename__ = "queue_history"
    __table_args__ = (
        CheckConstraint("contended >= 0", name="contended_range"),
        CheckConstraint("weight BETWEEN 1 AND 1000000", name="weight_range"),
    )
    pool_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    queue_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    flavor: Mapped[str] = mapped_column(primary_key=True)
    contended: Mapped[int] = mapped_column(Numeric(38, 0))
    weight: Mapped[Big]
    credit: Mapped[int] = mapped_column(Numeric(38, 0))
    reckoned_at: Mapped[Moment]


class OwnerHistory(Tracked, Base):
    """What an owner had lately of what others of the same Queue waited for, in one Pool; device-microseconds."""

    __tablename__ = "owner_history"
    __table_args__ = (CheckConstraint("used >= 0", name="used_range"),)
    pool_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    queue_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    owner: Mapped[str] = mapped_column(primary_key=True)
    used: Mapped[int] = mapped_column(Numeric(38, 0))
    reckoned_at: Mapped[Moment]


class Policy(Base):
    """Versioned knobs of one Pool; a new version is a new row."""

    __tablename__ = "policy"
    pool_id: Mapped[int] = mapped_column(ForeignKey("pool.id"), primary_key=True)
    version: Mapped[Big] = mapped_column(primary_key=True)
    labels: Mapped[Document] = mapped_column(server_default=text("'{}'"))
    spec: Mapped[Document]
    created_at: Mapped[Moment]
    created_by: Mapped[str]


class Principal(Base):
    """Who calls: a person, a service or an agent."""

    __tablename__ = "principal"
    __table_args__ = (
        CheckConstraint("kind IN ('person', 'service', 'agent')", name="kind_known"),
        UniqueConstraint("kind", "name"),
    )
    id: Mapped[BigKey]
    kind: Mapped[str]
    name: Mapped[str]
    issuer: Mapped[str] = mapped_column(server_default="")
    created_at: Mapped[Moment]
    disabled_at: Mapped[Moment | None]


class RoleBinding(Base):
    """A role of a Principal, bound to a Queue subtree; NULL queue: the whole plane."""

    __tablename__ = "role_binding"
    __table_args__ = (
        CheckConstraint("role IN ('platform-admin', 'team-lead', 'member', 'auditor')", name="role_known"),
        Index("uq_role_binding_whole", "principal_id", "role", unique=True, postgresql_where=text("queue_id IS NULL")),
        Index("uq_role_binding_queue", "principal_id", "role", "queue_id", unique=True),
    )
    id: Mapped[BigKey]
    principal_id: Mapped[int] = mapped_column(ForeignKey("principal.id"), index=True)
    role: Mapped[str]
    queue_id: Mapped[int | None] = mapped_column(ForeignKey("queue.id"))
    created_at: Mapped[Moment]


class ApiToken(Base):
    """A bearer token of a person or service; only its SHA-256 is kept."""

    __tablename__ = "api_token"
    __table_args__ = (CheckConstraint("octet_length(token_sha256) = 32", name="hash_length"),)
    id: Mapped[BigKey]
    principal_id: Mapped[int] = mapped_column(ForeignKey("principal.id"), index=True)
    token_sha256: Mapped[bytes] = mapped_column(unique=True)
    name: Mapped[str] = mapped_column(server_default="")
    scopes: Mapped[list[str]] = mapped_column(JSONB, server_default=text("'[]'"))
    created_at: Mapped[Moment]
    expires_at: Mapped[Moment | None]
    revoked_at: Mapped[Moment | None]
    within_queue_id: Mapped[int | None] = mapped_column(ForeignKey("queue.id"))  # it reaches no further; NULL: no bound
    created_by: Mapped[str] = mapped_column(server_default="")
    last_used_on: Mapped[date | None]


class IdempotencyKey(Base):
    """One request of one Principal: inserted first, answered once, kept for a week."""

    __tablename__ = "idempotency_key"
    principal_id: Mapped[int] = mapped_column(ForeignKey("principal.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    body_sha256: Mapped[bytes]
    status: Mapped[int | None]  # NULL: in progress
    response: Mapped[dict[str, object] | None] = mapped_column(JSONB)
    created_at: Mapped[Moment] = mapped_column(index=True)
