"""`changed_xid`: every row that planners read carries the transaction that wrote it last.

A warm reader asks for rows with `changed_xid >= xmin of its last snapshot`: whatever was not visible to that snapshot
was written by a transaction that had not ended, and those are all at or above its xmin. The triggers cost a row's
write a microsecond or two; taking them away only makes readers load everything again.
"""

from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"

TRACKED = (
    "attempt",
    "cluster",
    "earmark",
    "exclusion",
    "node",
    "node_flavor",
    "queue",
    "quota",
    "window",
    "workload",
)


def upgrade() -> None:
    op.execute("""
        CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          NEW.changed_xid := pg_current_xact_id();
          RETURN NEW;
        END $$
    """)
    for table in TRACKED:
        op.execute(f'CREATE TRIGGER touch BEFORE INSERT OR UPDATE ON "{table}" FOR EACH ROW EXECUTE FUNCTION touch()')


def downgrade() -> None:
    for table in TRACKED:
        op.execute(f'DROP TRIGGER touch ON "{table}"')
    op.execute("DROP FUNCTION touch()")
