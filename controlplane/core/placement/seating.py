"""Seats the PodSets of one Workload inside a domain, one after the other or together in one box of it.

Every seat is held in the Scenario as it is found; what did not work out is rolled back.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from controlplane.core.demand import PodSet, TopologyMode, Workload
from controlplane.core.ids import ClusterId, FlavorName
from controlplane.core.placement.asking import Room, Wish, asked_level, sizes
from controlplane.core.placement.counters import Counters, counters_of
from controlplane.core.placement.groups import Group, Unit, sets_of
from controlplane.core.placement.placed import PlacedSet
from controlplane.core.placement.search import domains_in, find_place, strategy_for
from controlplane.core.scenario import Scenario

TRIES_MAX = 8  # domains of each level that is only preferred; of a required level all are tried


def hold(scenario: Scenario, placed: PlacedSet) -> None:
    """Take what was found from everyone else."""
    scenario.index.take(placed.takes())
    scenario.work += len(placed.parts)


class Seating:
    """One Workload on its way: what is seated, and what is left of quota."""

    def __init__(self, scenario: Scenario, workload: Workload, room: Room, wish: Wish) -> None:
        self.scenario = scenario
        self.strategy = workload.strategy
        self.wish = wish
        self.left = dict(room)
        self.placed: list[PlacedSet] = []

    def seat_all(self, units: Sequence[Unit], within: int) -> bool:
        """Seat all of them or none."""
        mark, seated = self.scenario.checkpoint(), len(self.placed)
        if all(self.seat(unit, within) for unit in units):
            return True
        self.scenario.rollback(mark)
        for placed in self.placed[seated:]:
            if placed.size.devices:
                self.left[placed.size.flavor] += placed.size.devices * placed.pods
        del self.placed[seated:]
        return False

    def seat(self, unit: Unit, within: int) -> bool:
        """Seat a PodSet or a group inside a domain; what cannot be seated changes nothing."""
        if isinstance(unit, Group):
            return self._seat_group(unit, within)
        return self.seat_pods(unit, self.wish.count(unit), within)

    def seat_pods(self, pod_set: PodSet, pods: int, within: int) -> bool:
        """Seat so many pods of a PodSet."""
        placed = find_place(self.scenario, self.strategy, pod_set, pods, within, self.wish.within(pod_set, self.left))
        if placed is None:
            return False
        hold(self.scenario, placed)
        if pod_set.devices:
            self.left[placed.size.flavor] -= pod_set.devices * pods
        self.placed.append(placed)
        return True

    def _seat_group(self, group: Group, within: int) -> bool:
        """Try domain after domain, from the smallest upwards, until one holds all of it."""
        return any(self._seat_parts(group, domain) for domain in self._domains(group, within))

    def _seat_parts(self, group: Group, domain: int) -> bool:
        """In two orders: where the first one takes what another needs, the other order may not."""
        if not self._may_hold(group, domain):
            return False
        self.scenario.work += 1
        return self.seat_all(group.parts, domain) or self.seat_all(group.parts[::-1], domain)

    def _domains(self, group: Group, within: int) -> Iterator[int]:
        """The domains inside `within` to try for a group, in order, by what its first PodSet needs."""
        tree, cluster = self.scenario.index.tree, self.scenario.index.tree.cluster_of[within]
        first = sets_of(group)[0]
        finest, here = len(tree.levels[cluster]) - 1, tree.level[within]
        as_first = PodSet(first.name, 1, 0, (), topology_mode=group.mode, topology_level=group.level)
        asked = asked_level(self.scenario.index, as_first, cluster)
        if asked is None:
            return
        is_required, pods = group.mode is TopologyMode.REQUIRED, self.wish.count(first)
        guides = self._guides(first, cluster)
        levels = guides[0].strategy.search_order(asked, is_required, finest) if guides else ()
        for level in levels:
            if level <= here:
                yield within
                return
            found: Iterable[int] = (at for each in guides for at in domains_in(each, within, level, pods))
            found = dict.fromkeys(found) if len(guides) > 1 else found
            yield from found if is_required and level == asked else islice(found, TRIES_MAX)

    def _guides(self, pod_set: PodSet, cluster: ClusterId) -> list[Counters]:
        """Counters of each size that a PodSet may have, of devices alone: an upper bound of what fits."""
        index, guides = self.scenario.index, []
        for _, size in sizes(pod_set, self.wish.within(pod_set, self.left), self.wish.count(pod_set)):
            size_class = index.size_class(size.devices_only if size.devices else size)
            strategy = strategy_for(self.scenario, self.strategy, size.flavor)
            guides.append(counters_of(index, strategy, pod_set, size_class, cluster))
        return [each for each in guides if each is not None]

    def _may_hold(self, group: Group, domain: int) -> bool:
        """Whether a host has the units for all of a group; other domains are tried, hosts are too many for that."""
        index = self.scenario.index
        if domain >= len(index.tree.nodes):
            return True
        wanted: dict[FlavorName, int] = {}
        for each in sets_of(group):
            if len(each.flavors) == 1:
                units = each.devices * self.wish.count(each)
                wanted[each.flavors[0]] = wanted.get(each.flavors[0], 0) + units
        return all(index.free_on(domain, flavor) >= units for flavor, units in wanted.items())
