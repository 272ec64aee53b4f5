"""Accounts, Transfers with their legs, reservations' ends, usage: every statement set-wise.

What the legs are is worked out in `core.ledger`; accounts are locked here first, so that it is worked out on numbers
that nobody else can move. The CHECKs of the account refuse whatever would oversell all the same.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Row, text
from sqlalchemy.orm import Session

from controlplane.core.facts.ledger import (
    AccountKey,
    AttemptKey,
    LedgerAccount,
    OpenTransfer,
    Proof,
    ToldOwned,
    TransferDraft,
    TransferKind,
    TransferLeg,
    Usage,
)
from controlplane.core.ids import AttemptNumber, ClusterId, FlavorName, PoolId, QueueId, WorkloadId
from controlplane.core.owned import Counted
from controlplane.core.tenancy import Budget, Queue, Quota, Spent
from controlplane.db import owned_sql
from controlplane.db.arrays import plain, sparse, texts
from controlplane.db.spent_reader import spent
from controlplane.db.stores import ledger_sql as sql

_TREE = 0x6D75_7302  # advisory lock: one writer of the quota tree at a time


class LedgerStore:
    """Fulfils `services.ports.ledger.LedgerStore`."""

    def __init__(self, session: Session, now: datetime) -> None:
        self._session = session
        self._now = now

    def charged_accounts(self, attempts: Collection[AttemptKey]) -> Sequence[AccountKey]:
        """The accounts that these Attempts' reservations charge."""
        rows = self._session.execute(sql.CHARGED, _attempt_columns(attempts))
        return [AccountKey(QueueId(row.queue_id), FlavorName(row.flavor)) for row in rows]

    def lock_accounts(self, leaves: Collection[AccountKey]) -> Sequence[LedgerAccount]:
        """Lock these accounts and all above them, in order; one that is missing is made with no quota of its own."""
        if not leaves:
            return []
        keys = {"queues": plain(key.queue for key in leaves), "flavors": texts(key.flavor for key in leaves)}
        self._session.execute(sql.MAKE_PATHS, keys)
        return [_account(row) for row in self._session.execute(sql.LOCK_PATHS, keys)]

    def open_transfers(self, attempts: Collection[AttemptKey]) -> Sequence[OpenTransfer]:
        """Those of `attempts` that still charge their Queue."""
        charges: dict[tuple[int, AttemptKey, bool], list[tuple[AccountKey, int]]] = defaultdict(list)
        for row in self._session.execute(sql.OPEN_TRANSFERS, _attempt_columns(attempts)):
            attempt = AttemptKey(WorkloadId(row.workload_id), AttemptNumber(row.attempt))
            key = AccountKey(QueueId(row.queue_id), FlavorName(row.flavor))
            charges[row.id, attempt, row.is_posted].append((key, row.amount))
        return [OpenTransfer(*head, tuple(sorted(listed))) for head, listed in charges.items()]

    def write_transfers(self, drafts: Sequence[TransferDraft]) -> None:
        """Append Transfers with their legs, and move the balances by the same legs."""
        legs = self._append(drafts)
        if legs:
            self._session.execute(sql.MOVE_BALANCES, _moves(legs))

    def release_reservations(self, attempts: Collection[AttemptKey], proof: Proof) -> None:
        """Mark the held reservations of these Attempts released."""
        if attempts:
            self._session.execute(sql.RELEASE, {**_attempt_columns(attempts), "now": self._now, "proof": proof.value})

    def record_usage(self, usages: Sequence[Usage]) -> None:
        """Write usage intervals; one of a pod that overlaps a stored one is left out.

        A card that somebody else is said to use at that time is not believed: its name is left out.
        """
        rows = [
            {
                "pod_id": usage.pod_id, "workload_id": usage.attempt.workload, "attempt": usage.attempt.attempt,
                "queue_id": usage.key.queue, "flavor": usage.key.flavor, "amount": usage.amount,
                "device_key": usage.device_key, "started_at": usage.started_at, "ended_at": usage.ended_at,
            }
            for usage in usages if usage.ended_at > usage.started_at and usage.amount > 0
        ]  # fmt: skip
        if rows:
            self._session.execute(sql.ADD_USAGE, rows)
        if named := [{**row, "device_key": ""} for row in rows if row["device_key"]]:
            self._session.execute(sql.ADD_USAGE, named)

    def roll_up_usage(self, limit: int) -> int:
        """Add usage intervals to the device-seconds per hour, each once: it is marked in the same statement."""
        return int(self._session.execute(sql.ROLL_UP, {"limit": limit}).scalar_one())

    def lock_tree(self) -> None:
        """Keep other writers of the quota tree out until this transaction ends."""
        self._session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _TREE})

    def all_accounts(self) -> Sequence[LedgerAccount]:
        """Make the account of every live Queue for every known Flavor; read them all, without a lock."""
        self._session.execute(sql.MAKE_ALL)
        return [_account(row) for row in self._session.execute(sql.READ_ALL)]

    def lock_all_accounts(self) -> Sequence[LedgerAccount]:
        """The same, with every account locked, in order; one at a time recomputes them."""
        self.lock_tree()
        self._session.execute(sql.MAKE_ALL)
        return [_account(row) for row in self._session.execute(sql.LOCK_ALL)]

    def quota_tree(self) -> Sequence[Queue]:
        """Every live Queue with its listed Quotas, by path; also a deleted one that is still charged."""
        quotas: dict[int, list[Quota]] = defaultdict(list)
        for row in self._session.execute(sql.QUOTAS):
            flavor = FlavorName(row.flavor)
            quotas[row.queue_id].append(Quota(flavor, row.nominal, row.borrow_limit, row.lend_limit))
        return [
            Queue(row.id, row.path, row.parent_id, row.weight, tuple(quotas[row.id]), row.namespace)
            for row in self._session.execute(sql.QUEUES)
        ]

    def owned(self) -> Mapping[FlavorName, int]:
        """What counts of what all accepted clusters own, by Flavor."""
        return {FlavorName(row.flavor): int(row.owned) for row in self._session.execute(owned_sql.OWNED)}

    def told_owned(self) -> Sequence[ToldOwned]:
        """What accepted clusters are said to own, and what counted of it so far; nobody else changes that now."""
        self._session.execute(owned_sql.LOCK)
        return [
            ToldOwned(
                ClusterId(row.cluster_id), PoolId(row.pool_id), FlavorName(row.flavor), int(row.told),
                None if row.units is None else Counted(row.units, row.peak, row.since),
            )
            for row in self._session.execute(owned_sql.TOLD)
        ]  # fmt: skip

    def count_owned(self, counted: Mapping[tuple[ClusterId, FlavorName], Counted]) -> None:
        """Write what counts from now on."""
        listed = sorted(counted.items())
        if listed:
            columns = {
                "clusters": [cluster for (cluster, _), _ in listed], "flavors": [flavor for (_, flavor), _ in listed],
                "units": [each.units for _, each in listed], "peaks": [each.peak for _, each in listed],
                "sinces": [each.since for _, each in listed],
            }  # fmt: skip
            self._session.execute(owned_sql.PUT, columns)

    def leaf_usage(self) -> Mapping[AccountKey, int]:
        """Units of held reservations by account."""
        rows = self._session.execute(sql.LEAF_USAGE)
        return {AccountKey(QueueId(row.queue_id), FlavorName(row.flavor)): int(row.amount) for row in rows}

    def spent(self, asked: Sequence[tuple[QueueId, tuple[Budget, ...]]]) -> Sequence[Spent]:
        """What these Queues, and all below them, have used of each of these budgets since its period began."""
        return spent(self._session, asked, self._now)

    def write_limits(self, accounts: Sequence[LedgerAccount], adjustment: Sequence[TransferLeg]) -> None:
        """Write limits, balances and overdraft of locked accounts, and the Transfer that says what moved."""
        if adjustment:
            self._append([TransferDraft(TransferKind.ADJUST, tuple(adjustment))])
        if accounts:
            self._session.execute(
                sql.WRITE_LIMITS,
                {
                    "queues": [account.key.queue for account in accounts],
                    "flavors": [account.key.flavor for account in accounts],
                    "roots": [account.parent is None for account in accounts],
                    "subtrees": [account.subtree for account in accounts],
                    "kept": [account.kept for account in accounts],
                    "borrow_limits": [account.borrow_limit for account in accounts],
                    "overdrafts": [account.overdraft for account in accounts],
                    "posted": [account.posted for account in accounts],
                },
            )

    def _append(self, drafts: Sequence[TransferDraft]) -> list[TransferLeg]:
        """Write Transfers and legs; balances are the caller's next statement."""
        drafts = [draft for draft in drafts if draft.legs]
        if not drafts:
            return []
        ids = json.loads(self._session.execute(sql.TRANSFER_IDS, {"count": len(drafts)}).scalar_one())
        numbered = list(zip(ids, drafts, strict=True))
        self._session.execute(
            sql.ADD_TRANSFERS,
            {
                "now": self._now,
                "ids": plain(ids),
                "kinds": plain(draft.kind.value for draft in drafts),
                "workloads": sparse(draft.attempt.workload if draft.attempt else None for draft in drafts),
                "attempts": sparse(draft.attempt.attempt if draft.attempt else None for draft in drafts),
                "pending_ids": sparse(draft.pending_id for draft in drafts),
            },
        )
        listed = [(number, leg) for number, draft in numbered for leg in draft.legs]
        self._session.execute(
            sql.ADD_LEGS,
            {
                "transfers": plain(number for number, _ in listed),
                "queues": plain(leg.key.queue for _, leg in listed),
                "flavors": texts(leg.key.flavor for _, leg in listed),
                "amounts": plain(leg.amount for _, leg in listed),
                "sources": plain(leg.source.value for _, leg in listed),
                "targets": plain(leg.target.value for _, leg in listed),
            },
        )
        return [leg for _, leg in listed]


def _attempt_columns(attempts: Collection[AttemptKey]) -> dict[str, object]:
    return {
        "workloads": plain(key.workload for key in attempts), "attempts": plain(key.attempt for key in attempts)
    }  # fmt: skip


def _moves(legs: Sequence[TransferLeg]) -> dict[str, object]:
    """What each account's two balances move by, as columns."""
    moves: dict[AccountKey, dict[str, int]] = {}
    for leg in legs:
        move = moves.get(leg.key) or moves.setdefault(leg.key, {"pending": 0, "posted": 0, "free": 0})
        move[leg.source.value] -= leg.amount
        move[leg.target.value] += leg.amount
    keys = sorted(moves)
    return {
        "queues": plain(key.queue for key in keys),
        "flavors": texts(key.flavor for key in keys),
        "pending": plain(moves[key]["pending"] for key in keys),
        "posted": plain(moves[key]["posted"] for key in keys),
    }


def _account(row: Row[tuple[object, ...]]) -> LedgerAccount:
    return LedgerAccount(
        AccountKey(QueueId(row.queue_id), FlavorName(row.flavor)), row.parent_id, row.subtree, row.kept,
        row.borrow_limit, row.overdraft, row.pending, row.posted,
    )  # fmt: skip
