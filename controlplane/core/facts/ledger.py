"""Rows of the ledger and of the audit log as plain values.

The arithmetic of legs is in `core.ledger`; who writes them, in `services.accounting` and the plan writer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from controlplane.core.ids import AttemptNumber, ClusterId, FlavorName, PoolId, QueueId, WorkloadId
from controlplane.core.owned import Counted


class Side(StrEnum):
    """Where units of an account stand; a leg moves some from one side to another."""

    FREE = "free"
    PENDING = "pending"  # placed, not all running yet
    POSTED = "posted"


class TransferKind(StrEnum):
    """What one append-only change of the ledger is for."""

    PLACE = "place"
    POST = "post"
    VOID = "void"
    EXPIRE = "expire"
    REVERSE = "reverse"  # of a posted one, at its end
    ADJUST = "adjust"  # the tree changed, so inner accounts hold another sum


class Proof(StrEnum):
    """Why it is certain that an Attempt no longer uses what its reservation kept."""

    AGENT_REPORT = "agent-report"
    TOMBSTONE_ACK = "tombstone-ack"
    FENCE = "fence"
    DECLARED_LOST = "declared-lost"


@dataclass(frozen=True, slots=True, order=True)
class AttemptKey:
    """One Attempt of one Workload."""

    workload: WorkloadId
    attempt: AttemptNumber


@dataclass(frozen=True, slots=True, order=True)
class AccountKey:
    """One (Queue, Flavor)."""

    queue: QueueId
    flavor: FlavorName


@dataclass(frozen=True, slots=True)
class LedgerAccount:
    """An account as stored. U = pending + posted; S, K, B of the quota tree beside it."""

    key: AccountKey
    parent: QueueId | None
    subtree: int
    kept: int
    borrow_limit: int | None
    overdraft: int = 0
    pending: int = 0
    posted: int = 0


@dataclass(frozen=True, slots=True)
class TransferLeg:
    """What one Transfer does to one account: `amount` moves from `source` to `target`."""

    key: AccountKey
    amount: int
    source: Side
    target: Side


@dataclass(frozen=True, slots=True)
class TransferDraft:
    """A Transfer to be written. `pending_id` names the place Transfer that it resolves or reverses."""

    kind: TransferKind
    legs: tuple[TransferLeg, ...]
    attempt: AttemptKey | None = None
    pending_id: int | None = None


@dataclass(frozen=True, slots=True)
class OpenTransfer:
    """A place Transfer whose Attempt still charges its Queue, with the reservations behind it."""

    id: int
    attempt: AttemptKey
    is_posted: bool
    charges: tuple[tuple[AccountKey, int], ...]  # leaf accounts, sorted


@dataclass(frozen=True, slots=True)
class Usage:
    """What one pod used, from when to when; `device_key` where the card is known."""

    pod_id: int
    attempt: AttemptKey
    key: AccountKey
    amount: int
    started_at: datetime
    ended_at: datetime
    device_key: str = ""


@dataclass(frozen=True, slots=True)
class ToldOwned:
    """Units of one Flavor that one Cluster is said to own now, and what counted of it when it was last looked at."""

    cluster: ClusterId
    pool: PoolId
    flavor: FlavorName
    told: int
    counted: Counted | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what to which object. A change of state names both ends; `facts` is small JSON, without secrets."""

    actor: str
    action: str
    object_kind: str
    object_id: str
    state_from: str | None = None
    state_to: str | None = None
    facts: Mapping[str, object] = field(default_factory=dict)
    request_id: str = ""
    before_sha256: bytes | None = None  # of the document that was edited
    after_sha256: bytes | None = None
