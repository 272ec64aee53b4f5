"""Which clusters a Workload may be placed in, and why not in the others.

Every refusal is a Reason with true numbers. What passes here is tried by `workload`; what is tried and
does not fit is explained by `shortfall`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.core.capacity import Cluster
from controlplane.core.demand import Workload
from controlplane.core.ids import ClusterId, QueueId
from controlplane.core.index import FleetIndex
from controlplane.core.placement.filters import refuses_all, refuses_pod_set, refuses_workload
from controlplane.core.placement.groups import piece_of, units_of
from controlplane.core.policy import Policy
from controlplane.core.reasons import Reason
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Queue


@dataclass(frozen=True, slots=True)
class Ranked:
    """The clusters to try, in order of their ids, and the Reason of every other one.

    `partly` are those that might hold a piece of a Workload that may be divided, with their network domains.
    """

    open: tuple[ClusterId, ...]
    refused: Mapping[ClusterId, Reason] = field(default_factory=dict)
    partly: tuple[ClusterId, ...] = ()


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
        asked = (
            workload.cluster_selector,
            workload.clusters_avoided,
            workload.requires,
            workload.clusters_max > 1,
            namespace,
            workload.pod_sets,
        )
        ranked = self._known.get(asked)
        if ranked is None:
            ranked = self._known[asked] = self._judge(workload, namespace)
        return ranked

    def _judge(self, workload: Workload, namespace: str) -> Ranked:
        refused: dict[ClusterId, Reason] = {}
        partly: list[ClusterId] = []
        for cluster_id in sorted(self._snapshot.clusters):
            cluster = self._snapshot.clusters[cluster_id]
            why = self._closed.get(cluster_id) or refuses_workload(cluster, workload, namespace)
            if why is None and workload.clusters_max > 1 and self._holds_a_piece(cluster, workload):
                partly.append(cluster_id)
            for pod_set in workload.pod_sets:
                why = why or refuses_pod_set(cluster, pod_set, self._index)
            if why is not None:
                refused[cluster_id] = why
        opened = tuple(at for at in sorted(self._snapshot.clusters) if at not in refused)
        return Ranked(opened, refused, tuple(partly))

    def _holds_a_piece(self, cluster: Cluster, workload: Workload) -> bool:
        """Whether some piece of it could be there, were the cluster empty."""
        pieces = [piece_of(unit) for unit in units_of(workload.pod_sets)]
        return any(all(refuses_pod_set(cluster, pod_set, self._index) is None for pod_set in piece) for piece in pieces)


def namespace_of(queues: Mapping[QueueId, Queue], queue: QueueId) -> str:
    """The namespace that a Queue names, or the nearest Queue above it that does; "" if none does."""
    at = queues.get(queue)
    for _ in range(len(queues)):
        if at is None or at.namespace:
            break
        at = None if at.parent is None else queues.get(at.parent)
    return "" if at is None else at.namespace
