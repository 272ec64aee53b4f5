"""`audit_bytes(row)`: the one text of an audit row that the chain of hashes covers; sealer and doctor share it.

A function only. A column added to `audit` later stays outside until a new function, and a seal that says so, cover it.
"""

from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"


def upgrade() -> None:
    op.execute("""
        CREATE FUNCTION audit_bytes(a audit) RETURNS bytea LANGUAGE sql STABLE AS $$
          SELECT convert_to(jsonb_build_array(
            a.id, extract(epoch FROM a.at), a.actor, a.request_id, a.action, a.object_kind, a.object_id,
            a.state_from, a.state_to, a.facts, encode(a.before_sha256, 'hex'), encode(a.after_sha256, 'hex')
          )::text, 'UTF8')
        $$
    """)


def downgrade() -> None:
    op.execute("DROP FUNCTION audit_bytes(audit)")
