"""Attempts, Placements, pods and directives as stored, as values, and the changes that services ask for.

Values only: `db/stores/attempts.py` reads and writes them; `services/attempts.py` decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from controlplane.core.facts.fleet import Document
from controlplane.core.facts.ledger import AttemptKey
from controlplane.core.ids import ClusterId, FlavorName, NodeId, PoolId, QueueId, WorkloadId
from controlplane.core.lifecycle import AttemptState, Outcome, WorkloadState
from controlplane.core.reasons import Reason


class PlacementState(StrEnum):
    """How far a cluster is with its part of an Attempt."""

    ORDERED = "ordered"
    PREPARED = "prepared"
    REJECTED = "rejected"
    STOPPING = "stopping"  # a tombstone is out; it is sent until the agent says gone
    GONE = "gone"


class PodState(StrEnum):
    """What was last seen of a pod. `lost`: its node is lost, so nobody can say."""

    PLACED = "placed"
    GATED = "gated"
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    GONE = "gone"


POD_ENDED = frozenset({PodState.SUCCEEDED, PodState.FAILED, PodState.GONE})  # proven: it uses no device any more


def object_id(key: AttemptKey) -> str:
    """The Attempt's name in directives and in the cluster's objects."""
    return f"{key.workload}.{key.attempt}"


@dataclass(frozen=True, slots=True)
class PlacementFact:
    """One cluster's part of an Attempt."""

    cluster: ClusterId
    state: PlacementState
    wanted_gen: int
    applied_gen: int
    message: str = ""
    cluster_name: str = ""
    cluster_is_ready: bool = True
    budgets: Document = field(default_factory=dict)  # as its Cluster's document says


@dataclass(frozen=True, slots=True)
class PodFact:
    """One pod, with what its node says of itself: the signals that a verdict rests on."""

    id: int
    cluster: ClusterId
    pod_set: str
    index: int
    rank: int
    node: NodeId
    node_name: str
    flavor: FlavorName
    amount: int
    state: PodState
    uid: str
    replacement_of: str
    exit_code: int | None
    disrupted: bool
    message: str
    device_keys: tuple[str, ...]
    started_at: datetime | None
    finished_at: datetime | None
    changed_at: datetime
    is_held: bool  # its hold is not released yet
    node_is_lost: bool  # declared lost, or its Node object is removed
    node_trouble_at: datetime | None  # when its node turned not ready or vanished during the Attempt, if it did
    device_trouble_at: datetime | None  # when a card of it, or of its node, fell ill, if one did
    device_words: str


@dataclass(frozen=True, slots=True)
class AttemptFact:
    """One Attempt, whole, with what of its Workload decides about it."""

    key: AttemptKey
    state: AttemptState
    outcome: Outcome | None
    outcome_wanted: Outcome | None
    verdict: str | None
    reason: Reason | None
    placed_at: datetime
    prepared_at: datetime | None
    start_ordered_at: datetime | None
    running_at: datetime | None
    stop_ordered_at: datetime | None
    failed_at: datetime | None
    evidence_until: datetime | None
    ended_at: datetime | None
    next_check_at: datetime | None
    workload_name: str
    workload_state: WorkloadState
    workload_version: int
    queue: QueueId
    pool: PoolId
    shape: str
    attempts_made: int
    max_attempts: int
    program_failures: int
    infrastructure_ends: int
    placements: tuple[PlacementFact, ...]
    pods: tuple[PodFact, ...]


@dataclass(frozen=True, slots=True)
class WorkloadMove:
    """What a Workload's row becomes because of its Attempt; None leaves a column alone."""

    id: WorkloadId
    state: WorkloadState
    program_failures: int
    infrastructure_ends: int
    next_check_at: datetime | None
    not_before: datetime | None = None
    old_place: tuple[NodeId, ...] | None = None
    reasons: tuple[Reason, ...] | None = None


@dataclass(frozen=True, slots=True)
class PlacementChange:
    """One Placement's new row."""

    key: AttemptKey
    placement: PlacementFact


@dataclass(frozen=True, slots=True)
class NewDirective:
    """A directive to be stored; its number comes later, in a last, tiny transaction."""

    cluster: ClusterId
    key: AttemptKey
    gen: int
    kind: str  # apply | start | tombstone
    body: Document = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeRefused:
    """A node that its cluster's scheduler (or a foreign pod) closed to a shape of pod."""

    pool: PoolId
    shape: str
    cluster: ClusterId
    node_name: str
    words: str
    until: datetime


@dataclass(frozen=True, slots=True)
class PodPin:
    """Where one pod of a Placement goes, in the cluster's own names."""

    pod_set: str
    index: int
    rank: int
    node: str
    resource: str
    amount: int


@dataclass(frozen=True, slots=True)
class WorkloadOrder:
    """What an apply directive tells of a Workload, the same in every cluster of its Attempt."""

    key: AttemptKey
    name: str
    namespace: str
    world_size: int
    spec: Mapping[str, object]  # the Workload document's spec
    manifest: Mapping[str, object] | None = None  # a Job as submitted
    on_cluster_loss: str = "hold"
