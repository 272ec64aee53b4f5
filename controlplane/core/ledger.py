"""What a placement, a start and an end do to the accounts: legs, worked out on a copy of the locked rows.

The quota arithmetic is `quota`'s. Only the account that a Workload charges itself keeps pending and posted apart; the
accounts above hold one sum, on their posted side (decision record 0001). Nothing here is written; `db.stores.ledger`
writes legs and balances together, and the database refuses what would oversell.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from controlplane.core.facts.ledger import AccountKey, LedgerAccount, Side, TransferLeg
from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.quota import AccountRow, Leg, QuotaTree
from controlplane.core.tenancy import Queue

Charges = Iterable[tuple[AccountKey, int]]


class Book:
    """Locked accounts, moved by each call as the database will be moved by its legs."""

    def __init__(self, accounts: Iterable[LedgerAccount]) -> None:
        """`accounts` holds every account on the way to the root of each that is charged."""
        self._tree = tree_of_accounts(accounts)

    def available(self, key: AccountKey) -> int:
        """How much more may be charged to this account now."""
        return self._tree.available(key.queue, key.flavor)

    def place(self, charges: Charges) -> tuple[TransferLeg, ...]:
        """Charge, pending at the account itself. Whoever places asks `available` first."""
        return tuple(leg for key, amount in charges for leg in self._charge(key, amount))

    def post(self, charges: Charges) -> tuple[TransferLeg, ...]:
        """All pods run: pending becomes posted; nothing changes above."""
        return tuple(TransferLeg(key, amount, Side.PENDING, Side.POSTED) for key, amount in charges)

    def void(self, charges: Charges) -> tuple[TransferLeg, ...]:
        """Give back what was placed and never ran."""
        return tuple(leg for key, amount in charges for leg in self._refund(key, amount, Side.PENDING))

    def reverse(self, charges: Charges) -> tuple[TransferLeg, ...]:
        """Give back what ran and has ended."""
        return tuple(leg for key, amount in charges for leg in self._refund(key, amount, Side.POSTED))

    def _charge(self, key: AccountKey, amount: int) -> Iterable[TransferLeg]:
        for leg in self._tree.charge(key.queue, key.flavor, amount):
            yield TransferLeg(_key(leg), leg.amount, Side.FREE, Side.PENDING if _key(leg) == key else Side.POSTED)

    def _refund(self, key: AccountKey, amount: int, side: Side) -> Iterable[TransferLeg]:
        legs = self._tree.refund(key.queue, key.flavor, amount)
        assert legs, f"{key} was never charged"
        assert legs[0].amount == amount, f"{key} holds less than is given back"
        for leg in legs:
            yield TransferLeg(_key(leg), leg.amount, side if _key(leg) == key else Side.POSTED, Side.FREE)


def tree_of_accounts(accounts: Iterable[LedgerAccount]) -> QuotaTree:
    """Stored accounts as a tree that may be asked and charged; `accounts` must reach up to the roots."""
    return QuotaTree.from_rows(_row(account) for account in accounts)


def relimited(
    accounts: Iterable[LedgerAccount],
    queues: Iterable[Queue],
    owned: Mapping[FlavorName, int],
    usage: Mapping[AccountKey, int],
) -> tuple[tuple[LedgerAccount, ...], tuple[TransferLeg, ...]]:
    """Accounts whose numbers differ from what the Queues' documents say, as they should be, and the legs of that.

    `usage` is what held reservations charge; usage above is added up anew from it, since other kept parts pass on
    other amounts. Overdraft becomes what is in use beyond the new limits: a cut stops admission and kills nothing.
    """
    tree = QuotaTree(queues, {(key.queue, key.flavor): amount for key, amount in usage.items()}, owned)
    changed: list[LedgerAccount] = []
    legs: list[TransferLeg] = []
    for account in sorted(accounts, key=lambda account: account.key):
        wanted = _relimited(account, tree)
        if wanted == account:
            continue
        changed.append(wanted)
        if (more := wanted.posted - account.posted) > 0:
            legs.append(TransferLeg(account.key, more, Side.FREE, Side.POSTED))
        elif more < 0:
            legs.append(TransferLeg(account.key, -more, Side.POSTED, Side.FREE))
    return tuple(changed), tuple(legs)


def _relimited(account: LedgerAccount, tree: QuotaTree) -> LedgerAccount:
    if account.key.queue not in tree:
        return replace(account, subtree=0, kept=0, borrow_limit=None)
    row = tree.account(account.key.queue, account.key.flavor).row()
    return replace(
        account, parent=row.parent, subtree=row.s, kept=row.k, borrow_limit=row.b, overdraft=row.overdraft,
        posted=row.u - account.pending,
    )  # fmt: skip


def _key(leg: Leg) -> AccountKey:
    return AccountKey(QueueId(leg.queue), leg.flavor)


def _row(account: LedgerAccount) -> AccountRow:
    return AccountRow(
        account.key.queue, account.key.flavor, account.parent, account.subtree, account.kept, account.borrow_limit,
        account.pending + account.posted, account.overdraft,
    )  # fmt: skip
