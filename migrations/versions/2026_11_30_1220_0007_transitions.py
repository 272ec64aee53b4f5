"""Legal changes of state: a row of a Workload, Attempt or Cluster takes no other step.

The same lists as `core.lifecycle` (a test compares them). A new step in the code is a new revision that inserts it
before the code goes out; a step that goes is deleted one release after the code stopped taking it. The triggers look
up one row per change of state.
"""

from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"

# A state and those that may follow it; "" is the beginning.
WORKLOAD = {
    "": "pending",
    "pending": "reserved cancelling",
    "reserved": "running succeeded stopping cancelling",
    "running": "succeeded stopping cancelling",
    "stopping": "succeeded pending failed cancelling",
    "cancelling": "cancelled",
}
ATTEMPT = {
    "": "placed",
    "placed": "prepared stopping ended",
    "prepared": "starting stopping ended",
    "starting": "running stopping ended",
    "running": "stopping ended",
    "stopping": "ended",
}
CLUSTER = {
    "": "created",
    "created": "enrolled removed",
    "enrolled": "accepted removed",
    "accepted": "ready draining removed",
    "ready": "suspect draining removed",
    "suspect": "ready unreachable draining removed",
    "unreachable": "ready draining removed",
    "draining": "accepted removed",
}
LIFECYCLES = {"workload": WORKLOAD, "attempt": ATTEMPT, "cluster": CLUSTER}


def upgrade() -> None:
    for entity, steps in LIFECYCLES.items():
        for state, followers in steps.items():
            for follower in followers.split():
                op.execute(f"INSERT INTO state_transition VALUES ('{entity}', '{state}', '{follower}')")
    op.execute("""
        CREATE FUNCTION follow_lifecycle() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
          before text := CASE WHEN TG_OP = 'INSERT' THEN '' ELSE OLD.state END;
        BEGIN
          IF NOT EXISTS (SELECT FROM state_transition
                         WHERE entity = TG_TABLE_NAME AND from_state = before AND to_state = NEW.state) THEN
            RAISE EXCEPTION 'a % does not go from "%" to "%"', TG_TABLE_NAME, before, NEW.state
              USING ERRCODE = 'check_violation', CONSTRAINT = 'legal_transition', TABLE = TG_TABLE_NAME;
          END IF;
          RETURN NEW;
        END $$
    """)
    for entity in LIFECYCLES:
        op.execute(f"""
            CREATE TRIGGER begin_lifecycle BEFORE INSERT ON {entity}
            FOR EACH ROW EXECUTE FUNCTION follow_lifecycle()
        """)
        op.execute(f"""
            CREATE TRIGGER follow_lifecycle BEFORE UPDATE OF state ON {entity}
            FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION follow_lifecycle()
        """)


def downgrade() -> None:
    for entity in LIFECYCLES:
        op.execute(f"DROP TRIGGER begin_lifecycle ON {entity}")
        op.execute(f"DROP TRIGGER follow_lifecycle ON {entity}")
    op.execute("DROP FUNCTION follow_lifecycle()")
    op.execute("DELETE FROM state_transition")
