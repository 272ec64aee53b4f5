"""Read models of the ledger: accounts and transfers as they are stored, as far as somebody may see.

A statement on transfers holds the conditions that were asked for and no others (see `queries_workloads`). Whoever sees
a few Queues is answered from the legs of these, whoever sees everything from the youngest transfers.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from sqlalchemy import TextClause, text
from sqlalchemy.orm import Session

from controlplane.contract.rest.ledger import AccountView, LegView, TransferView
from controlplane.core.facts.queries import LedgerFilter, PageOf, Scope
from controlplane.db.stores.queries_sql import IN_SCOPE

_OF_QUEUE = "(CAST(:queue AS text) IS NULL OR queue.path = :queue OR starts_with(queue.path, :queue || '/'))"

_ACCOUNTS = text(f"""
    SELECT account.*, queue.path FROM account JOIN queue ON queue.id = account.queue_id
    WHERE {IN_SCOPE} AND {_OF_QUEUE} AND queue.deleted_at IS NULL
        AND (CAST(:flavor AS text) IS NULL OR account.flavor = :flavor)
        AND (CAST(:after_path AS text) IS NULL OR (queue.path, account.flavor) > (:after_path, :after_flavor))
    ORDER BY queue.path, account.flavor LIMIT :limit""")

_QUEUES = text(f"SELECT queue.id FROM queue WHERE {IN_SCOPE} AND {_OF_QUEUE}")

# All that follows a placement names it, and there is an index for each way in which it may.
_OF_WORKLOAD = """IN (
    WITH placed AS (SELECT id FROM transfer WHERE kind = 'place' AND workload_id = CAST(:workload AS uuid))
    SELECT id FROM placed
    UNION ALL SELECT later.id FROM transfer AS later JOIN placed ON later.pending_id = placed.id
        WHERE later.kind IN ('post', 'void', 'expire')
    UNION ALL SELECT later.id FROM transfer AS later JOIN placed ON later.pending_id = placed.id
        WHERE later.kind = 'reverse')"""
_OF_LEGS = {
    "queues": "leg.queue_id = ANY(CAST(:queues AS bigint[]))",
    "flavor": "leg.flavor = :flavor",
    "before": "leg.transfer_id < :before",
    "workload": f"leg.transfer_id {_OF_WORKLOAD}",
}
_OF_TRANSFERS = {
    "before": "transfer.id < :before",
    "workload": f"transfer.id {_OF_WORKLOAD}",
}


def accounts(
    session: Session, scope: Scope, wanted: LedgerFilter, after: tuple[str, str] | None, limit: int
) -> PageOf[AccountView]:
    """By Queue and Flavor."""
    keys = {"after_path": after[0] if after else None, "after_flavor": after[1] if after else None}
    asked = {"paths": _paths(scope), "queue": wanted.queue, "flavor": wanted.flavor}
    rows = session.execute(_ACCOUNTS, {**asked, **keys, "limit": limit + 1}).all()
    items = [
        AccountView(
            queue=row.path,
            flavor=row.flavor,
            is_root=row.is_root,
            subtree=row.subtree,
            kept=row.kept,
            borrow_limit=row.borrow_limit,
            overdraft=row.overdraft,
            pending=row.pending,
            posted=row.posted,
        )
        for row in rows[:limit]
    ]
    return PageOf(items, (items[-1].queue, items[-1].flavor) if len(rows) > limit else None)


def transfers(
    session: Session, scope: Scope, wanted: LedgerFilter, before: int | None, limit: int
) -> PageOf[TransferView]:
    """Youngest first; of each, the legs on accounts that are asked for and in sight."""
    bounds: dict[str, object] = {} if wanted.flavor is None else {"flavor": wanted.flavor}
    if scope.paths is not None or wanted.queue is not None:
        seen = session.scalars(_QUEUES, {"paths": _paths(scope), "queue": wanted.queue})
        bounds["queues"] = sorted(seen)
    given: dict[str, object] = {**bounds, "limit": limit + 1}
    given |= {} if before is None else {"before": before}
    given |= {} if wanted.workload is None else {"workload": wanted.workload}
    rows = session.execute(_page(_names(given)), given).all()
    page = rows[:limit]
    legs: dict[int, list[LegView]] = defaultdict(list)
    for leg in session.execute(_legs(_names(bounds)), {**bounds, "transfers": [row.id for row in page]}):
        view = LegView(queue=leg.path, flavor=leg.flavor, amount=leg.amount, source=leg.source, target=leg.target)
        legs[leg.transfer_id].append(view)
    items = [
        TransferView(
            id=row.id,
            kind=row.kind,
            at=row.created_at,
            workload=None if row.workload_id is None else str(row.workload_id),
            name=row.name,
            attempt=row.attempt,
            resolves=row.pending_id,
            legs=legs[row.id],
        )
        for row in page
    ]
    return PageOf(items, (str(items[-1].id),) if len(rows) > limit else None)


@cache
def _page(given: tuple[str, ...]) -> TextClause:
    if {"queues", "flavor"} & set(given):
        where = " AND ".join(_OF_LEGS[name] for name in given)
        chosen = f"SELECT DISTINCT leg.transfer_id AS id FROM leg WHERE {where}"
    else:
        where = " AND ".join(["true", *(_OF_TRANSFERS[name] for name in given)])
        chosen = f"SELECT transfer.id FROM transfer WHERE {where}"
    return text(f"""
        WITH page AS MATERIALIZED ({chosen} ORDER BY id DESC LIMIT :limit)
        SELECT transfer.*, coalesce(workload.name, '') AS name
        FROM page JOIN transfer ON transfer.id = page.id LEFT JOIN workload ON workload.id = transfer.workload_id
        ORDER BY transfer.id DESC""")


@cache
def _legs(bounds: tuple[str, ...]) -> TextClause:
    where = " AND ".join(["leg.transfer_id = ANY(CAST(:transfers AS bigint[]))", *(_OF_LEGS[name] for name in bounds)])
    return text(f"""
        SELECT leg.*, queue.path FROM leg JOIN queue ON queue.id = leg.queue_id WHERE {where}
        ORDER BY leg.transfer_id, queue.path, leg.flavor""")


def _names(given: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(name for name in _OF_LEGS if name in given)


def _paths(scope: Scope) -> list[str] | None:
    return None if scope.paths is None else list(scope.paths)
