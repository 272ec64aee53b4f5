"""The fleet's topology as numbers: which domain contains which, and where each stands in its group.

Fixed for as long as the set of Nodes and their labels is; what is free on them changes in
`index`. A Node without a label at some level is a domain of its own there.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from controlplane.core.capacity import Cluster, Node
from controlplane.core.ids import ClusterId, NodeId

_DIGITS = re.compile(r"(\d+)")
NaturalKey = tuple[tuple[int, int, str], ...]

WHOLE_CLUSTER = -1  # the level of a cluster's own domain


@lru_cache(maxsize=65_536)  # a fleet is numbered anew for each what-if that adds nodes
def natural(text: str) -> NaturalKey:
    """A key that sorts rack-2 before rack-10, so that ranks follow the numbering of the fabric."""
    parts = _DIGITS.split(text)
    return tuple((0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts if part)


class TopologyTree:
    """Domains numbered in fabric order: Nodes are 0..n-1, coarser domains follow.

    A group is a set of domains searched together: the children of one domain, or all domains of one
    level in one cluster. `bit_below` and `bit_level` are a domain's bit in these two groups.
    """

    def __init__(self, clusters: Mapping[ClusterId, Cluster], nodes: Iterable[Node]) -> None:
        placed = [node for node in nodes if node.cluster in clusters]
        self.nodes: tuple[Node, ...] = tuple(sorted(placed, key=lambda node: _fabric_order(clusters, node)))
        count = len(self.nodes)
        self.position: Mapping[NodeId, int] = {node.id: index for index, node in enumerate(self.nodes)}
        self.levels: Mapping[ClusterId, tuple[str, ...]] = {
            cluster.id: cluster.levels or ("host",) for cluster in clusters.values()
        }
        self.parent: list[int] = [-1] * count
        self.level: list[int] = [0] * count
        self.label: list[str] = [node.name for node in self.nodes]
        self.cluster_of: list[ClusterId] = [node.cluster for node in self.nodes]
        self.root: dict[ClusterId, int] = {}
        self._number: dict[tuple[int, str], int] = {}
        for cluster in sorted(clusters):
            self.root[cluster] = self._new_domain(-1, WHOLE_CLUSTER, clusters[cluster].name, cluster)
        for index, node in enumerate(self.nodes):
            self._hang(index, node)
        self._group()

    @property
    def domains(self) -> int:
        """How many domains there are, Nodes included."""
        return len(self.parent)

    def level_index(self, cluster: ClusterId, level: str) -> int | None:
        """Where a level stands in a cluster's levels, coarse to fine; None if it has no such level."""
        levels = self.levels[cluster]
        return levels.index(level) if level in levels else None

    def ancestor(self, domain: int, level: int) -> int:
        """The domain at `level` (an index, or WHOLE_CLUSTER) that contains `domain`."""
        while self.level[domain] > level:
            domain = self.parent[domain]
        return domain

    def same_shape(
        self,
        clusters: Mapping[ClusterId, Cluster],
        nodes: Mapping[NodeId, Node],
        touched: Collection[NodeId] | None = None,
    ) -> bool:
        """Whether these Nodes would be numbered and grouped as they are here; only the `touched` may differ."""
        if clusters.keys() != self.root.keys():
            return False
        if any((cluster.levels or ("host",)) != self.levels[cluster.id] for cluster in clusters.values()):
            return False
        if touched is None:
            touched = self.position.keys() | nodes.keys()
        return all(self._stands_as_before(nodes.get(node), self.position.get(node)) for node in touched)

    def _stands_as_before(self, now: Node | None, position: int | None) -> bool:
        if now is None or now.cluster not in self.root:
            return position is None
        if position is None:
            return False
        node = self.nodes[position]
        return now is node or (now.cluster, now.name, now.domains) == (node.cluster, node.name, node.domains)

    def _new_domain(self, parent: int, level: int, label: str, cluster: ClusterId) -> int:
        self.parent.append(parent)
        self.level.append(level)
        self.label.append(label)
        self.cluster_of.append(cluster)
        return len(self.parent) - 1

    def _hang(self, index: int, node: Node) -> None:
        """Give a Node its chain of domains, making those that are not there yet."""
        above = self.root[node.cluster]
        levels = self.levels[node.cluster]
        for level in range(len(levels) - 1):
            label = node.domains[level] if level < len(node.domains) else ""
            key = (above, label or f"\0{node.id}")
            if key not in self._number:
                self._number[key] = self._new_domain(above, level, label or node.name, node.cluster)
            above = self._number[key]
        self.parent[index] = above
        self.level[index] = len(levels) - 1

    def _group(self) -> None:
        """Number the groups. A level right below a cluster is the same group as the cluster's children."""
        count = self.domains
        self.members: list[list[int]] = [[] for _ in range(count)]
        self.group_of_level: dict[tuple[ClusterId, int], int] = {}
        self.level_group: list[int] = [-1] * count
        self.bit_below: list[int] = [0] * count
        self.bit_level: list[int] = [0] * count
        for domain in range(count):
            parent = self.parent[domain]
            if parent < 0:
                continue
            self.bit_below[domain] = 1 << len(self.members[parent])
            self.members[parent].append(domain)
            if self.level[domain] == 0:
                self.group_of_level[self.cluster_of[domain], 0] = parent
        for domain in range(count):
            if self.level[domain] > 0:
                self._join_level(domain)

    def _join_level(self, domain: int) -> None:
        key = (self.cluster_of[domain], self.level[domain])
        if key not in self.group_of_level:
            self.group_of_level[key] = len(self.members)
            self.members.append([])
        group = self.group_of_level[key]
        self.level_group[domain] = group
        self.bit_level[domain] = 1 << len(self.members[group])
        self.members[group].append(domain)


FabricOrder = tuple[int, tuple[NaturalKey, ...], NaturalKey, int]


def _fabric_order(clusters: Mapping[ClusterId, Cluster], node: Node) -> FabricOrder:
    coarse = node.domains[: max(0, len(clusters[node.cluster].levels) - 1)]
    return node.cluster, tuple(natural(label) for label in coarse), natural(node.name), node.id
