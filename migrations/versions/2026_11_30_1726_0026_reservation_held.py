"""Find what is reserved in a Queue now without reading all that ever was: every account is locked meanwhile.

Built beside the work (SHARE UPDATE EXCLUSIVE): one pass over `reservation`, no write waits. It waits for
open transactions, so it is given more time than other statements. Going back drops it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op

revision: str = "0026"
down_revision: str | None = "0025"

NAME = "ix_reservation_held_queue"


def upgrade() -> None:
    with _patience():
        op.drop_index(op.f(NAME), "reservation", if_exists=True, postgresql_concurrently=True)  # left by a crash
        held = sa.text("state = 'held'")
        op.create_index(op.f(NAME), "reservation", ["queue_id"], postgresql_where=held, postgresql_concurrently=True)


def downgrade() -> None:
    with _patience():
        op.drop_index(op.f(NAME), "reservation", if_exists=True, postgresql_concurrently=True)


@contextmanager
def _patience() -> Iterator[None]:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = '10min'")
        op.execute("SET lock_timeout = '10min'")
        yield
        op.execute("SET lock_timeout = '4s'")
        op.execute("SET statement_timeout = '5s'")
