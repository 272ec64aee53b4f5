"""`told_xid`: which transaction last changed more of a node, or of its counters, than what is held there.

Placing and releasing move what is held thousands of times a second; a planner that reads warm takes those few numbers
from rows of which nothing else changed since it read them last, and the whole row from the others. `changed_xid` rises
as before, so older code reads as it did. New columns with a default that is worked out once: a moment's lock, no
rewrite. Going back drops the columns with their triggers.
"""

from alembic import op

revision: str = "0032"
down_revision: str | None = "0029"

# All but what is held and what the triggers write themselves.
_COUNTER = "node_id, flavor, cluster_id, resource, owned, allocatable, foreign_held, withheld, capacity"


def _row(name: str) -> str:
    return ", ".join(f"{name}.{column}" for column in _COUNTER.split(", "))


def upgrade() -> None:
    for table in ("node", "node_flavor"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN told_xid xid8 NOT NULL DEFAULT pg_current_xact_id()")
    op.execute("""
        CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          NEW.told_xid := pg_current_xact_id();
          RETURN NEW;
        END $$
    """)
    op.execute("""
        CREATE FUNCTION tell_node() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
          rest node := NEW;
        BEGIN
          rest.cpu_milli_held := OLD.cpu_milli_held;
          rest.memory_bytes_held := OLD.memory_bytes_held;
          rest.rdma_held := OLD.rdma_held;
          rest.hugepages_bytes_held := OLD.hugepages_bytes_held;
          rest.local_storage_bytes_held := OLD.local_storage_bytes_held;
          IF rest IS DISTINCT FROM OLD OR rest IS NOT DISTINCT FROM NEW THEN
            NEW.told_xid := pg_current_xact_id();
          END IF;
          RETURN NEW;
        END $$
    """)
    op.execute("CREATE TRIGGER tell BEFORE UPDATE ON node FOR EACH ROW EXECUTE FUNCTION tell_node()")
    op.execute(f"""
        CREATE TRIGGER tell BEFORE UPDATE ON node_flavor FOR EACH ROW
        WHEN (OLD.held = NEW.held OR ({_row("OLD")}) IS DISTINCT FROM ({_row("NEW")})) EXECUTE FUNCTION tell()
    """)


def downgrade() -> None:
    for table in ("node", "node_flavor"):
        op.execute(f"DROP TRIGGER tell ON {table}")
        op.execute(f"ALTER TABLE {table} DROP COLUMN told_xid")
    op.execute("DROP FUNCTION tell_node()")
    op.execute("DROP FUNCTION tell()")
