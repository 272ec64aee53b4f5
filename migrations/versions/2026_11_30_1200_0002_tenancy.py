"""Queues, Quotas, Policies, Principals with their roles and tokens.

New tables only: no lock that anybody waits for. Going back drops them with all that they hold.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from controlplane.db.base import Xid8

revision: str = "0002"
down_revision: str | None = "0001"

TABLES = (
    "principal",
    "queue",
    "api_token",
    "idempotency_key",
    "policy",
    "quota",
    "role_binding",
)


def upgrade() -> None:
    _create_principal()
    _create_queue()
    _create_api_token()
    _create_idempotency_key()
    _create_policy()
    _create_quota()
    _create_role_binding()


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _create_principal() -> None:
    op.create_table(
        "principal",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("issuer", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('person', 'service', 'agent')", name=op.f("ck_principal_kind_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_principal")),
        sa.UniqueConstraint("kind", "name", name=op.f("uq_principal_kind_name")),
    )


def _create_queue() -> None:
    op.create_table(
        "queue",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("parent_id", sa.BigInteger(), nullable=True),
        sa.Column("weight", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("namespace", sa.Text(), server_default="", nullable=False),
        sa.Column("most_running", sa.BigInteger(), nullable=True),
        sa.Column("spec", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("labels", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("changed_xid", Xid8(), server_default=sa.FetchedValue(), nullable=False),
        sa.CheckConstraint("path = lower(path) AND path <> ''", name=op.f("ck_queue_path_normal")),
        sa.CheckConstraint("parent_id IS DISTINCT FROM id", name=op.f("ck_queue_not_own_parent")),
        sa.CheckConstraint("weight BETWEEN 0 AND 1000000", name=op.f("ck_queue_weight_range")),
        sa.ForeignKeyConstraint(["parent_id"], ["queue.id"], name=op.f("fk_queue_parent_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_queue")),
        sa.UniqueConstraint("path", name=op.f("uq_queue_path")),
    )
    op.create_index(op.f("ix_queue_changed_xid"), "queue", ["changed_xid"], unique=False)
    op.create_index(op.f("ix_queue_parent_id"), "queue", ["parent_id"], unique=False)


def _create_api_token() -> None:
    op.create_table(
        "api_token",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("principal_id", sa.BigInteger(), nullable=False),
        sa.Column("token_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("scopes", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("octet_length(token_sha256) = 32", name=op.f("ck_api_token_hash_length")),
        sa.ForeignKeyConstraint(["principal_id"], ["principal.id"], name=op.f("fk_api_token_principal_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_token")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_api_token_token_sha256")),
    )
    op.create_index(op.f("ix_api_token_principal_id"), "api_token", ["principal_id"], unique=False)


def _create_idempotency_key() -> None:
    op.create_table(
        "idempotency_key",
        sa.Column("principal_id", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=True),
        sa.Column("response", postgresql.JSONB(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["principal_id"], ["principal.id"], name=op.f("fk_idempotency_key_principal_id")),
        sa.PrimaryKeyConstraint("principal_id", "key", name=op.f("pk_idempotency_key")),
    )
    op.create_index(op.f("ix_idempotency_key_created_at"), "idempotency_key", ["created_at"], unique=False)


def _create_policy() -> None:
    op.create_table(
        "policy",
        sa.Column("pool_id", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("spec", postgresql.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_policy_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "version", name=op.f("pk_policy")),
    )


def _create_quota() -> None:
    op.create_table(
        "quota",
        sa.Column("queue_id", sa.BigInteger(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("nominal", sa.BigInteger(), nullable=True),
        sa.Column("borrow_limit", sa.BigInteger(), nullable=True),
        sa.Column("lend_limit", sa.BigInteger(), nullable=True),
        sa.Column("is_listed", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("changed_xid", Xid8(), server_default=sa.FetchedValue(), nullable=False),
        sa.CheckConstraint("borrow_limit IS NULL OR borrow_limit >= 0", name=op.f("ck_quota_borrow_range")),
        sa.CheckConstraint("lend_limit IS NULL OR lend_limit >= 0", name=op.f("ck_quota_lend_range")),
        sa.CheckConstraint("nominal IS NULL OR nominal >= 0", name=op.f("ck_quota_nominal_range")),
        sa.ForeignKeyConstraint(["queue_id"], ["queue.id"], name=op.f("fk_quota_queue_id")),
        sa.PrimaryKeyConstraint("queue_id", "flavor", name=op.f("pk_quota")),
    )
    op.create_index(op.f("ix_quota_changed_xid"), "quota", ["changed_xid"], unique=False)


def _create_role_binding() -> None:
    op.create_table(
        "role_binding",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("principal_id", sa.BigInteger(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("queue_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "role IN ('platform-admin', 'team-lead', 'member', 'auditor')", name=op.f("ck_role_binding_role_known")
        ),
        sa.ForeignKeyConstraint(["principal_id"], ["principal.id"], name=op.f("fk_role_binding_principal_id")),
        sa.ForeignKeyConstraint(["queue_id"], ["queue.id"], name=op.f("fk_role_binding_queue_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_role_binding")),
    )
    op.create_index(op.f("ix_role_binding_principal_id"), "role_binding", ["principal_id"], unique=False)
    op.create_index("uq_role_binding_queue", "role_binding", ["principal_id", "role", "queue_id"], unique=True)
    op.create_index(
        "uq_role_binding_whole",
        "role_binding",
        ["principal_id", "role"],
        unique=True,
        postgresql_where=sa.text("queue_id IS NULL"),
    )
