"""Divide a Workload over several clusters of one network domain: whole PodSets, or whole slices of one.

The fewest clusters win; among as many, the best places. PodSets that share a domain, or need one as a whole, are one
piece. What is in slices goes slice by slice, as many as fit into a cluster before the next one is begun.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations, islice

from controlplane.core.demand import PodSet, Workload
from controlplane.core.ids import ClusterId
from controlplane.core.placement.asking import LEAST, Room, Wish, hardest_first, sizes
from controlplane.core.placement.elastic import grown, most_pods
from controlplane.core.placement.groups import Unit, is_divisible, sets_of, units_of
from controlplane.core.placement.placed import Placed, Score
from controlplane.core.placement.seating import Seating
from controlplane.core.scenario import Scenario

TRIES_MAX = 64  # sets of clusters of one size that are tried

Together = tuple[ClusterId, ...]


def place_divided(scenario: Scenario, workload: Workload, clusters: Sequence[ClusterId], room: Room) -> Placed | None:
    """Place all of it in as few of these clusters as hold it, and hold its nodes; None changes nothing."""
    units = units_of(hardest_first(workload.pod_sets))
    most = min(workload.clusters_max, sum(_pieces(unit) for unit in units), len(clusters))
    for count in range(2, most + 1):
        best: tuple[list[Score], Together, Wish] | None = None
        for together in islice(_sets_of_clusters(scenario, units, clusters, count, room), TRIES_MAX):
            for wish in _wishes(units):
                mark = scenario.checkpoint()
                placed = _place(scenario, workload, units, together, room, wish)
                scenario.rollback(mark)
                if placed is not None:
                    scores = sorted(each.score for each in placed.sets)
                    if best is None or scores < best[0]:
                        best = scores, together, wish
                    break
        if best is not None:
            return _held(scenario, workload, units, best[1], room, best[2])
    return None


def joined(scenario: Scenario, clusters: Sequence[ClusterId]) -> list[ClusterId]:
    """Those of the clusters whose pods can reach pods in another one."""
    domains = [scenario.snapshot.clusters[cluster].network_domain for cluster in clusters]
    return [cluster for cluster, domain in zip(clusters, domains, strict=True) if domain and domains.count(domain) > 1]


def _held(
    scenario: Scenario, workload: Workload, units: Sequence[Unit], together: Together, room: Room, wish: Wish
) -> Placed:
    mark = scenario.checkpoint()
    placed = _place(scenario, workload, units, together, room, wish)
    assert placed is not None, "what was placed a moment ago can be placed again"
    if not any(each.is_elastic for each in workload.pod_sets):
        return placed
    again = partial(_place, scenario, workload, units, together, room)
    return grown(scenario, workload, placed, mark, together, room, again)


def _pieces(unit: Unit) -> int:
    if isinstance(unit, PodSet) and is_divisible(unit):
        return unit.least // unit.slice_size
    return 1


def _wishes(units: Sequence[Unit]) -> Iterator[Wish]:
    """All slices of a PodSet are of one Flavor: the first choice of each, then the second, and so on."""
    divided = [unit for unit in units if isinstance(unit, PodSet) and is_divisible(unit) and len(unit.flavors) > 1]
    for at in range(max((len(each.flavors) for each in divided), default=1)):
        yield Wish(flavors={each.name: each.flavors[min(at, len(each.flavors) - 1)] for each in divided})


def _sets_of_clusters(
    scenario: Scenario, units: Sequence[Unit], clusters: Sequence[ClusterId], count: int, room: Room
) -> Iterator[Together]:
    """Clusters of one network domain, those first that hold most of the hardest piece; each set in that order."""
    domains: dict[str, list[ClusterId]] = {}
    for cluster in joined(scenario, clusters):
        domains.setdefault(scenario.snapshot.clusters[cluster].network_domain, []).append(cluster)
    first = sets_of(units[0])[0]
    for _, members in sorted(domains.items()):
        holds = {cluster: _capacity(scenario, first, cluster, room, LEAST) for cluster in members}
        yield from combinations(sorted(members, key=lambda each: (-holds[each], each)), count)


def _capacity(
    scenario: Scenario, pod_set: PodSet, cluster: ClusterId, room: Room, wish: Wish, *, is_exact: bool = False
) -> int:
    """Pods of a PodSet that a cluster could hold at most, of the Flavor of which it holds most."""
    units = wish.within(pod_set, room)
    tried = [size for _, size in sizes(pod_set, units, pod_set.slice_size or None)]
    found = (
        most_pods(scenario, pod_set, size, cluster, units.get(size.flavor, 0), is_exact=is_exact) for size in tried
    )
    return max(found, default=0)


def _place(
    scenario: Scenario, workload: Workload, units: Sequence[Unit], together: Together, room: Room, wish: Wish
) -> Placed | None:
    """Place all units in these clusters, each whole one in the first that holds it; None changes nothing."""
    mark, seating = scenario.checkpoint(), Seating(scenario, workload, room, wish)
    for unit in units:
        scenario.work += len(together)
        if isinstance(unit, PodSet) and is_divisible(unit):
            is_seated = _seat_slices(seating, unit, together)
        else:
            is_seated = any(seating.seat(unit, scenario.index.tree.root[cluster]) for cluster in together)
        if not is_seated:
            scenario.rollback(mark)
            return None
    return Placed(tuple(seating.placed))


def _seat_slices(seating: Seating, pod_set: PodSet, together: Together) -> bool:
    """As many slices as fit into one cluster, the rest into the next ones."""
    wanted = seating.wish.count(pod_set)
    for cluster in together:
        root = seating.scenario.index.tree.root[cluster]
        for is_exact in (False, True):  # counters of devices alone may promise more than CPU and the like allow
            most = _capacity(seating.scenario, pod_set, cluster, seating.left, seating.wish, is_exact=is_exact)
            pods = min(wanted, most)
            if pods and seating.seat_pods(pod_set, pods, root):
                wanted -= pods
                break
        if not wanted:
            return True
    return False
