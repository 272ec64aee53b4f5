"""What is out of planning, which cluster is emptied, and what lives in one: fulfils `services.ports.cordons`."""

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, TextClause
from sqlalchemy.orm import Session

from controlplane.core.facts.fleet import (
    Card,
    ClusterFact,
    Cordon,
    DeviceFact,
    Drain,
    FlavorCount,
    NodeFact,
    QueueLoad,
    ToldResource,
)
from controlplane.core.facts.ledger import AttemptKey
from controlplane.core.ids import AttemptNumber, ClusterId, FlavorName, NodeId, PoolId, WorkloadId
from controlplane.core.lifecycle import AttemptState
from controlplane.db.stores import cordons_sql as sql
from controlplane.db.stores import fleet_sql
from controlplane.db.stores.fleet import cluster_fact, cordon_of, node_fact
from controlplane.db.stores.planning import POOL_LOCK_CLASS

Line = Row[Any]


class CordonStore:
    """`uow.cordons`."""

    def __init__(self, session: Session, now: datetime) -> None:
        self._session = session
        self._now = now

    def hold_planning(self, pool: PoolId) -> None:
        self._do(sql.HOLD_PLANNING, **{"class": POOL_LOCK_CLASS, "pool": pool})

    def cordon_cluster(self, cluster: ClusterId, cordon: Cordon | None) -> None:
        self._do(sql.CORDON_CLUSTER, cluster=cluster, **_columns(cordon))

    def drain_cluster(self, cluster: ClusterId, drain: Drain | None) -> None:
        self._do(
            sql.DRAIN_CLUSTER,
            cluster=cluster,
            reason="" if drain is None else drain.reason,
            deadline=None if drain is None else drain.deadline_at,
            by="" if drain is None else drain.by,
            remove=drain is not None and drain.then_remove,
        )

    def node(self, node: NodeId) -> NodeFact | None:
        row = self._session.execute(sql.NODE, {"node": node}).one_or_none()
        return None if row is None else node_fact(row)

    def node_named(self, cluster: ClusterId, name: str) -> NodeFact | None:
        row = self._session.execute(sql.NODE_NAMED, {"cluster": cluster, "name": name}).one_or_none()
        return None if row is None else node_fact(row)

    def cordon_node(self, node: NodeId, cordon: Cordon | None) -> NodeFact | None:
        self._do(sql.CORDON_NODE, node=node, **_columns(cordon))
        return self.node(node)

    def device(self, device: int) -> DeviceFact | None:
        row = self._session.execute(sql.DEVICE, {"device": device}).one_or_none()
        return None if row is None else _device(row)

    def cordon_device(self, device: int, cordon: Cordon | None) -> None:
        self._do(sql.CORDON_DEVICE, device=device, **_columns(cordon))

    def cordoned_devices(self, cluster: ClusterId) -> frozenset[str]:
        return frozenset(self._session.scalars(sql.CORDONED_DEVICES, {"cluster": cluster}))

    def cards(self, node: NodeId) -> tuple[Sequence[ToldResource], Sequence[Card]]:
        counters = self._session.execute(sql.LOCK_COUNTERS, {"node": node}).all()
        stored = self._session.execute(sql.LOCK_NODE, {"node": node}).scalar_one()
        if not stored:
            stored = _as_they_add_up(counters)
            self._do(sql.SET_RESOURCES, node=node, resources=json.dumps(stored))
        told = [ToldResource(each["resource"], each["allocatable"], each["foreign"]) for each in stored]
        by_flavor = {row.flavor: row.resource for row in counters}
        cards = [_card(row, by_flavor) for row in self._session.execute(sql.CARDS, {"node": node})]
        return told, cards

    def write_counts(self, cluster: ClusterId, node: NodeId, counts: Sequence[FlavorCount]) -> None:
        rows = [
            {
                "node_id": node,
                "flavor": count.flavor,
                "resource": count.resource,
                "owned": count.owned,
                "allocatable": count.allocatable,
                "foreign_held": count.foreign,
                "capacity": count.capacity,
                "withheld": count.withheld,
            }
            for count in counts
        ]
        self._do(fleet_sql.WRITE_FLAVORS, rows=json.dumps(rows), cluster=cluster)

    def ended_clusters(self, limit: int) -> list[ClusterId]:
        found = self._session.scalars(sql.ENDED_CLUSTERS, {"now": self._now, "limit": limit})
        return [ClusterId(one) for one in found]

    def ended_nodes(self, limit: int) -> list[NodeFact]:
        rows = self._session.execute(sql.ENDED_NODES, {"now": self._now, "limit": limit})
        return [node_fact(row) for row in rows]

    def ended_devices(self, limit: int) -> list[DeviceFact]:
        rows = self._session.execute(sql.ENDED_DEVICES, {"now": self._now, "limit": limit})
        return [_device(row) for row in rows]

    def draining(self, limit: int) -> list[ClusterId]:
        return [ClusterId(one) for one in self._session.scalars(sql.DRAINING, {"limit": limit})]

    def lock_if_free(self, cluster: ClusterId) -> ClusterFact | None:
        row = self._session.execute(sql.LOCK_IF_FREE, {"cluster": cluster}).one_or_none()
        return None if row is None else cluster_fact(row)

    def live_in(
        self, cluster: ClusterId, states: Collection[AttemptState], limit: int | None = None
    ) -> list[AttemptKey]:
        rows = self._session.execute(sql.LIVE_IN, {"cluster": cluster, "states": sorted(states), "limit": limit})
        return [AttemptKey(WorkloadId(row.workload), AttemptNumber(row.attempt)) for row in rows]

    def load(self, cluster: ClusterId) -> list[QueueLoad]:
        rows = self._session.execute(sql.LOAD, {"cluster": cluster})
        return [QueueLoad(row.path, int(row.attempts), int(row.devices)) for row in rows]

    def end_earmarks(self, cluster: ClusterId) -> None:
        self._do(sql.END_EARMARKS, cluster=cluster, now=self._now)

    def nodes_of(self, cluster: ClusterId) -> list[NodeId]:
        return [NodeId(one) for one in self._session.scalars(sql.NODES_OF, {"cluster": cluster})]

    def has_agent(self, cluster: ClusterId) -> bool:
        return bool(self._session.scalar(sql.HAS_AGENT, {"cluster": cluster}))

    def remove(self, cluster: ClusterId) -> None:
        self._do(sql.REMOVE, cluster=cluster, now=self._now)

    def _do(self, statement: TextClause, **values: object) -> None:
        self._session.execute(statement, values)


