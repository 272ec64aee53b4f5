"""What a placement strategy decides: which domain of a level to take, and how to split pods below it.

A strategy sees counters only. Whether a Workload may be here at all was asked before (`filters`), and
that all of its PodSets fit or none is kept by `workload`. Where pods go in slices, the counters count slices.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from controlplane.core.demand import StrategyName
from controlplane.core.ids import FlavorName
from controlplane.core.index import SizeClass

Part = tuple[int, int]  # (domain, pods)
Picks = Mapping[FlavorName, StrategyName]


class Strategy(Protocol):
    """How free room is chosen among domains that all fit."""

    wants_few_domains: bool
    sits_as_one: bool  # whether all PodSets of a Workload go into the smallest domain that holds them together

    def resolved(self, flavor: FlavorName, picks: Picks) -> "Strategy":
        """The strategy that stands in for this one in a cycle: itself, unless it only picks among others."""
        ...

    def search_order(self, asked: int, is_required: bool, finest: int) -> Iterable[int]:  # noqa: FBT001 - a fact, no switch
        """Level indices to try, in order; WHOLE_CLUSTER = -1 may be the last. `asked` is one of them."""
        ...

    def choose(self, size_class: SizeClass, group: int, pods: int) -> int | None:
        """The domain of a group that shall hold `pods`; None if none can."""
        ...

    def ranked(self, size_class: SizeClass, group: int, pods: int) -> Iterable[int]:
        """All domains of a group that hold `pods`, the best first."""
        ...

    def split(self, size_class: SizeClass, domain: int, pods: int) -> list[Part]:
        """Pods for each child of `domain`, which holds them all."""
        ...

    def harm(self, room: int, pods: int) -> int:
        """How much it hurts to take `pods` out of a domain with that much room; less is better."""
        ...


def fill_largest(size_class: SizeClass, domain: int, pods: int) -> list[Part]:
    """Split over the fewest children: fill the largest, then put the rest where it fits most tightly."""
    parts: list[Part] = []
    filled: set[int] = set()
    for child, count in size_class.by_room(domain):
        if count >= pods:
            tight = size_class.smallest_holding(domain, pods)
            # All with more room than `tight` are filled by now, so `child` is the next one as tight.
            parts.append((child if tight is None or tight in filled else tight, pods))
            return parts
        parts.append((child, count))
        filled.add(child)
        pods -= count
    raise AssertionError("a domain holds fewer pods than it counts")
