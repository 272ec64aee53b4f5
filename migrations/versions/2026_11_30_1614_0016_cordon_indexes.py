"""Find cordons that end by themselves, and a node's cordoned devices, without reading all that are not cordoned.

Built beside the work; one that was broken off is built again from the start, since nothing else stands in this
revision. Building waits for transactions that are open, so it is given more time than other statements. Going back
drops them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op

revision: str = "0016"
down_revision: str | None = "0015"

INDEXES = (
    ("ix_node_cordon_until", "node", "cordon_until", "cordon_until IS NOT NULL"),
    ("ix_device_cordoned", "device", "node_id", "cordon_reason <> ''"),
)


def upgrade() -> None:
    for name, table, column, where in INDEXES:
        with _patience():
            op.drop_index(op.f(name), table, if_exists=True, postgresql_concurrently=True)
            op.create_index(op.f(name), table, [column], postgresql_where=sa.text(where), postgresql_concurrently=True)


def downgrade() -> None:
    for name, table, _, _ in INDEXES:
        with _patience():
            op.drop_index(op.f(name), table, if_exists=True, postgresql_concurrently=True)


@contextmanager
def _patience() -> Iterator[None]:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = '10min'")
        op.execute("SET lock_timeout = '10min'")
        yield
        op.execute("SET lock_timeout = '4s'")
        op.execute("SET statement_timeout = '5s'")
