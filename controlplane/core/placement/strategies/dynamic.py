"""One of the other strategies for each Flavor, picked once per cycle by how full the Pool is and by what waits.

While much is free and only small work waits, spreading limits what one failing box takes with it. As it fills up,
gangs are kept together; and when it is nearly full, or large gangs wait, large holes are what is scarce.
"""

from collections.abc import Iterable, Mapping

from controlplane.core.demand import StrategyName
from controlplane.core.ids import FlavorName
from controlplane.core.index import SizeClass
from controlplane.core.placement.strategies.base import Part, Picks, Strategy


class Dynamic:
    """What it does for a Flavor that nothing was picked for is what its `usual` strategy does."""

    def __init__(self, others: Mapping[StrategyName, Strategy], usual: StrategyName) -> None:
        """`others` may be picked by name; `usual` is one of them."""
        self._others = others
        self._usual = others[usual]
        self.wants_few_domains = self._usual.wants_few_domains
        self.sits_as_one = self._usual.sits_as_one

    def resolved(self, flavor: FlavorName, picks: Picks) -> Strategy:
        """What was picked for this Flavor."""
        name = picks.get(flavor)
        return self._usual if name is None else self._others[name]

    def search_order(self, asked: int, is_required: bool, finest: int) -> Iterable[int]:  # noqa: FBT001 - a fact, no switch
        """As usual."""
        return self._usual.search_order(asked, is_required, finest)

    def choose(self, size_class: SizeClass, group: int, pods: int) -> int | None:
        """As usual."""
        return self._usual.choose(size_class, group, pods)

    def ranked(self, size_class: SizeClass, group: int, pods: int) -> Iterable[int]:
        """As usual."""
        return self._usual.ranked(size_class, group, pods)

    def split(self, size_class: SizeClass, domain: int, pods: int) -> list[Part]:
        """As usual."""
        return self._usual.split(size_class, domain, pods)

    def harm(self, room: int, pods: int) -> int:
        """As usual."""
        return self._usual.harm(room, pods)


def pick(used: int, large: int, limits: tuple[int, int, int]) -> StrategyName:
    """The strategy for one Flavor.

    `used` is the permille of its units that are not free, `large` the permille of the units waiting for it that large
    gangs ask for; `limits` are those below which is spread, from which is packed, and from which large gangs count.
    """
    spread_below, pack_from, large_from = limits
    if used >= pack_from or large >= large_from:
        return StrategyName.PACK
    return StrategyName.SPREAD if used < spread_below else StrategyName.COMPACT
