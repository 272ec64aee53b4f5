"""Fullest first: the smallest domain that holds the gang, tightly, so that large holes stay large.

Where no single child holds the rest, the largest children are filled up and the last one is chosen
tightly: the fewest domains (as Kueue's best fit does).
"""

from collections.abc import Iterable

from controlplane.core.ids import FlavorName
from controlplane.core.index import SizeClass
from controlplane.core.placement.strategies.base import Part, Picks, Strategy, fill_largest


class Pack:
    """Keeps large holes for large gangs."""

    wants_few_domains = True
    sits_as_one = False

    def resolved(self, flavor: FlavorName, picks: Picks) -> Strategy:  # noqa: ARG002 - it stands for itself
        """Itself."""
        return self

    def search_order(self, asked: int, is_required: bool, finest: int) -> Iterable[int]:  # noqa: FBT001 - a fact, no switch
        """From single hosts upwards: what fits into a finer domain is inside the asked one, too."""
        return range(finest, (asked if is_required else -1) - 1, -1)

    def choose(self, size_class: SizeClass, group: int, pods: int) -> int | None:
        """The tightest."""
        return size_class.smallest_holding(group, pods)

    def ranked(self, size_class: SizeClass, group: int, pods: int) -> Iterable[int]:
        """The tightest first."""
        return size_class.holding(group, pods)

    def split(self, size_class: SizeClass, domain: int, pods: int) -> list[Part]:
        """Fill the largest children, then put the rest where it fits most tightly."""
        return fill_largest(size_class, domain, pods)

    def harm(self, room: int, pods: int) -> int:
        """What is left over is a hole that got smaller."""
        return room - pods