def _columns(cordon: Cordon | None) -> dict[str, object]:
    if cordon is None:
        return {"reason": "", "until": None, "by": ""}
    return {"reason": cordon.reason, "until": cordon.until, "by": cordon.by}


def _device(row: Line) -> DeviceFact:
    return DeviceFact(
        id=row.id,
        cluster=ClusterId(row.cluster_id),
        cluster_name=row.cluster_name,
        pool=PoolId(row.pool_id),
        node=NodeId(row.node_id),
        node_name=row.node_name,
        device_key=row.device_key,
        cordon=cordon_of(row.cordon_reason, row),
        cordon_version=row.cordon_version,
    )


def _card(row: Line, resource_of: dict[str, str]) -> Card:
    return Card(
        device_key=row.device_key,
        flavor=FlavorName(row.flavor),
        resource=row.resource or resource_of.get(row.flavor, ""),
        parent_key=row.parent_key,
        slots_total=row.slots_total,
        slots_allocatable=row.slots_allocatable,
        health=row.health,
        is_cordoned=row.is_cordoned,
    )


def _as_they_add_up(counters: Sequence[Line]) -> list[dict[str, Any]]:
    """What the node must have told, for rows of the release before, which did not keep it."""
    sums: dict[str, dict[str, int]] = defaultdict(lambda: {"allocatable": 0, "foreign": 0})
    for row in counters:
        sums[row.resource]["allocatable"] += row.allocatable + row.withheld
        sums[row.resource]["foreign"] += row.foreign_held
    return [{"resource": name, **amounts} for name, amounts in sorted(sums.items())]
