"""Device-seconds by Queue, Flavor and day, for budgets: a year of hours of fifty teams takes longer than a cycle may.

A trigger keeps it beside `usage_hour`, so old code that folds hours keeps days, too. Hours that
are there are added up once; its lock on `usage_hour` keeps the roll-up waiting meanwhile and
nobody else. Going back drops it; hours stay.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0036"
down_revision: str | None = "0031"

FUNCTION = """
CREATE FUNCTION add_to_day() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_day AS known (queue_id, day, flavor, device_seconds)
    VALUES (NEW.queue_id, date_trunc('day', NEW.hour, 'UTC'), NEW.flavor,
            NEW.device_seconds - CASE TG_OP WHEN 'UPDATE' THEN OLD.device_seconds ELSE 0 END)
    ON CONFLICT (queue_id, day, flavor) DO UPDATE SET device_seconds = known.device_seconds + excluded.device_seconds;
    RETURN NULL;
END $$
"""


def upgrade() -> None:
    op.create_table(
        "usage_day",
        sa.Column("queue_id", sa.BigInteger(), nullable=False),
        sa.Column("day", sa.DateTime(timezone=True), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("device_seconds", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("queue_id", "day", "flavor", name=op.f("pk_usage_day")),
    )
    op.execute(FUNCTION)
    op.execute(
        "CREATE TRIGGER add_to_day AFTER INSERT OR UPDATE ON usage_hour FOR EACH ROW EXECUTE FUNCTION add_to_day()"
    )
    op.execute("""
        INSERT INTO usage_day (queue_id, day, flavor, device_seconds)
        SELECT queue_id, date_trunc('day', hour, 'UTC'), flavor, sum(device_seconds)
        FROM usage_hour GROUP BY 1, 2, 3""")


def downgrade() -> None:
    op.execute("DROP TRIGGER add_to_day ON usage_hour")
    op.execute("DROP FUNCTION add_to_day()")
    op.drop_table("usage_day")
