"""What is written once: history is only appended to, what has ended stays ended, numbers only rise.

Every trigger has a WHEN clause where one is possible, so that a lawful write pays nothing. Retention of append-only
tables is the owner's: it detaches or disables the trigger in a migration of its own; the plane's role never can.
"""

from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"

APPEND_ONLY = ("transfer", "leg", "audit", "audit_seal", "directive")

# name: table, WHEN clause of an UPDATE, what the refusal says
REFUSALS = {
    "ended_stays": (
        "attempt",
        (
            "OLD.state = 'ended' AND (NEW.outcome, NEW.ended_at, NEW.placed_at, NEW.running_at)"
            " IS DISTINCT FROM (OLD.outcome, OLD.ended_at, OLD.placed_at, OLD.running_at)"
        ),
        "an ended Attempt keeps its outcome",
    ),
    "verdict_stays": (
        "attempt",
        "OLD.state = 'ended' AND OLD.verdict IS NOT NULL AND NEW.verdict IS DISTINCT FROM OLD.verdict",
        "an ended Attempt is judged once",
    ),
    "final_stays": (
        "workload",
        "OLD.finished_at IS NOT NULL AND NEW.finished_at IS DISTINCT FROM OLD.finished_at",
        "a Workload finishes once",
    ),
    "queue_age_stays": (
        "workload",
        "NEW.submitted_at IS DISTINCT FROM OLD.submitted_at OR NEW.attempts_made < OLD.attempts_made",
        "a Workload keeps its queue age, and its Attempts only rise",
    ),
    "generation_rises": (
        "placement",
        "NEW.wanted_gen < OLD.wanted_gen OR NEW.applied_gen < OLD.applied_gen",
        "generations only rise",
    ),
    "released_stays": (
        "reservation",
        "OLD.state = 'released' OR (NEW.queue_id, NEW.amount) IS DISTINCT FROM (OLD.queue_id, OLD.amount)",
        "a reservation is released once and otherwise never changes",
    ),
    "released_hold_stays": (
        "hold",
        (
            "OLD.released_at IS NOT NULL OR (NEW.pod_id, NEW.node_id, NEW.flavor, NEW.amount)"
            " IS DISTINCT FROM (OLD.pod_id, OLD.node_id, OLD.flavor, OLD.amount)"
        ),
        "a hold is released once and otherwise never changes",
    ),
    "sequence_rises": (
        "agent_session",
        "NEW.seq < OLD.seq OR NEW.acked_number < OLD.acked_number OR OLD.ended_at IS NOT NULL",
        "numbers of a Session only rise, and an ended one stays ended",
    ),
    "counter_rises": ("cluster_counter", "NEW.value < OLD.value", "a counter only rises"),
    "epoch_rises": (
        "pool",
        "NEW.planner_epoch < OLD.planner_epoch OR NEW.dirty_version < OLD.dirty_version",
        "numbers of a Pool only rise",
    ),
    "used_token_stays": ("enrolment_token", "NEW.uses < OLD.uses", "a used token stays used"),
}

# table: rows that stand against a new one, what the refusal says
NUMBERS = {
    "attempt": (
        "SELECT FROM attempt a WHERE a.workload_id = NEW.workload_id AND a.attempt >= NEW.attempt",
        "the number of an Attempt is above all earlier ones of its Workload",
    ),
    "agent_session": (
        "SELECT FROM agent_session s WHERE s.cluster_id = NEW.cluster_id AND s.epoch >= NEW.epoch",
        "the epoch of a Session is above all earlier ones of its Cluster",
    ),
    "directive": (
        (
            "SELECT FROM directive d WHERE d.cluster_id = NEW.cluster_id AND d.object_id = NEW.object_id"
            " AND (d.gen >= NEW.gen OR (d.kind = 'tombstone' AND NEW.kind <> 'tombstone'))"
        ),
        "the generation of a directive is above all earlier ones of its object, and nothing follows a tombstone",
    ),
}


def upgrade() -> None:
    op.execute("""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          RAISE EXCEPTION '%', TG_ARGV[0]
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
        END $$
    """)
    for table in APPEND_ONLY:
        sentence = f"{table} is only appended to"
        op.execute(f"""
            CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON {table}
            FOR EACH ROW EXECUTE FUNCTION refuse('{sentence}')
        """)
        op.execute(f"""
            CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON {table}
            FOR EACH STATEMENT EXECUTE FUNCTION refuse('{sentence}')
        """)
    for name, (table, condition, sentence) in REFUSALS.items():
        op.execute(f"""
            CREATE TRIGGER {name} BEFORE UPDATE ON {table}
            FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION refuse('{sentence}')
        """)
    for table, (rivals, sentence) in NUMBERS.items():
        _refuse_numbers(table, rivals, sentence)


def _refuse_numbers(table: str, rivals: str, sentence: str) -> None:
    op.execute(f"""
        CREATE FUNCTION {table}_number_rises() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF EXISTS ({rivals}) THEN
            RAISE EXCEPTION '{sentence}'
              USING ERRCODE = 'check_violation', CONSTRAINT = 'number_rises', TABLE = TG_TABLE_NAME;
          END IF;
          RETURN NEW;
        END $$
    """)
    op.execute(f"""
        CREATE TRIGGER number_rises BEFORE INSERT ON {table}
        FOR EACH ROW EXECUTE FUNCTION {table}_number_rises()
    """)


def downgrade() -> None:
    for table in NUMBERS:
        op.execute(f"DROP TRIGGER number_rises ON {table}")
        op.execute(f"DROP FUNCTION {table}_number_rises()")
    for name, (table, *_) in REFUSALS.items():
        op.execute(f"DROP TRIGGER {name} ON {table}")
    for table in APPEND_ONLY:
        op.execute(f"DROP TRIGGER append_only ON {table}")
        op.execute(f"DROP TRIGGER append_only_whole ON {table}")
    op.execute("DROP FUNCTION refuse()")
