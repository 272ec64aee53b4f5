"""What a planner reads of history: one Standing for each Queue with a past, and what owners used."""

from collections.abc import Iterator

from sqlalchemy.orm import Session

from controlplane.core.facts.planning import Change, Table
from controlplane.core.history import WHOLE
from controlplane.core.tenancy import Standing
from controlplane.db.planning_sql import OWNERS, STANDINGS

MICROSECONDS = 1_000_000


def standings(session: Session, bound: dict[str, int]) -> Iterator[Change]:
    """All Flavors of a Queue together; one that says nothing is as good as none."""
    for row in session.execute(STANDINGS, bound):
        says_nothing = row.weight == WHOLE and not row.contended and not row.credit
        standing = Standing(
            weight=row.weight,
            contended=int(row.contended) // MICROSECONDS,
            credit=int(row.credit) // MICROSECONDS,
            reckoned_at=row.reckoned_at,
        )
        yield Change(Table.STANDINGS, row.queue_id, None if says_nothing else standing)


def owners(session: Session, bound: dict[str, int]) -> Iterator[Change]:
    """By leaf and owner, in device-seconds."""
    for row in session.execute(OWNERS, bound):
        yield Change(Table.OWNERS, (row.queue_id, row.owner), int(row.used) // MICROSECONDS or None)
