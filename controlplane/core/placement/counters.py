"""How many pods of one PodSet fit where, as its strategy sees it: single pods, or whole slices of them."""

from collections.abc import Iterable, Mapping, Sequence

from controlplane.core.demand import PodSet
from controlplane.core.ids import ClusterId, FlavorName
from controlplane.core.index import FleetIndex, SizeClass
from controlplane.core.placement.strategies.base import Part, Strategy
from controlplane.core.topology import TopologyTree


class Counters:
    """The counters of one pod size under one strategy. All amounts are pods."""

    __slots__ = ("flavor", "pods", "strategy", "tree")

    def __init__(self, tree: TopologyTree, strategy: Strategy, pods: SizeClass) -> None:
        self.tree = tree
        self.strategy = strategy
        self.pods = pods
        self.flavor: FlavorName = pods.size.flavor

    def room(self, domain: int) -> int:
        """How many fit into a domain."""
        return self.pods.count[domain]

    def choose(self, group: int, level: int, pods: int) -> int | None:  # noqa: ARG002 - slices ask for the level
        """The domain of a group, all of one level, that shall hold so many; None if none can."""
        return self.strategy.choose(self.pods, group, pods)

    def ranked(self, group: int, level: int, pods: int) -> Iterable[int]:  # noqa: ARG002 - slices ask for the level
        """All domains of a group, all of one level, that hold so many, the best first."""
        return self.strategy.ranked(self.pods, group, pods)

    def split(self, domain: int, pods: int) -> list[Part]:
        """Pods for each child of a domain, which holds them all."""
        return self.strategy.split(self.pods, domain, pods)


class SliceClass(SizeClass):
    """Counters of whole slices: how many fit per domain of their level, above it their sums, below it nothing."""

    __slots__ = ("_level", "_pods", "_size")

    def __init__(self, tree: TopologyTree, pods: SizeClass, size: int, level: Mapping[ClusterId, int]) -> None:
        """`level` is the index of the slices' level in each cluster that has it."""
        super().__init__(pods.size, tree)
        self.source = self._pods = pods
        self._size, self._level = size, level
        self.follow([node for node in range(len(tree.nodes)) if pods.count[node]])

    def follow(self, nodes: Sequence[int]) -> None:
        """Count the slices anew in the domains of these nodes."""
        tree, count, size = self._tree, self._pods.count, self._size
        domains: dict[int, None] = {}
        for node in nodes:
            level = self._level.get(tree.cluster_of[node])
            if level is not None:
                domains[tree.ancestor(node, level)] = None
        self.update([(domain, count[domain] // size) for domain in domains])


class SlicedCounters(Counters):
    """The same for a PodSet in slices: from their level upwards whole slices count, below it single pods.

    Amounts are multiples of a slice, save inside one slice's domain.
    """

    __slots__ = ("_level", "_size", "_slices")

    def __init__(self, tree: TopologyTree, strategy: Strategy, pods: SizeClass, pod_set: PodSet, level: int) -> None:
        super().__init__(tree, strategy, pods)
        self._size, self._level = pod_set.slice_size, level
        key = pod_set.slice_size, pod_set.slice_level
        slices = pods.followers.get(key)
        if slices is None:
            found = {cluster: tree.level_index(cluster, pod_set.slice_level) for cluster in tree.levels}
            known = {cluster: at for cluster, at in found.items() if at is not None}
            slices = pods.followers[key] = SliceClass(tree, pods, pod_set.slice_size, known)
        assert isinstance(slices, SliceClass)
        slices.is_used = True
        self._slices = slices

    def room(self, domain: int) -> int:
        """How many fit into a domain in whole slices; inside a slice's domain, how many fit."""
        if self.tree.level[domain] > self._level:
            return self.pods.count[domain]
        return self._slices.count[domain] * self._size

    def choose(self, group: int, level: int, pods: int) -> int | None:
        """The domain of a group that shall hold so many; None if none can."""
        if level > self._level:
            return self.strategy.choose(self.pods, group, pods)
        return self.strategy.choose(self._slices, group, pods // self._size)

    def ranked(self, group: int, level: int, pods: int) -> Iterable[int]:
        """All domains of a group that hold so many, the best first."""
        if level > self._level:
            return self.strategy.ranked(self.pods, group, pods)
        return self.strategy.ranked(self._slices, group, pods // self._size)

    def split(self, domain: int, pods: int) -> list[Part]:
        """Pods for each child of a domain: whole slices down to their level."""
        if self.tree.level[domain] >= self._level:
            return self.strategy.split(self.pods, domain, pods)
        parts = self.strategy.split(self._slices, domain, pods // self._size)
        return [(child, count * self._size) for child, count in parts]


def counters_of(
    index: FleetIndex, strategy: Strategy, pod_set: PodSet, size_class: SizeClass, cluster: ClusterId
) -> Counters | None:
    """The counters for a PodSet in a cluster; None if it has no such level as the slices need."""
    if not pod_set.slice_size:
        return Counters(index.tree, strategy, size_class)
    level = index.tree.level_index(cluster, pod_set.slice_level)
    return None if level is None else SlicedCounters(index.tree, strategy, size_class, pod_set, level)
