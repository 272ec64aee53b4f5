"""What counts, for quota, of what each cluster owns of a Flavor, where it falls damped.

A table of its own, filled within seconds: until then, and for old code, what is told counts. No lock on any other table
that anybody would notice. Going back drops it: what is told counts at once again.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0031"
down_revision: str | None = "0027"


def upgrade() -> None:
    op.create_table(
        "cluster_owned",
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.Column("peak", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("units BETWEEN 0 AND peak", name=op.f("ck_cluster_owned_units_range")),
        sa.ForeignKeyConstraint(["cluster_id"], ["cluster.id"], name=op.f("fk_cluster_owned_cluster_id_cluster")),
        sa.PrimaryKeyConstraint("cluster_id", "flavor", name=op.f("pk_cluster_owned")),
    )


def downgrade() -> None:
    op.drop_table("cluster_owned")
