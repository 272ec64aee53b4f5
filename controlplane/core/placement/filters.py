"""Yes or no per cluster, each no with its Reason: state, inventory, labels, namespace, facts, Flavor, total.

What is free just now is not asked here; `clusters` ranks what passes and `shortfall` explains the rest.
"""

from collections.abc import Callable
from datetime import datetime

from controlplane.core.capacity import Cluster
from controlplane.core.demand import LEVEL_HOST, PodSet, TopologyMode, Workload
from controlplane.core.ids import FlavorName
from controlplane.core.index import NO_FLAVOR, FleetIndex, PodSize
from controlplane.core.lifecycle import ClusterState
from controlplane.core.policy import Policy
from controlplane.core.reasons import Reason, ReasonCode, reason
from controlplane.core.resources import times
from controlplane.core.topology import WHOLE_CLUSTER

_BANNED = "without an agent: the last one is banned, and none has enrolled since"


def refuses_all(cluster: Cluster, policy: Policy, now: datetime) -> Reason | None:
    """Why a cluster takes no new work at all."""
    if cluster.drain:
        return reason(ReasonCode.CLUSTER_DRAINED, cluster=cluster.name, words=cluster.drain)
    if cluster.cordon:
        until = cluster.cordon_until
        told = "it is put back" if until is None else until.isoformat(timespec="seconds")
        return reason(ReasonCode.CLUSTER_CORDONED, cluster=cluster.name, until=told, words=cluster.cordon)
    if cluster.is_banned:
        return reason(ReasonCode.CLUSTER_NOT_READY, cluster=cluster.name, state=_BANNED)
    if cluster.state is not ClusterState.READY:
        return reason(ReasonCode.CLUSTER_NOT_READY, cluster=cluster.name, state=cluster.state.value)
    if cluster.inventory_at is None:
        return reason(ReasonCode.CLUSTER_NOT_READY, cluster=cluster.name, state="without an inventory")
    age = int((now - cluster.inventory_at).total_seconds())
    if age > policy.inventory_stale_seconds:
        return reason(
            ReasonCode.CLUSTER_INVENTORY_STALE, cluster=cluster.name, age=age, limit=policy.inventory_stale_seconds
        )
    return None


def refuses_workload(cluster: Cluster, workload: Workload, namespace: str) -> Reason | None:
    """Why a cluster is not for this Workload, whatever its size: the first filter that refuses it."""
    for refuses in FILTERS:
        why = refuses(cluster, workload, namespace)
        if why is not None:
            return why
    return None


def _not_selected(cluster: Cluster, workload: Workload, _: str) -> Reason | None:
    labels = dict(cluster.labels)
    selected = all(labels.get(key) == value for key, value in workload.cluster_selector)
    if selected and cluster.name not in workload.clusters_avoided:
        return None
    return reason(ReasonCode.CLUSTER_NOT_SELECTED, cluster=cluster.name)


def _without_namespace(cluster: Cluster, _: Workload, namespace: str) -> Reason | None:
    if not namespace or namespace in cluster.namespaces:
        return None
    return reason(ReasonCode.CLUSTER_WITHOUT_NAMESPACE, cluster=cluster.name, namespace=namespace)


def _without_fact(cluster: Cluster, workload: Workload, _: str) -> Reason | None:
    missing = [fact for fact in workload.requires if fact not in cluster.facts]
    if not missing:
        return None
    return reason(ReasonCode.CLUSTER_WITHOUT_FACT, cluster=cluster.name, missing=", ".join(sorted(missing)))


FILTERS: tuple[Callable[[Cluster, Workload, str], Reason | None], ...] = (
    _not_selected,
    _without_namespace,
    _without_fact,
)
"""What is asked of each cluster for a Workload and its namespace, in this order; each gives its Reason or None."""


