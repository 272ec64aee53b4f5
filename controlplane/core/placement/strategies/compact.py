"""All of it in the smallest domain that holds everything, and inside that on few hosts: short ways between pods.

Where `pack` takes the tightest domain of a level, whatever crumbs it is made of, this takes the one in which the
pods sit on the fewest hosts, also at the price of a larger hole.
"""

from collections.abc import Iterable
from itertools import islice

from controlplane.core.ids import FlavorName
from controlplane.core.index import SizeClass
from controlplane.core.placement.strategies.base import Part, Picks, Strategy, fill_largest

LOOKS_MAX = 8  # domains of a level whose hosts are counted: the tightest ones, and the emptiest


class Compact:
    """Keeps a gang together."""

    wants_few_domains = True
    sits_as_one = True

    def resolved(self, flavor: FlavorName, picks: Picks) -> Strategy:  # noqa: ARG002 - it stands for itself
        """Itself."""
        return self

    def search_order(self, asked: int, is_required: bool, finest: int) -> Iterable[int]:  # noqa: FBT001 - a fact, no switch
        """From single hosts upwards."""
        return range(finest, (asked if is_required else -1) - 1, -1)

    def choose(self, size_class: SizeClass, group: int, pods: int) -> int | None:
        """The one with the fewest hosts for them, the tightest of these."""
        return next(iter(self.ranked(size_class, group, pods)), None)

    def ranked(self, size_class: SizeClass, group: int, pods: int) -> Iterable[int]:
        """Those with the fewest hosts first, as far as they are looked at; the others tightest first."""
        tightest = size_class.holding(group, pods)
        looked = list(islice(tightest, LOOKS_MAX))
        if not looked or not size_class.mask[looked[0]]:  # hosts: one is as good as the other, and tight is better
            yield from looked
            yield from tightest
            return
        emptiest = size_class.emptiest(group)
        if emptiest is not None and emptiest not in looked:
            looked.append(emptiest)
        order = {domain: (self._hosts(size_class, domain, pods), place) for place, domain in enumerate(looked)}
        yield from sorted(looked, key=order.__getitem__)
        yield from (domain for domain in tightest if domain not in order)

    def split(self, size_class: SizeClass, domain: int, pods: int) -> list[Part]:
        """The fewest children."""
        return fill_largest(size_class, domain, pods)

    def harm(self, room: int, pods: int) -> int:
        """What is left over is a hole that got smaller."""
        return room - pods

    def _hosts(self, size_class: SizeClass, domain: int, pods: int) -> int:
        """How many hosts (of slices: their domains) would be used."""
        largest = size_class.emptiest(domain)
        if largest is None:
            return 1
        if not size_class.mask[largest]:
            return _first_so_many(size_class, domain, pods)
        return sum(self._hosts(size_class, child, count) for child, count in fill_largest(size_class, domain, pods))


def _first_so_many(size_class: SizeClass, domain: int, pods: int) -> int:
    """Of a domain's hosts, the largest first: how many hold so many pods."""
    if size_class.largest(domain) == 1:
        return pods
    hosts = 0
    for _, count in size_class.by_room(domain):
        hosts += 1
        pods -= count
        if pods <= 0:
            break
    return hosts
