"""Read models of clusters, nodes and devices; the other half of `queries`."""

from collections import defaultdict
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from controlplane.contract.rest.cordons import CordonView, DrainView
from controlplane.contract.rest.fleet import ClusterView, DeviceView, FlavorCount, NodeView
from controlplane.core.facts.queries import FleetFilter, PageOf
from controlplane.db.stores import queries_sql as sql

Line = Row[Any]


def clusters(session: Session, name: str | None) -> list[ClusterView]:
    """Every live Cluster, by name, or the one of this name."""
    rows = session.execute(sql.CLUSTERS, {"name": name}).all()
    counts: dict[int, list[FlavorCount]] = defaultdict(list)
    for each in session.execute(sql.CLUSTER_FLAVORS, {"clusters": [row.id for row in rows]}):
        counts[each.cluster_id].append(
            FlavorCount(
                flavor=each.flavor,
                owned=int(each.owned),
                usable=int(each.usable),
                held=int(each.held),
                free=int(each.free),
                foreign=int(each.foreign_held),
            )
        )
    return [_cluster(row, counts[row.id]) for row in rows]


def nodes(session: Session, wanted: FleetFilter, after: int, limit: int) -> PageOf[NodeView]:
    """By id."""
    given = {"cluster": wanted.cluster, "node": wanted.node, "flavor": wanted.flavor, "after": after}
    rows = session.execute(sql.NODES, {**given, "limit": limit + 1}).all()
    page = rows[:limit]
    counts: dict[int, list[Line]] = defaultdict(list)
    for each in session.execute(sql.NODE_FLAVORS, {"nodes": [row.id for row in page]}):
        counts[each.node_id].append(each)
    items = [_node(row, counts[row.id], row.labels if wanted.node else {}) for row in page]
    return PageOf(items, (str(items[-1].id),) if len(rows) > limit else None)


def devices(session: Session, wanted: FleetFilter, after: int, limit: int) -> PageOf[DeviceView]:
    """By id."""
    given = {
        "cluster": wanted.cluster, "node": wanted.node, "flavor": wanted.flavor, "health": wanted.health,
        "after": after, "limit": limit + 1,
    }  # fmt: skip
    rows = session.execute(sql.DEVICES, given).all()
    items = [_device(row) for row in rows[:limit]]
    return PageOf(items, (str(items[-1].id),) if len(rows) > limit else None)


def _cluster(row: Line, counts: list[FlavorCount]) -> ClusterView:
    return ClusterView(
        name=row.name,
        pool=row.pool_name,
        state=row.state,
        agent="banned" if row.agent_banned else "enrolled" if row.agent_known else "none",
        labels=row.labels,
        levels=row.levels,
        namespaces=row.namespaces,
        agent_version=row.agent_version,
        kubernetes_version=row.kubernetes_version,
        nodes=row.nodes,
        nodes_ready=row.nodes_ready,
        flavors=counts,
        inventory_at=row.inventory_at,
        last_heard_at=row.last_heard_at,
        lost_at=row.lost_at,
        created_at=row.created_at,
        accepted_at=row.accepted_at,
        version=row.version,
        spec=row.spec,
        cordon=_cordon(row.cordon_reason, row),
        drain=_drain(row),
    )


def _cordon(reason: str, row: Line) -> CordonView | None:
    return CordonView(reason=reason, until=row.cordon_until, by=row.cordon_by) if reason else None


def _drain(row: Line) -> DrainView | None:
    if not row.drain_reason:
        return None
    return DrainView(
        reason=row.drain_reason,
        deadline_at=row.drain_deadline_at,
        by=row.drain_by,
        attempts_left=row.attempts_left,
        then_remove=row.then_remove,
    )


def _node(row: Line, counts: list[Line], labels: dict[str, str]) -> NodeView:
    is_usable = row.ready and not (row.cordoned or row.deleting or row.cordoned_by_us or row.lost_at)
    return NodeView(
        id=row.id,
        cluster=row.cluster_name,
        name=row.name,
        kind=row.kind,
        ready=row.ready,
        cordoned=row.cordoned,
        cordoned_by_us=row.cordoned_by_us,
        cordon=_cordon(row.cordoned_by_us, row),
        domains=row.domains,
        flavors=[
            FlavorCount(
                flavor=each.flavor,
                owned=each.owned,
                usable=each.capacity,
                held=each.held,
                free=max(0, each.capacity - each.held) if is_usable else 0,
                foreign=each.foreign_held,
            )
            for each in counts
        ],
        cpu_milli=row.cpu_milli,
        memory_bytes=row.memory_bytes,
        cpu_milli_held=row.cpu_milli_held,
        memory_bytes_held=row.memory_bytes_held,
        pods=row.pods,
        pods_held=row.pods_held,
        rdma=row.rdma,
        rdma_held=row.rdma_held,
        hugepages_bytes=row.hugepages_bytes,
        hugepages_bytes_held=row.hugepages_bytes_held,
        local_storage_bytes=row.local_storage_bytes,
        local_storage_bytes_held=row.local_storage_bytes_held,
        taints=row.taints,
        labels=labels,
        discrepancies=row.discrepancies,
        lost_at=row.lost_at,
        observed_at=row.observed_at,
    )


def _device(row: Line) -> DeviceView:
    return DeviceView(
        id=row.id,
        cluster=row.cluster_name,
        node=row.node_name,
        device_key=row.device_key,
        key_quality=row.key_quality,
        vendor=row.vendor,
        kind=row.kind,
        flavor=row.flavor,
        model=row.model or row.model_raw,
        memory_mib=row.memory_mib,
        profile=row.profile,
        slots_total=row.slots_total,
        health=row.health,
        health_reasons=row.health_reasons,
        state=row.state,
        cordon=_cordon(row.cordon_reason, row),
        observed_at=row.observed_at,
    )
