"""Workloads as stored, as plain values; what the planner needs of one is `core.demand.Workload`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from controlplane.core.demand import PodSet
from controlplane.core.ids import PoolId, QueueId, WorkloadId
from controlplane.core.lifecycle import WorkloadState


@dataclass(frozen=True, slots=True)
class NewWorkload:
    """A Workload to be written as `pending`. `spec` is its document's spec, camelCase, as JSON.

    `shape` is what exclusions are keyed by; `manifest` the Kubernetes object where it came as one.
    """

    id: WorkloadId
    name: str
    queue: QueueId
    pool: PoolId
    owner: str
    priority: int
    kind: str  # Workload | Job
    spec: Mapping[str, object]
    manifest: Mapping[str, object] | None
    labels: Mapping[str, str]
    shape: str
    max_attempts: int
    on_cluster_loss: str
    pod_sets: tuple[PodSet, ...]


@dataclass(frozen=True, slots=True)
class WorkloadFact:
    """A Workload as stored."""

    id: WorkloadId
    name: str
    queue: QueueId
    queue_path: str
    pool: PoolId
    owner: str
    priority: int
    state: WorkloadState
    kind: str
    version: int
    attempts_made: int
    program_failures: int
    infrastructure_ends: int
    max_attempts: int
    on_cluster_loss: str
    shape: str
    submitted_at: datetime


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    """New values of one locked Workload; None leaves a column alone. Each change raises its version.

    `state` comes from `core.lifecycle.advance_workload`. A final state clears the due time.
    """

    id: WorkloadId
    state: WorkloadState | None = None
    reasons: tuple[Mapping[str, object], ...] | None = None  # [{code, facts}]
    old_place: tuple[int, ...] | None = None  # node ids
    not_before: datetime | None = None
    next_check_at: datetime | None = None
    program_failures: int | None = None
    infrastructure_ends: int | None = None
