"""Report-only rebalancing: how large a gang still fits, what is stranded, how uneven clusters are.

Nothing is moved and quota is not looked at: this is about the shape of what is free. A full pod is one
that takes all devices of the largest node of its Flavor in its cluster.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.core.ids import ClusterId, FlavorName
from controlplane.core.index import FleetIndex, PodSize
from controlplane.core.snapshot import Snapshot

GANG_SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class LargestGang:
    """The most full pods of a Flavor that one domain of a level takes now, and where that is."""

    flavor: FlavorName
    level: str
    cluster: str
    domain: str
    pods: int
    devices: int


@dataclass(frozen=True, slots=True)
class Stranded:
    """Free devices of a Flavor that gangs of `size` devices, each in one cluster, could not use."""

    flavor: FlavorName
    size: int
    free: int
    usable: int
    stranded: int


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Units of a Flavor in one cluster that are not free, in permille of those usable."""

    flavor: FlavorName
    cluster: str
    usable: int
    free: int
    permille: int


@dataclass(frozen=True, slots=True)
class RebalanceReport:
    """One pass over a Pool. `spread` is by Flavor: the most loaded cluster's permille less the least loaded one's."""

    largest: tuple[LargestGang, ...]
    stranded: tuple[Stranded, ...]
    utilisation: tuple[Utilisation, ...]
    spread: tuple[tuple[FlavorName, int], ...]

    def as_record(self) -> dict[str, object]:
        """As plain JSON."""
        return {
            "largest": [_as_dict(each) for each in self.largest],
            "stranded": [_as_dict(each) for each in self.stranded],
            "utilisation": [_as_dict(each) for each in self.utilisation],
            "spread": dict(self.spread),
        }


def measure(snapshot: Snapshot, index: FleetIndex | None = None) -> RebalanceReport:
    """Measure a Pool as it stands; an index that is given is only read."""
    index = index or FleetIndex(snapshot.clusters, snapshot.nodes)
    flavors = sorted({flavor for owned in index.owned.values() for flavor, amount in owned.items() if amount})
    full = _full_pods(snapshot)
    clusters = sorted(snapshot.clusters)
    used = [_utilisation(snapshot, index, flavor, cluster) for flavor in flavors for cluster in clusters]
    used = [each for each in used if each.usable]
    return RebalanceReport(
        largest=tuple(largest for flavor in flavors for largest in _largest(snapshot, index, flavor, full)),
        stranded=tuple(_stranded(snapshot, index, flavor, full, size) for flavor in flavors for size in GANG_SIZES),
        utilisation=tuple(used),
        spread=tuple((flavor, _spread(each.permille for each in used if each.flavor == flavor)) for flavor in flavors),
    )


def _full_pods(snapshot: Snapshot) -> dict[tuple[ClusterId, FlavorName], int]:
    """Devices of the largest node, by cluster and Flavor."""
    full: dict[tuple[ClusterId, FlavorName], int] = {}
    for node in snapshot.nodes.values():
        for flavor, owned in node.owned.items():
            key = node.cluster, flavor
            full[key] = max(full.get(key, 0), owned)
    return full


def _largest(
    snapshot: Snapshot, index: FleetIndex, flavor: FlavorName, full: dict[tuple[ClusterId, FlavorName], int]
) -> Iterable[LargestGang]:
    best: dict[str, LargestGang] = {}
    for cluster in sorted(snapshot.clusters):
        devices = full.get((cluster, flavor), 0)
        if not devices:
            continue
        size_class, name = index.size_class(PodSize(flavor, devices)), snapshot.clusters[cluster].name
        root = index.tree.root[cluster]
        found = {"cluster": (name, size_class.count[root])}
        for number, level in enumerate(index.tree.levels[cluster]):
            group = index.tree.group_of_level.get((cluster, number))
            domain = None if group is None else size_class.emptiest(group)
            found[level] = ("", 0) if domain is None else (index.tree.label[domain], size_class.count[domain])
        for level, (label, pods) in found.items():
            new = LargestGang(flavor, level, name, label, pods, pods * devices)
            if level not in best or new.devices > best[level].devices:
                best[level] = new
    return best.values()


def _stranded(
    snapshot: Snapshot,
    index: FleetIndex,
    flavor: FlavorName,
    full: dict[tuple[ClusterId, FlavorName], int],
    size: int,
) -> Stranded:
    free = usable = 0
    for cluster in sorted(snapshot.clusters):
        devices = full.get((cluster, flavor), 0)
        if not devices:
            continue
        root = index.tree.root[cluster]
        free += index.free_units(root, flavor)
        per_pod = min(devices, size)
        pods = index.size_class(PodSize(flavor, per_pod)).count[root]
        usable += pods // -(-size // per_pod) * size
    return Stranded(flavor, size, free, min(usable, free), max(0, free - usable))


def _utilisation(snapshot: Snapshot, index: FleetIndex, flavor: FlavorName, cluster: ClusterId) -> Utilisation:
    nodes = list(index.nodes_of(index.tree.root[cluster]))
    usable = sum(snapshot.nodes[index.tree.nodes[at].id].usable.get(flavor, 0) for at in nodes)
    free = sum(index.free_on(at, flavor) for at in nodes)
    permille = 1000 * (usable - free) // usable if usable else 0
    return Utilisation(flavor, snapshot.clusters[cluster].name, usable, free, permille)


def _spread(permilles: Iterable[int]) -> int:
    listed = list(permilles)
    return max(listed) - min(listed) if listed else 0


def _as_dict(value: LargestGang | Stranded | Utilisation) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__slots__}
