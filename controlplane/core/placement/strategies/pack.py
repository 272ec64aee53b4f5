"""Fullest first: the smallest domain that holds the gang, tightly, so that large holes stay large.

Where no single child holds the rest, the largest children are filled up and the last one is chosen
tightly: the fewest domains (as Kueue's best fit does).
"""

from collections.abc import Iterable

from controlplane.core.index import SizeClass
from controlplane.core.placement.strategies.base import Part


class Pack:
    """Keeps large holes for large gangs."""

    wants_few_domains = True

    def search_order(self, asked: int, is_required: bool, finest: int) -> Iterable[int]:  # noqa: FBT001 - a fact, no switch
        """From single hosts upwards: what fits into a finer domain is inside the asked one, too."""
        return range(finest, (asked if is_required else -1) - 1, -1)

    def choose(self, size_class: SizeClass, group: int, pods: int) -> int | None:
        """The tightest."""
        return size_class.smallest_holding(group, pods)

    def split(self, size_class: SizeClass, domain: int, pods: int) -> list[Part]:
        """Fill the largest children, then put the rest where it fits most tightly."""
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

    def harm(self, room: int, pods: int) -> int:
        """What is left over is a hole that got smaller."""
        return room - pods
