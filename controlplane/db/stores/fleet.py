"""Clusters, nodes, counters of Flavors on nodes, and devices: every query of them that a service needs.

Fulfils `services.ports.fleet.FleetStore`; agents and their sessions are in `agents`. A whole inventory is a fixed
number of statements, counters locked in order of (node, Flavor) as everywhere.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, TextClause
from sqlalchemy.orm import Session

from controlplane.core.facts.fleet import (
    ClusterChange,
    ClusterFact,
    Cordon,
    Document,
    Drain,
    NodeFact,
    NodeSignals,
    NodeWrite,
)
from controlplane.core.ids import ClusterId, FlavorName, NodeId, PoolId
from controlplane.core.lifecycle import ClusterState
from controlplane.db import owned_sql
from controlplane.db.arrays import plain
from controlplane.db.stores import fleet_sql as sql

Line = Row[Any]


class FleetStore:
    """`uow.fleet`."""

    def __init__(self, session: Session, now: datetime) -> None:
        self._session = session
        self._now = now

    def ensure_pool(self, name: str) -> PoolId:
        found = self._session.scalar(sql.POOL_NAMED, {"name": name})
        if found is None:
            self._session.execute(sql.ENSURE_POOL, {"name": name})
            found = self._session.scalar(sql.POOL_NAMED, {"name": name})
        assert found is not None
        return PoolId(found)

    def add_cluster(self, name: str, pool: PoolId, labels: Document, spec: Document) -> ClusterId | None:
        values = {"name": name, "pool": pool, "labels": _json(labels), "spec": _json(spec), "now": self._now}
        made = self._session.scalar(sql.ADD_CLUSTER, values)
        return None if made is None else ClusterId(made)

    def cluster(self, cluster: ClusterId) -> ClusterFact | None:
        return self._cluster(sql.CLUSTER, cluster=cluster)

    def cluster_named(self, name: str) -> ClusterFact | None:
        return self._cluster(sql.CLUSTER_NAMED, name=name)

    def lock_cluster(self, cluster: ClusterId) -> ClusterFact | None:
        return self._cluster(sql.CLUSTER_LOCKED, cluster=cluster)

    def fingerprint_taken(self, fingerprint: str, cluster: ClusterId) -> bool:
        values = {"fingerprint": fingerprint, "cluster": cluster}
        return bool(self._session.scalar(sql.FINGERPRINT_TAKEN, values))

    def set_identity(self, cluster: ClusterId, fingerprint: str, agent_version: str, kubernetes_version: str) -> None:
        self._do(
            sql.SET_IDENTITY,
            cluster=cluster,
            fingerprint=fingerprint,
            agent_version=agent_version,
            kubernetes_version=kubernetes_version,
        )

    def set_hello(self, cluster: ClusterId, features: Sequence[str], namespaces: Sequence[str]) -> None:
        self._do(
            sql.SET_HELLO,
            cluster=cluster,
            features=json.dumps(sorted(features)),
            namespaces=json.dumps(sorted(namespaces)),
        )

    def set_spec(self, cluster: ClusterId, labels: Document, spec: Document) -> None:
        self._do(sql.SET_SPEC, cluster=cluster, labels=_json(labels), spec=_json(spec))

    def write_clusters(self, changes: Sequence[ClusterChange]) -> int:
        if not changes:
            return 0
        rows = json.dumps([_cluster_row(change) for change in changes])
        written = self._session.execute(sql.WRITE_CLUSTERS, {"rows": rows})
        return int(getattr(written, "rowcount", 0))

    def mark_accepted(self, cluster: ClusterId) -> None:
        self._do(sql.MARK_ACCEPTED, cluster=cluster, now=self._now)

    def heard(self, cluster: ClusterId, next_check_at: datetime) -> None:
        self._do(sql.HEARD, cluster=cluster, now=self._now, next_check_at=next_check_at)

    def due_clusters(self, limit: int) -> list[ClusterFact]:
        rows = self._session.execute(sql.CLUSTERS_DUE, {"now": self._now, "limit": limit})
        return [cluster_fact(row) for row in rows]

    def owned_by(self, cluster: ClusterId, uids: Collection[str]) -> Mapping[FlavorName, int]:
        rows = self._session.execute(sql.OWNED_BY, {"cluster": cluster, "uids": sorted(uids)})
        return {FlavorName(row.flavor): int(row.owned) for row in rows}

    def resources(self, nodes: Collection[NodeId]) -> Mapping[tuple[NodeId, FlavorName], str]:
        rows = self._session.execute(sql.RESOURCES, {"nodes": plain(sorted(nodes))})
        return {(NodeId(row.node_id), FlavorName(row.flavor)): row.resource for row in rows}

    def budgets(self, clusters: Collection[ClusterId]) -> Mapping[ClusterId, Document]:
        rows = self._session.execute(sql.BUDGETS, {"clusters": sorted(clusters)})
        return {ClusterId(row.id): row.budgets for row in rows}

    def write_nodes(self, cluster: ClusterId, nodes: Sequence[NodeWrite]) -> NodeSignals:
        if not nodes:
            return NodeSignals()
        uids = [node.uid for node in nodes]
        which = {"cluster": cluster, "uids": uids, "names": [node.name for node in nodes]}
        self._session.execute(sql.LOCK_COUNTERS, which)  # before the nodes' own rows, as everywhere
        names = json.dumps([{"uid": node.uid, "name": node.name} for node in nodes])
        taken = list(self._session.scalars(sql.NAMES_TAKEN, {"cluster": cluster, "rows": names}))
        replaced = self.remove_nodes(cluster, taken, keep=False)
        before = {row.uid: row for row in self._session.execute(sql.NODES_BEFORE, {"cluster": cluster, "uids": uids})}
        rows = json.dumps(
            [{**node.row, "ready_changed_at": self._turned(node, before.get(node.uid))} for node in nodes]
        )
        stored = self._session.execute(sql.WRITE_NODES, {"cluster": cluster, "rows": rows, "now": self._now})
        ids = {row.uid: NodeId(row.id) for row in stored}
        changed = self._write_flavors(cluster, nodes, ids)
        ill = self._write_devices(cluster, nodes, ids)
        self._write_discrepancies(nodes, ids)
        ready = {node.uid: bool(node.row["ready"]) for node in nodes}
        fell = tuple(ids[uid] for uid, row in before.items() if row.ready and not ready[uid])
        rose = tuple(ids[uid] for uid in uids if ready[uid] and _was_out(before.get(uid)))
        changed = changed or any(_gives_room(before[node.uid], node) for node in nodes if node.uid in before)
        return NodeSignals(fell, rose, replaced.removed, ill, changed or replaced.capacity_changed or bool(fell))

    def remove_nodes(self, cluster: ClusterId, uids: Collection[str], *, keep: bool) -> NodeSignals:
        if not uids and not keep:
            return NodeSignals()
        values = {"cluster": cluster, "uids": sorted(uids), "keep": keep, "now": self._now}
        self._session.execute(sql.LOCK_COUNTERS_OF_REMOVED, values)
        removed = [NodeId(one) for one in self._session.scalars(sql.REMOVE_NODES, values)]
        if removed:
            gone = {"nodes": removed, "rows": "[]", "now": self._now}
            self._session.execute(owned_sql.LET_GO, gone)
            self._session.execute(sql.EMPTY_FLAVORS, gone)
            self._session.execute(sql.REMOVE_DEVICES, gone)
            self._session.execute(sql.END_DISCREPANCIES, gone)
        return NodeSignals(removed=tuple(sorted(removed)), capacity_changed=bool(removed))

    def digests(self, cluster: ClusterId) -> list[tuple[str, str]]:
        return [(row.uid, row.digest) for row in self._session.execute(sql.DIGESTS, {"cluster": cluster})]

    def set_inventory(self, cluster: ClusterId, revision: int, digest: str, levels: Sequence[str]) -> None:
        values = {"revision": revision, "digest": digest, "levels": json.dumps(list(levels))}
        self._do(sql.TOUCH_NODES, cluster=cluster, levels=values["levels"])
        self._do(sql.SET_INVENTORY, cluster=cluster, now=self._now, **values)

    def due_nodes(self, limit: int) -> list[NodeFact]:
        return [node_fact(row) for row in self._session.execute(sql.DUE_NODES, {"now": self._now, "limit": limit})]

    def check_nodes_at(self, moments: Mapping[NodeId, datetime]) -> None:
        rows = json.dumps([{"id": node, "at": at.isoformat()} for node, at in moments.items()])
        if moments:
            self._do(sql.CHECK_NODES_AT, rows=rows)

    def mark_lost(self, nodes: Collection[NodeId]) -> None:
        if nodes:
            self._do(sql.MARK_LOST, nodes=sorted(nodes), now=self._now)

    def _write_flavors(self, cluster: ClusterId, nodes: Sequence[NodeWrite], ids: Mapping[str, NodeId]) -> bool:
        rows = [
            {
                "node_id": ids[node.uid],
                "flavor": count.flavor,
                "resource": count.resource,
                "owned": count.owned,
                "allocatable": count.allocatable,
                "foreign_held": count.foreign,
                "capacity": count.capacity,
                "withheld": count.withheld,
            }
            for node in nodes
            for count in node.flavors
        ]
        which = {"nodes": sorted(ids.values())}
        stored = self._session.execute(sql.FLAVORS_BEFORE, which)
        before = {(row.node_id, row.flavor): (row.owned, row.capacity) for row in stored}
        after = {(row["node_id"], row["flavor"]): (row["owned"], row["capacity"]) for row in rows}
        values = {"rows": json.dumps(rows), "cluster": cluster}
        self._session.execute(sql.WRITE_FLAVORS, values)
        self._session.execute(sql.EMPTY_FLAVORS, {**which, "rows": values["rows"]})
        return any(after.get(key, (0, 0)) != before.get(key, (0, 0)) for key in before.keys() | after.keys())

    def _write_devices(
        self, cluster: ClusterId, nodes: Sequence[NodeWrite], ids: Mapping[str, NodeId]
    ) -> tuple[NodeId, ...]:
        """The nodes with a card that fell ill by this report."""
        homes = {str(device["device_key"]): ids[node.uid] for node in nodes for device in node.devices}
        rows = {
            str(device["device_key"]): {**device, "node_id": ids[node.uid]} for node in nodes for device in node.devices
        }
        which = sorted(ids.values())
        before = {row.device_key for row in self._session.execute(sql.ILL_DEVICES, {"nodes": which})}
        values = {"rows": json.dumps(list(rows.values())), "now": self._now}
        self._session.execute(sql.WRITE_DEVICES, {**values, "cluster": cluster})
        self._session.execute(sql.REMOVE_DEVICES, {**values, "nodes": which})
        ill = {key for key, row in rows.items() if row["health"] in {"unhealthy", "lost"}} - before
        return tuple(sorted({homes[key] for key in ill}))

    def _turned(self, node: NodeWrite, before: Line | None) -> object:
        """When its readiness changed: as told; untold as stored, or as of now where it was seen to change."""
        told, ready = node.row["ready_changed_at"], node.row["ready"]
        if told is not None or (ready and before is None):
            return told
        is_same = before is not None and before.ready == ready
        stored = before.ready_changed_at if before is not None and is_same else None
        if stored is None and ready and is_same:
            return None
        return (stored or self._now).isoformat()

    def _write_discrepancies(self, nodes: Sequence[NodeWrite], ids: Mapping[str, NodeId]) -> None:
        rows = {
            (ids[node.uid], str(told["code"])): {**told, "node_id": ids[node.uid]}
            for node in nodes
            for told in node.discrepancies
        }
        values = {"rows": json.dumps(list(rows.values())), "now": self._now}
        if rows:
            self._session.execute(sql.WRITE_DISCREPANCIES, values)
        self._session.execute(sql.END_DISCREPANCIES, {**values, "nodes": sorted(ids.values())})

    def _cluster(self, statement: TextClause, **values: object) -> ClusterFact | None:
        row = self._session.execute(statement, values).one_or_none()
        return None if row is None else cluster_fact(row)

    def _do(self, statement: TextClause, **values: object) -> None:
        self._session.execute(statement, values)


def _json(document: Document) -> str:
    return json.dumps(dict(document))


def _was_out(before: Line | None) -> bool:
    return before is None or not before.ready or before.lost_at is not None


_AMOUNTS = ("cpu_milli", "memory_bytes", "pods", "rdma", "hugepages_bytes", "local_storage_bytes")
_RULED_BY = ("domains", "labels", "taints")


def _amount(told: object) -> int:
    return told if isinstance(told, int) else 0


def _gives_room(before: Line, node: NodeWrite) -> bool:
    """Whether something may fit here now that did not before, although no device is new."""
    row = node.row
    is_opened = (before.cordoned and not row["cordoned"]) or (before.deleting and not row["deleting"])
    is_larger = any((getattr(before, name) or 0) < _amount(row[name]) for name in _AMOUNTS)
    return is_opened or is_larger or any(getattr(before, name) != row[name] for name in _RULED_BY)


def _cluster_row(change: ClusterChange) -> dict[str, object]:
    return {
        "id": change.id,
        "version": change.version,
        "state": change.state,
        "lost_at": None if change.lost_at is None else change.lost_at.isoformat(),
        "next_check_at": None if change.next_check_at is None else change.next_check_at.isoformat(),
    }


def cluster_fact(row: Line) -> ClusterFact:
    """A row of a statement that begins with `fleet_sql.CLUSTER_ROW`."""
    return ClusterFact(
        id=ClusterId(row.id),
        pool=PoolId(row.pool_id),
        name=row.name,
        state=ClusterState(row.state),
        fingerprint=row.fingerprint,
        spec=row.spec,
        levels=tuple(row.levels),
        namespaces=tuple(row.namespaces),
        inventory_digest=row.inventory_digest,
        inventory_revision=row.inventory_revision,
        inventory_at=row.inventory_at,
        last_heard_at=row.last_heard_at,
        lost_at=row.lost_at,
        version=row.version,
        cordon=cordon_of(row.cordon_reason, row),
        drain=Drain(row.drain_reason, row.drain_deadline_at, row.drain_by, row.then_remove)
        if row.drain_reason
        else None,
    )


def node_fact(row: Line) -> NodeFact:
    """A row of a statement that begins with `fleet_sql.NODE_ROW`."""
    return NodeFact(
        id=NodeId(row.id),
        cluster=ClusterId(row.cluster_id),
        cluster_state=ClusterState(row.cluster_state),
        pool=PoolId(row.pool_id),
        uid=row.uid,
        name=row.name,
        ready=row.ready,
        ready_changed_at=row.ready_changed_at,
        lost_at=row.lost_at,
        removed_at=row.removed_at,
        cordon=cordon_of(row.cordoned_by_us, row),
        cordon_version=row.cordon_version,
    )


def cordon_of(reason: str, row: Line) -> Cordon | None:
    """The cordon of a row, None where it has none."""
    return Cordon(reason, row.cordon_until, row.cordon_by) if reason else None
