"""How many pods of one PodSet fit where, as its strategy sees it: single pods, or whole slices of them."""

from collections.abc import Iterable

from controlplane.core.ids import FlavorName
from controlplane.core.index import FleetIndex, SizeClass
from controlplane.core.placement.strategies.base import Part, Strategy


class Counters:
    """The counters of one pod size under one strategy. All amounts are pods."""

    __slots__ = ("flavor", "pods", "strategy", "tree")

    def __init__(self, index: FleetIndex, strategy: Strategy, pods: SizeClass) -> None:
        self.tree = index.tree
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
