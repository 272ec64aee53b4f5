"""Place a Workload: every PodSet, or nothing; in one cluster, unless it allows more and none holds it.

Looks at nodes only; whether the Queue may use that much is given by `room`. Every cluster that the
filters let through is tried on the same Scenario and the best result wins.
"""

from collections.abc import Sequence
from functools import partial

from controlplane.core.demand import PodNeeds, PodSet, Workload
from controlplane.core.ids import ClusterId
from controlplane.core.index import NO_FLAVOR, PodSize
from controlplane.core.placement.asking import LEAST, Room, Wish, choiceless_first, hardest_first, sizes
from controlplane.core.placement.counters import counters_of
from controlplane.core.placement.elastic import grown, most_pods
from controlplane.core.placement.groups import Group, units_of
from controlplane.core.placement.old_place import place_as_before
from controlplane.core.placement.pieces import place_divided
from controlplane.core.placement.placed import Placed, Score
from controlplane.core.placement.search import find_domain, find_place, score_of, strategy_for
from controlplane.core.placement.seating import Seating, hold
from controlplane.core.resources import UNLIMITED
from controlplane.core.scenario import Scenario


def place_workload(
    scenario: Scenario,
    workload: Workload,
    clusters: Sequence[ClusterId],
    room: Room,
    partly: Sequence[ClusterId] = (),
) -> Placed | None:
    """Place all of it in the best of `clusters` and hold its nodes in the Scenario; None changes nothing.

    Where none holds it and it may be divided, pieces of it go into clusters of `partly`.
    """
    placed = place_as_before(scenario, workload, clusters, room) if workload.preferred_nodes else None
    if placed is not None:
        return placed
    ranked = _first_looks(scenario, workload, clusters, room)
    best: tuple[list[Score], Placed] | None = None
    is_single = len(workload.pod_sets) == 1
    for at, first in enumerate(ranked):
        if is_single and best is not None and best[0] < [first]:
            break  # counters promise no better place there, nor in those after it
        mark = scenario.checkpoint()
        placed = place_in_cluster(scenario, workload, first.cluster, room)
        if placed is None:
            continue
        scores = [each.score for each in placed.sets]
        if is_single and best is None and (at + 1 == len(ranked) or scores < [ranked[at + 1]]):
            return placed  # nearly always: it is as good as counters promised
        scenario.rollback(mark)
        if best is None or scores < best[0]:
            best = scores, placed
    if best is None:
        return place_divided(scenario, workload, partly, room) if workload.clusters_max > 1 else None
    scenario.index.take(best[1].takes())
    return best[1]


def place_in_cluster(scenario: Scenario, workload: Workload, cluster: ClusterId, room: Room) -> Placed | None:
    """Place all of it in this cluster and hold its nodes; None changes nothing.

    Which PodSet is the hardest is a guess where one must sit together and another has no choice of Flavor, or needs
    what the first happens to take: two more orders are tried. A place that only another one finds is missed.
    """
    mark = scenario.checkpoint()
    placed = _place(scenario, workload, cluster, room, LEAST)
    if placed is None or not any(each.is_elastic for each in workload.pod_sets):
        return placed
    again = partial(_place, scenario, workload, cluster, room)
    return grown(scenario, workload, placed, mark, (cluster,), room, again)


def _place(scenario: Scenario, workload: Workload, cluster: ClusterId, room: Room, wish: Wish) -> Placed | None:
    first = hardest_first(workload.pod_sets)
    placed = place_in_order(scenario, workload, first, cluster, room, wish)
    if placed is not None or len(first) < 2:
        return placed
    for order in dict.fromkeys((choiceless_first(first), first[::-1])):
        if order != first and (placed := place_in_order(scenario, workload, order, cluster, room, wish)) is not None:
            return placed
    return None


