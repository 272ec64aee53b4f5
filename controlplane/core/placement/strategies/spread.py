"""Emptiest first and evenly over domains: one failing box takes as few pods as possible with it."""

from collections.abc import Iterable

from controlplane.core.ids import FlavorName
from controlplane.core.index import SizeClass
from controlplane.core.placement.strategies.base import Part, Picks, Strategy


class Spread:
    """Limits the blast radius."""

    wants_few_domains = False
    sits_as_one = False

    def resolved(self, flavor: FlavorName, picks: Picks) -> Strategy:  # noqa: ARG002 - it stands for itself
        """Itself."""
        return self

    def search_order(self, asked: int, is_required: bool, finest: int) -> Iterable[int]:  # noqa: FBT001 - a fact, no switch
        """The asked level, then coarser ones; who asks for nothing is spread over the whole cluster."""
        if is_required:
            return (asked,)
        return range(asked, -2, -1) if asked < finest else (-1,)

    def choose(self, size_class: SizeClass, group: int, pods: int) -> int | None:
        """The emptiest, if it has the room."""
        domain = size_class.emptiest(group)
        return domain if domain is not None and size_class.count[domain] >= pods else None

    def ranked(self, size_class: SizeClass, group: int, pods: int) -> Iterable[int]:
        """The emptiest first."""
        for domain, count in size_class.by_room(group):
            if count < pods:
                return
            yield domain

    def split(self, size_class: SizeClass, domain: int, pods: int) -> list[Part]:
        """As even as room allows: no child gets a second pod while another with room has fewer."""
        children: list[Part] = []
        for part in size_class.by_room(domain):
            children.append(part)
            if len(children) == pods:
                break
        return [part for part in _even(children, pods) if part[1]]

    def harm(self, room: int, pods: int) -> int:
        """The emptier the place, the better."""
        return pods - room


def _even(children: list[Part], pods: int) -> list[Part]:
    """Fill like water: small children are full first, the others share what is left, the emptiest get one more."""
    given = [0] * len(children)
    rooms = sorted((count, -position) for position, (_, count) in enumerate(children))
    for index, (count, negative) in enumerate(rooms):
        given[-negative] = min(count, pods // (len(rooms) - index))
        pods -= given[-negative]
    return [(child, given[position]) for position, (child, _) in enumerate(children)]
