"""Cluster documents as the fleet that agents would have reported: nodes in groups, their boxes, what is on them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from controlplane.contract.rest.fleet import WorldNodes
from controlplane.contract.rest.worlds import WorldCluster
from controlplane.core.capacity import Cluster, Node, Taint
from controlplane.core.demand import LEVEL_HOST
from controlplane.core.ids import ClusterId, FlavorName, NodeId
from controlplane.core.lifecycle import ClusterState
from controlplane.services.podspec import VENDORS
from controlplane.worlds.reading import Member, Mistakes

NODES_MAX = 200_000
_EVERY_NODE = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}


@dataclass(slots=True)
class Fleet:
    """Every Cluster and Node of a world, and which Pool plans them."""

    clusters: dict[str, Cluster] = field(default_factory=dict)
    pools: dict[str, str] = field(default_factory=dict)  # by Cluster
    nodes: dict[tuple[str, str], Node] = field(default_factory=dict)  # by Cluster and name

    def owned(self) -> dict[str, dict[str, int]]:
        """Units of each Flavor that each enrolled Cluster owns: by Flavor, then by Cluster."""
        totals: dict[str, dict[str, int]] = {}
        for (cluster, _), node in self.nodes.items():
            if self.clusters[cluster].state is not ClusterState.CREATED:
                for flavor, units in node.owned.items():
                    of = totals.setdefault(flavor, {})
                    of[cluster] = of.get(cluster, 0) + units
        return totals


def fleet_from(members: Iterable[Member], namespaces: Iterable[str], now: datetime, mistakes: Mistakes) -> Fleet:
    """The fleet at this moment; what is wrong with it goes to `mistakes`.

    `namespaces` are those that a Cluster has which names none itself.
    """
    fleet, usual = Fleet(), frozenset(namespaces)
    found: dict[str, tuple[Member, WorldCluster]] = {}
    for member in members:
        if isinstance(member.document, WorldCluster):
            name = member.document.metadata.name
            if name in found:
                mistakes.add(member, "/metadata/name", f"Cluster {name} stands there twice")
            found[name] = member, member.document
    for number, (name, (member, document)) in enumerate(sorted(found.items()), start=1):
        levels = _levels(member, document.spec.nodes or (), mistakes)
        given = document.spec.namespaces
        cluster = _cluster(ClusterId(number), document, levels, now, usual if given is None else frozenset(given))
        fleet.clusters[name] = cluster
        fleet.pools[name] = document.spec.pool
        _add_nodes(fleet, member, cluster, document.spec.nodes or (), mistakes)
    return fleet


def _cluster(
    number: ClusterId, document: WorldCluster, levels: tuple[str, ...], now: datetime, namespaces: frozenset[str]
) -> Cluster:
    spec = document.spec
    return Cluster(
        id=number,
        name=document.metadata.name,
        state=ClusterState(spec.state),
        levels=levels,
        labels=tuple(sorted(document.metadata.labels.items())),
        namespaces=namespaces,
        inventory_at=now - timedelta(seconds=spec.inventory_age or 0),
        cordon=spec.cordon,
        drain=spec.drain,
        network_domain=spec.network_domain or "",
        member_address=spec.member_address or "",
        facts=frozenset(spec.facts.named()),
    )


def _levels(member: Member, groups: Sequence[WorldNodes], mistakes: Mistakes) -> tuple[str, ...]:
    """The levels of all groups, coarse to fine, in an order that contradicts none of them; `host` last."""
    levels: list[str] = []
    for number, group in enumerate(groups):
        at = 0
        for place, each in enumerate(group.topology):
            pointer = f"/spec/nodes/{number}/topology/{place}/level"
            if each.level == LEVEL_HOST:
                mistakes.add(member, pointer, f"{LEVEL_HOST} is always there, as the finest level")
            elif each.level not in levels:
                levels.insert(at, each.level)
            elif levels.index(each.level) < at:
                mistakes.add(
                    member, pointer, f"{each.level} is coarser elsewhere in this Cluster, or stands here twice"
                )
            at = levels.index(each.level) + 1 if each.level in levels else at
    return (*levels, LEVEL_HOST)


def _add_nodes(
    fleet: Fleet, member: Member, cluster: Cluster, groups: Sequence[WorldNodes], mistakes: Mistakes
) -> None:
    for number, group in enumerate(groups):
        stem = group.name or (cluster.name if len(groups) == 1 else f"{cluster.name}-{number}")
        if len(fleet.nodes) + group.count > NODES_MAX:
            mistakes.add(member, f"/spec/nodes/{number}/count", f"a world has at most {NODES_MAX} nodes in all")
            return
        if (cluster.name, f"{stem}-0") in fleet.nodes:
            mistakes.add(member, f"/spec/nodes/{number}/name", f"two groups of nodes are named {stem}")
            continue
        equal = _node(cluster, group)
        for index in range(group.count):
            name = f"{stem}-{index}"
            box = {each.level: f"{each.level}-{number}-{index // each.of}" for each in group.topology}
            fleet.nodes[cluster.name, name] = replace(
                equal,
                id=NodeId(len(fleet.nodes) + 1),
                name=name,
                domains=tuple(name if level == LEVEL_HOST else box.get(level, "") for level in cluster.levels),
                labels={"kubernetes.io/hostname": name, **_EVERY_NODE, **group.labels},
            )


def _node(cluster: Cluster, group: WorldNodes) -> Node:
    """What all nodes of a group have in common."""
    units = {} if group.devices is None else {FlavorName(group.devices.flavor): group.devices.count}
    taints = (Taint(each.key, each.value, each.effect, _asks_for(each.key, units)) for each in group.taints)
    return Node(
        id=NodeId(0),
        cluster=cluster.id,
        name="",
        domains=(),
        is_schedulable=not group.cordon,
        owned=units,
        usable=units,
        held={},
        cpu_milli=group.cpu,
        memory_bytes=group.memory,
        cpu_milli_held=0,
        memory_bytes_held=0,
        cordon=group.cordon,
        is_cordoned=bool(group.cordon),
        taints=tuple(taints),
        pods=group.pods,
        rdma=group.rdma,
        hugepages_bytes=group.hugepages,
        local_storage_bytes=group.local_storage,
    )


def _asks_for(key: str, units: Mapping[FlavorName, int]) -> bool:
    """Whether a taint's key is the resource by which these devices are asked for."""
    vendor = next((vendor for prefix, vendor in VENDORS.items() if key.startswith(prefix)), None)
    return vendor is not None and any(flavor.startswith(f"{vendor}-") for flavor in units)