def place_in_order(
    scenario: Scenario,
    workload: Workload,
    order: Sequence[PodSet],
    cluster: ClusterId,
    room: Room,
    wish: Wish = LEAST,
) -> Placed | None:
    """Place these PodSets one after the other in this cluster and hold their nodes; None changes nothing.

    As many pods of each as `wish` says: the least that it starts with, unless told otherwise.
    """
    root = scenario.index.tree.root[cluster]
    if len(order) == 1:  # nearly all gangs: nothing to undo, nobody to sit with
        pod_set = order[0]
        placed = find_place(scenario, workload.strategy, pod_set, wish.count(pod_set), root, wish.within(pod_set, room))
        if placed is None:
            return None
        hold(scenario, placed)
        return Placed((placed,))
    units = units_of(order)
    if len(units) > 1 and _sits_as_one(scenario, workload, order[0]):
        units = (Group(units),)
    seating = Seating(scenario, workload, room, wish)
    return Placed(tuple(seating.placed)) if seating.seat_all(units, root) else None


def _sits_as_one(scenario: Scenario, workload: Workload, first: PodSet) -> bool:
    """Whether its strategy keeps all PodSets together."""
    flavor = first.flavors[0] if first.flavors else NO_FLAVOR
    return strategy_for(scenario, workload.strategy, flavor).sits_as_one


def fits_in_cluster(scenario: Scenario, workload: Workload, cluster: ClusterId, room: Room) -> bool:
    """Whether `place_in_cluster` would find a place; asks no more than it must and changes nothing."""
    if not workload.pod_sets:
        return False
    pod_set = hardest_first(workload.pod_sets)[0]
    if _first_look(scenario, workload, pod_set, cluster, sizes(pod_set, room), room) is None:
        return False
    if len(workload.pod_sets) == 1 and (pod_set.needs == PodNeeds() or not pod_set.devices):
        return True  # counters of this very size were asked
    mark = scenario.checkpoint()
    placed = place_in_cluster(scenario, workload, cluster, room)
    scenario.rollback(mark)
    return placed is not None


def missing_units(scenario: Scenario, workload: Workload, cluster: ClusterId) -> int:
    """At least so many units must be freed in a cluster before the hardest PodSet fits: a lower bound."""
    pod_set = hardest_first(workload.pod_sets)[0]
    free, wanted = scenario.index.open_units[cluster], pod_set.devices * pod_set.least
    return max(0, wanted - max((free.get(flavor, 0) for flavor in pod_set.flavors), default=wanted))


def _first_looks(scenario: Scenario, workload: Workload, clusters: Sequence[ClusterId], room: Room) -> list[Score]:
    """Clusters by the score of the hardest PodSet, from counters alone: an upper bound of what fits, in no time.

    A look is remembered until something changes in its cluster, since many Workloads ask for the same.
    """
    scenario.work += len(clusters)
    if not workload.pod_sets:
        return []
    pod_set, index = hardest_first(workload.pod_sets)[0], scenario.index
    tried = sizes(pod_set, room)
    units = tuple(room.get(size.flavor, 0) for _, size in tried) if pod_set.is_elastic else ()
    known = scenario.looks.setdefault((pod_set, workload.strategy, tuple(tried), units), {})
    scores = []
    for cluster in clusters:
        version = index.version[cluster]
        look = known.get(cluster)
        if look is None or look[0] != version:
            look = known[cluster] = version, _first_look(scenario, workload, pod_set, cluster, tried, room)
        if isinstance(look[1], Score):
            scores.append(look[1])
    scores.sort()
    return scores


def _first_look(
    scenario: Scenario,
    workload: Workload,
    pod_set: PodSet,
    cluster: ClusterId,
    tried: Sequence[tuple[int, PodSize]],
    room: Room,
) -> Score | None:
    index, root = scenario.index, scenario.index.tree.root[cluster]
    for rank, size in tried:
        pods = pod_set.replicas
        if pod_set.is_elastic:
            pods = most_pods(scenario, pod_set, size, cluster, room.get(size.flavor, UNLIMITED))
            if pods < pod_set.least:
                continue
        strategy = strategy_for(scenario, workload.strategy, size.flavor)
        size_class = index.size_class(size.devices_only if size.devices else size)
        counters = counters_of(index, strategy, pod_set, size_class, cluster)
        found = None if counters is None else find_domain(scenario, counters, pod_set, pods, root)
        if counters is not None and found is not None:
            return score_of(scenario, counters, pod_set, pods, found, rank)
    return None
