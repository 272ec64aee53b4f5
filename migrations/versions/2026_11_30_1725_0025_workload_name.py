"""Find Workloads by their name, as people call them, without reading all that there ever were.

Built beside the work (SHARE UPDATE EXCLUSIVE): one pass over `workload`, no write waits. It waits for
open transactions, so it is given more time than other statements. Going back drops it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from alembic import op

revision: str = "0025"
down_revision: str | None = "0024"

NAME = "ix_workload_name"


def upgrade() -> None:
    with _patience():
        op.drop_index(op.f(NAME), "workload", if_exists=True, postgresql_concurrently=True)  # left by a crash
        op.create_index(op.f(NAME), "workload", ["name"], postgresql_concurrently=True)


def downgrade() -> None:
    with _patience():
        op.drop_index(op.f(NAME), "workload", if_exists=True, postgresql_concurrently=True)


@contextmanager
def _patience() -> Iterator[None]:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = '10min'")
        op.execute("SET lock_timeout = '10min'")
        yield
        op.execute("SET lock_timeout = '4s'")
        op.execute("SET statement_timeout = '5s'")
