"""Workloads as stored, as plain values; what the planner needs of one is `core.demand.Workload`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from controlplane.core.demand import PodSet
from controlplane.core.ids import PoolId, QueueId, WorkloadId
from controlplane.core.lifecycle import WorkloadState


@dataclass(frozen=True, slots=True)
class FleetShape:
    """What enrolled clusters have, unreachable ones included: by Flavor the most units on one node, and all levels."""

    widest: Mapping[str, int]
    levels: frozenset[str]


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
class SubmissionSite:
    """Where a Workload would stand: its Queue, kept from being moved or deleted until the transaction ends.

    `namespace` is the Queue's own or the nearest above it, "" for none; `live` is the id and state of the Workload that
    bears the name already; `pool` is None where no Pool has the name.
    """

    queue: QueueId
    path: str
    is_leaf: bool
    namespace: str
    pool: PoolId | None
    live: tuple[WorkloadId, WorkloadState] | None


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
    """The next state of a locked Workload, as `core.lifecycle.advance_workload` gave it; a final one is due no more."""

    id: WorkloadId
    state: WorkloadState
