"""Read models of the ledger: accounts and transfers as they are stored, as far as somebody may see."""

from collections import defaultdict

from sqlalchemy import text
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

_LEGS_IN_SIGHT = f"""leg JOIN queue ON queue.id = leg.queue_id
    WHERE {IN_SCOPE} AND {_OF_QUEUE} AND (CAST(:flavor AS text) IS NULL OR leg.flavor = :flavor)"""

_TRANSFERS = text(f"""
    SELECT transfer.*, coalesce(workload.name, '') AS name
    FROM transfer LEFT JOIN workload ON workload.id = transfer.workload_id
    WHERE (CAST(:before AS bigint) IS NULL OR transfer.id < :before)
        AND (CAST(:workload AS uuid) IS NULL OR transfer.workload_id = CAST(:workload AS uuid))
        AND EXISTS (SELECT FROM {_LEGS_IN_SIGHT} AND leg.transfer_id = transfer.id)
    ORDER BY transfer.id DESC LIMIT :limit""")

_LEGS = text(f"""
    SELECT leg.*, queue.path FROM {_LEGS_IN_SIGHT} AND leg.transfer_id = ANY(:transfers)
    ORDER BY leg.transfer_id, queue.path, leg.flavor""")


def accounts(
    session: Session, scope: Scope, wanted: LedgerFilter, after: tuple[str, str] | None, limit: int
) -> PageOf[AccountView]:
    """By Queue and Flavor."""
    keys = {"after_path": after[0] if after else None, "after_flavor": after[1] if after else None}
    rows = session.execute(_ACCOUNTS, {**_asked(scope, wanted), **keys, "limit": limit + 1}).all()
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
    asked = _asked(scope, wanted)
    given = {**asked, "workload": wanted.workload, "before": before, "limit": limit + 1}
    rows = session.execute(_TRANSFERS, given).all()
    page = rows[:limit]
    legs: dict[int, list[LegView]] = defaultdict(list)
    for leg in session.execute(_LEGS, {**asked, "transfers": [row.id for row in page]}):
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


def _asked(scope: Scope, wanted: LedgerFilter) -> dict[str, object]:
    paths = None if scope.paths is None else list(scope.paths)
    return {"paths": paths, "queue": wanted.queue, "flavor": wanted.flavor}
