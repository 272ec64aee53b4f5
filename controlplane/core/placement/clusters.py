"""Which clusters a Workload may be placed in, and why not in the others.

Every refusal is a Reason with true numbers. What passes here is tried by `workload`; what is tried and
does not fit is explained by `shortfall`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.core.demand import Workload
from controlplane.core.ids import ClusterId, QueueId
from controlplane.core.index import FleetIndex
from controlplane.core.placement.filters import refuses_all, refuses_pod_set, refuses_workload
from controlplane.core.policy import Policy
from controlplane.core.reasons import Reason
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Queue


@dataclass(frozen=True, slots=True)
class Ranked:
    """The clusters to try, in order of their ids, and the Reason of every other one."""

    open: tuple[ClusterId, ...]
    refused: Mapping[ClusterId, Reason] = field(default_factory=dict)


class ClusterRanking:
    """Remembers within one cycle what was asked before: many Workloads ask the same."""

    def __init__(self, snapshot: Snapshot, index: FleetIndex, policy: Policy, now: datetime) -> None:
        self._snapshot = snapshot
        self._index = index
        self._closed = {
            cluster.id: refused
            for cluster in snapshot.clusters.values()
            if (refused := refuses_all(cluster, policy, now)) is not None
        }
        self._known: dict[object, Ranked] = {}

    def rank(self, workload: Workload) -> Ranked:
        """Every cluster of the Pool, judged for this Workload."""
        namespace = workload.namespace or namespace_of(self._snapshot.queues, workload.queue)
        asked = workload.cluster_selector, workload.clusters_avoided, namespace, workload.pod_sets
        ranked = self._known.get(asked)
        if ranked is None:
            ranked = self._known[asked] = self._judge(workload, namespace)
        return ranked

    def _judge(self, workload: Workload, namespace: str) -> Ranked:
        refused: dict[ClusterId, Reason] = {}
        for cluster_id in sorted(self._snapshot.clusters):
            cluster = self._snapshot.clusters[cluster_id]
            why = self._closed.get(cluster_id) or refuses_workload(cluster, workload, namespace)
            for pod_set in workload.pod_sets:
                why = why or refuses_pod_set(cluster, pod_set, self._index)
            if why is not None:
                refused[cluster_id] = why
        return Ranked(tuple(at for at in sorted(self._snapshot.clusters) if at not in refused), refused)


def namespace_of(queues: Mapping[QueueId, Queue], queue: QueueId) -> str:
    """The namespace that a Queue names, or the nearest Queue above it that does; "" if none does."""
    at = queues.get(queue)
    for _ in range(len(queues)):
        if at is None or at.namespace:
            break
        at = None if at.parent is None else queues.get(at.parent)
    return "" if at is None else at.namespace
