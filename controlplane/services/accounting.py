"""Quota kept like money: start posts, rejection voids, an end settles, each with its proof and in its transaction.

Placing is the plan writer's, with the same `core.ledger.Book`. Accounts are locked in order before they are read; a
caller that also locks Workloads calls `lock` first, as the lock order wants it. Called twice, each changes nothing the
second time.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from controlplane.core.facts.ledger import (
    AttemptKey,
    LedgerAccount,
    OpenTransfer,
    Proof,
    TransferDraft,
    TransferKind,
    TransferLeg,
    Usage,
)
from controlplane.core.ledger import Book, Charges, relimited
from controlplane.services.ports.unit_of_work import UnitOfWork

ROLL_UP_MAX = 5_000


def lock(uow: UnitOfWork, attempts: Collection[AttemptKey]) -> None:
    """Lock the accounts that these Attempts charge, before anything that comes later in the lock order."""
    uow.ledger.lock_accounts(uow.ledger.charged_accounts(attempts))


def post(uow: UnitOfWork, attempts: Collection[AttemptKey]) -> None:
    """All pods of these Attempts run: their usage begins."""
    book, pending = _opened(uow, attempts, is_posted=False)
    uow.ledger.write_transfers(_resolved(pending, TransferKind.POST, book.post))


def void(uow: UnitOfWork, attempts: Collection[AttemptKey], proof: Proof) -> None:
    """These Attempts never ran whole and are proven gone: quota comes back, the reservation ends."""
    book, pending = _opened(uow, attempts, is_posted=False)
    uow.ledger.write_transfers(_resolved(pending, TransferKind.VOID, book.void))
    uow.ledger.release_reservations([transfer.attempt for transfer in pending], proof)


def settle(uow: UnitOfWork, attempts: Collection[AttemptKey], proof: Proof) -> None:
    """These Attempts are proven to have ended: what ran is reversed, what never ran whole is voided."""
    book, opened = _opened(uow, attempts)
    ran = [transfer for transfer in opened if transfer.is_posted]
    pending = [transfer for transfer in opened if not transfer.is_posted]
    uow.ledger.write_transfers(
        [*_resolved(ran, TransferKind.REVERSE, book.reverse), *_resolved(pending, TransferKind.VOID, book.void)]
    )
    uow.ledger.release_reservations([transfer.attempt for transfer in opened], proof)


def record_usage(uow: UnitOfWork, usages: Sequence[Usage]) -> None:
    """Write what ended pods used; whoever is told of an end twice writes it once."""
    uow.ledger.record_usage(usages)


def roll_up_usage(uow: UnitOfWork, limit: int = ROLL_UP_MAX) -> int:
    """Fold usage into device-seconds per hour; returns how many intervals, 0 when there is nothing left."""
    return uow.ledger.roll_up_usage(limit)


def sync_accounts(uow: UnitOfWork) -> int:
    """Bring every account's limits to what Queues, Quotas and owned devices say now; returns how many changed.

    Call it in the transaction that changed a Queue, a Quota or what a cluster owns. Raises ImpossibleTree. Nobody is
    kept waiting while nothing differs: a first look takes no locks, and what it sees half-way is looked at again.
    """
    changed, _ = _relimited(uow, uow.ledger.all_accounts())
    if not changed:
        return 0
    changed, legs = _relimited(uow, uow.ledger.lock_all_accounts())
    uow.ledger.write_limits(changed, legs)
    return len(changed)


def _relimited(
    uow: UnitOfWork, accounts: Sequence[LedgerAccount]
) -> tuple[Sequence[LedgerAccount], Sequence[TransferLeg]]:
    return relimited(accounts, uow.ledger.quota_tree(), uow.ledger.owned(), uow.ledger.leaf_usage())


def _opened(
    uow: UnitOfWork, attempts: Collection[AttemptKey], *, is_posted: bool | None = None
) -> tuple[Book, Sequence[OpenTransfer]]:
    """Locked accounts as a Book and what is open of these Attempts, read behind the locks."""
    book = Book(uow.ledger.lock_accounts(uow.ledger.charged_accounts(attempts)))
    opened = uow.ledger.open_transfers(attempts)
    return book, [transfer for transfer in opened if is_posted is None or transfer.is_posted == is_posted]


def _resolved(
    transfers: Iterable[OpenTransfer],
    kind: TransferKind,
    legs_of: Callable[[Charges], tuple[TransferLeg, ...]],
) -> list[TransferDraft]:
    return [TransferDraft(kind, legs_of(transfer.charges), transfer.attempt, transfer.id) for transfer in transfers]
