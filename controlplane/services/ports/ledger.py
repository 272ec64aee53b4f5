"""What services ask of the ledger and of the audit log.

Accounts are locked before anything that depends on them is read; `core.ledger.Book` says what changes.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from controlplane.core.facts.ledger import (
    AccountKey,
    AttemptKey,
    AuditEntry,
    LedgerAccount,
    OpenTransfer,
    Proof,
    ToldOwned,
    TransferDraft,
    TransferLeg,
    Usage,
)
from controlplane.core.ids import ClusterId, FlavorName, QueueId
from controlplane.core.owned import Counted
from controlplane.core.tenancy import Budget, Queue, Spent


class LedgerStore(Protocol):
    """`uow.ledger`."""

    def charged_accounts(self, attempts: Collection[AttemptKey]) -> Sequence[AccountKey]:
        """The leaf accounts that these Attempts' reservations charge; reservations never change, so no lock."""

    def lock_accounts(self, leaves: Collection[AccountKey]) -> Sequence[LedgerAccount]:
        """Lock these accounts and all above them, in order of (Queue, Flavor); missing ones are made first."""

    def open_transfers(self, attempts: Collection[AttemptKey]) -> Sequence[OpenTransfer]:
        """Those of `attempts` that still charge their Queue; ask after `lock_accounts`."""

    def write_transfers(self, drafts: Sequence[TransferDraft]) -> None:
        """Append Transfers with their legs, and move the balances by the same legs; overdraft shrinks with usage."""

    def release_reservations(self, attempts: Collection[AttemptKey], proof: Proof) -> None:
        """Mark the held reservations of these Attempts released, with the proof of their end."""

    def record_usage(self, usages: Sequence[Usage]) -> None:
        """Write usage intervals; empty ones and those that are there already are left out."""

    def roll_up_usage(self, limit: int) -> int:
        """Add up to `limit` usage intervals, each once, to the device-seconds per hour; returns how many."""

    def lock_tree(self) -> None:
        """Keep other writers of the quota tree out until this transaction ends."""

    def all_accounts(self) -> Sequence[LedgerAccount]:
        """Make the account of every live Queue for every known Flavor; read them all, without a lock."""

    def lock_all_accounts(self) -> Sequence[LedgerAccount]:
        """The same, with every account locked, in order."""

    def quota_tree(self) -> Sequence[Queue]:
        """Every live Queue with its listed Quotas, by path."""

    def owned(self) -> Mapping[FlavorName, int]:
        """What counts of what all accepted clusters own, by Flavor; silence of a cluster changes nothing."""

    def told_owned(self) -> Sequence[ToldOwned]:
        """What accepted clusters are said to own, by Cluster and Flavor, and what counted of it so far."""

    def count_owned(self, counted: Mapping[tuple[ClusterId, FlavorName], Counted]) -> None:
        """Write what counts from now on."""

    def leaf_usage(self) -> Mapping[AccountKey, int]:
        """Units of held reservations by (Queue that they charge, Flavor)."""

    def spent(self, asked: Sequence[tuple[QueueId, tuple[Budget, ...]]]) -> Sequence[Spent]:
        """What these Queues, and all below them, have used of each of these budgets since its period began."""

    def write_limits(self, accounts: Sequence[LedgerAccount], adjustment: Sequence[TransferLeg]) -> None:
        """Write limits, balances and overdraft of these accounts in one statement, with the Transfer that says why."""


class AuditStore(Protocol):
    """`uow.audit`."""

    def record(  # noqa: PLR0913 - an audit row has that many parts; all but four have a default
        self,
        *,
        actor: str,
        action: str,
        object_kind: str,
        object_id: str,
        state_from: str | None = None,
        state_to: str | None = None,
        facts: Mapping[str, object] | None = None,
        request_id: str = "",
    ) -> None:
        """Note one deed; written with the others of this transaction before it commits."""

    def record_many(self, entries: Sequence[AuditEntry]) -> None:
        """Note many deeds at once."""

    def seal(self, limit: int) -> int:
        """Give up to `limit` rows their place in the log and its chain; returns how many. One sealer at a time."""

    def head(self) -> int:
        """The last place that was given in the log; 0: none."""
