"""Reads the Nodes of a Pool's world, for `snapshot_reader`: whole where more changed than what is held there."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from controlplane.core.capacity import Node, Taint
from controlplane.core.facts.planning import Change, Held, Table
from controlplane.core.ids import ClusterId, FlavorName, NodeId
from controlplane.db.arrays import plain
from controlplane.db.planning_sql import HELD, HELD_PODS, NODE_FLAVORS, NODES

SqlRow = Row[Any]
UNTOLD = 2**62  # what an agent of an older version does not tell is not what is short


def nodes(session: Session, bound: Mapping[str, object]) -> Iterator[Change]:
    """Those of which more changed than what is held, whole."""
    rows = session.execute(NODES, bound).all()
    flavors: dict[int, list[SqlRow]] = defaultdict(list)
    pods: dict[int, int] = {}
    if rows:
        which = {"nodes": plain(row.id for row in rows)}
        for flavor in session.execute(NODE_FLAVORS, which):
            flavors[flavor.node_id].append(flavor)
        pods = {row.node_id: row.pods for row in session.execute(HELD_PODS, which)}
    for row in rows:
        value = None if row.removed_at else _node(row, flavors[row.id], pods.get(row.id, 0))
        yield Change(Table.NODES, row.id, value)


def held(session: Session, bound: Mapping[str, object]) -> Iterator[Change]:
    """Counters of nodes; those of a node that came whole are told twice, and change nothing the second time."""
    rows = session.execute(HELD, bound).all()
    for node, listed in groupby(rows, key=itemgetter(0)):
        counters = list(listed)
        units = tuple([(FlavorName(each[1]), each[2]) for each in counters if each[1] is not None])
        yield Change(Table.HELD, node, Held(units, *counters[0][3:]))


def told(amount: int | None) -> int:
    """An amount that the node's agent may not tell."""
    return UNTOLD if amount is None else amount


def known_json(text: str) -> Any:  # noqa: ANN401 - JSON as stored; callers know its shape and do not change it
    """Thousands of rows say the same few texts."""
    return _loaded(text)


_loaded = lru_cache(maxsize=50_000)(json.loads)


def _node(row: SqlRow, flavors: Sequence[SqlRow], pods: int) -> Node:
    is_well = row.ready and not row.cordoned and not row.deleting and row.lost_at is None
    withheld = {FlavorName(one.flavor): one.withheld for one in flavors if one.withheld}
    resources = {one.resource for one in flavors}
    return Node(
        id=NodeId(row.id),
        cluster=ClusterId(row.cluster_id),
        name=row.name,
        domains=_domains(row.name, row.levels, row.domains),
        is_schedulable=is_well and not row.cordoned_by_us,
        owned={FlavorName(one.flavor): one.owned for one in flavors},
        usable={FlavorName(one.flavor): one.capacity for one in flavors},
        held={FlavorName(one.flavor): one.held for one in flavors},
        cpu_milli=row.cpu_milli,
        memory_bytes=row.memory_bytes,
        cpu_milli_held=row.cpu_milli_held,
        memory_bytes_held=row.memory_bytes_held,
        cordon=row.cordoned_by_us or (row.device_cordon or "" if withheld else ""),
        is_cordoned=is_well and bool(row.cordoned_by_us),
        withheld=withheld,
        labels=row.labels,
        taints=tuple(_taint(each, resources) for each in row.taints),
        pods=row.pods,
        pods_held=pods,
        rdma=told(row.rdma),
        rdma_held=row.rdma_held,
        hugepages_bytes=told(row.hugepages_bytes),
        hugepages_bytes_held=row.hugepages_bytes_held,
        local_storage_bytes=told(row.local_storage_bytes),
        local_storage_bytes_held=row.local_storage_bytes_held,
    )


def _taint(told: Mapping[str, str], resources: set[str]) -> Taint:
    key = told.get("key", "")
    return Taint(key, told.get("value", ""), told.get("effect", ""), is_for_devices=key in resources)


def _domains(name: str, levels: str, domains: str) -> tuple[str, ...]:
    boxes = known_json(domains)
    return tuple(name if level == "host" else boxes.get(level, "") for level in known_json(levels))