def refuses_pod_set(cluster: Cluster, pod_set: PodSet, index: FleetIndex) -> Reason | None:
    """Why a cluster could not hold this PodSet even if it were empty."""
    for level in _levels_needed(pod_set):
        if level not in (cluster.levels or (LEVEL_HOST,)):
            return reason(ReasonCode.TOPOLOGY_LEVEL_UNKNOWN, cluster=cluster.name, level=level)
    if not pod_set.devices:
        return _no_eligible_node(cluster, pod_set, index, [NO_FLAVOR])
    owned = index.owned[cluster.id]
    carried = [flavor for flavor in pod_set.flavors if owned.get(flavor, 0) > 0]
    if not carried:
        return reason(
            ReasonCode.CLUSTER_WITHOUT_FLAVOR, cluster=cluster.name, flavor=" or ".join(pod_set.flavors) or "flavor"
        )
    wanted = times(pod_set.devices, pod_set.least)
    if all(owned[flavor] < wanted for flavor in carried):
        flavor = max(carried, key=lambda name: (owned[name], name))
        return reason(
            ReasonCode.CLUSTER_TOO_SMALL, cluster=cluster.name, total=owned[flavor], flavor=flavor, wanted=wanted
        )
    if (why := _no_eligible_node(cluster, pod_set, index, carried)) is not None:
        return why
    if pod_set.slice_size:
        why = _too_small_a_level(cluster, pod_set, index, carried, (pod_set.slice_level, pod_set.slice_size))
        if why is not None:
            return why
    if pod_set.topology_mode is TopologyMode.REQUIRED:
        return _too_small_a_level(cluster, pod_set, index, carried, (pod_set.topology_level, pod_set.least))
    return None


def _no_eligible_node(cluster: Cluster, pod_set: PodSet, index: FleetIndex, carried: list[FlavorName]) -> Reason | None:
    """Whether its rules leave it too few nodes even if they were empty."""
    sizes = [PodSize.of(flavor, pod_set.devices, pod_set.needs, pod_set.rules) for flavor in carried]
    if not all(index.is_ruled(size) for size in sizes):
        return None
    root = index.tree.root[cluster.id]
    found = [
        (
            index.largest_when_empty(size, cluster.id, WHOLE_CLUSTER) if size.devices else index.eligible(size, root),
            size,
        )
        for size in sizes
    ]
    fits, best = max(found, key=lambda each: each[0])
    if fits >= (pod_set.least if pod_set.devices else 1):
        return None
    return reason(
        ReasonCode.NODES_NOT_ELIGIBLE,
        cluster=cluster.name,
        count=index.eligible(best, root),
        fits=fits,
        pods=pod_set.least,
        devices=pod_set.devices,
        flavor=best.flavor or "flavor",
    )


def _levels_needed(pod_set: PodSet) -> list[str]:
    """The topology levels without which a cluster can never hold this PodSet."""
    needed = [pod_set.topology_level] if pod_set.topology_mode is TopologyMode.REQUIRED else []
    return [*needed, pod_set.slice_level] if pod_set.slice_size else needed


def _too_small_a_level(
    cluster: Cluster, pod_set: PodSet, index: FleetIndex, carried: list[FlavorName], asked: tuple[str, int]
) -> Reason | None:
    """Whether so many pods would fit into one domain of a level, were it empty: `asked` is (level, pods)."""
    name, pods = asked
    level = index.tree.level_index(cluster.id, name)
    assert level is not None
    sizes = [PodSize.of(flavor, pod_set.devices, pod_set.needs, pod_set.rules) for flavor in carried]
    fits = {size.flavor: index.largest_when_empty(size, cluster.id, level) for size in sizes}
    best = max(carried, key=lambda name: (fits[name], name))
    if fits[best] >= pods:
        return None
    return reason(
        ReasonCode.TOPOLOGY_TOO_SMALL,
        cluster=cluster.name,
        level=name,
        fits=fits[best],
        pods=pods,
        devices=pod_set.devices,
        flavor=best,
    )
