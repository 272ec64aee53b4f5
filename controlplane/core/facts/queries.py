"""What read models are asked with, and the little that is no view."""

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from controlplane.core.ids import PoolId, WorkloadId
from controlplane.core.lifecycle import WorkloadState
from controlplane.core.reasons import Reason

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Scope:
    """The subtrees that a caller may see; None: everything."""

    paths: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class WorkloadFilter:
    """Which Workloads; what is None does not matter. `queue` means its whole subtree."""

    queue: str | None = None
    states: tuple[str, ...] = ()
    owner: str | None = None
    name: str | None = None
    cluster: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    submitted_after: datetime | None = None
    submitted_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class FleetFilter:
    """Which nodes or devices."""

    cluster: str | None = None
    node: str | None = None
    flavor: str | None = None
    health: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerFilter:
    """Which accounts or transfers; `queue` means its whole subtree, `workload` is an id or name."""

    queue: str | None = None
    flavor: str | None = None
    workload: str | None = None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which lines of the audit log; an `actor` without a kind before it means a person or service of this name, too."""

    object_kind: str | None = None
    object_id: str | None = None
    actor: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class PageOf(Generic[Item]):
    """Some items, and the key of the last where more follow."""

    items: list[Item]
    last: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PodWordsFact:
    """What a pod said last, or what is said of one that waits."""

    rank: int
    node: str
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class WaitingFact:
    """A Workload as `explain` sees it."""

    id: WorkloadId
    name: str
    queue_path: str
    pool: PoolId
    state: WorkloadState
    attempt: int
    attempt_state: str | None
    outcome: str | None
    verdict: str | None
    attempt_reason: Reason | None
    clusters: tuple[tuple[str, str], ...]  # of its last Attempt: name, and state or "banned"
    reasons: tuple[Reason, ...]
    submitted_at: datetime
    state_changed_at: datetime
    pods: int
    devices: int
    evidence_until: datetime | None = None  # until then it may turn out whose fault its last Attempt's end was
    words: tuple[PodWordsFact, ...] = ()  # of a few pods of its last Attempt; who waits and who ended badly come first


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A process of the plane: when it last made progress, and how long that is ago by the database's clock."""

    name: str
    kind: str
    age_seconds: int
