"""How many pods an elastic PodSet starts with: as many as fit and quota allows, at least its least.

Where devices alone bind, counters say the number; only where something else binds is it searched for, by halving.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from controlplane.core.demand import PodSet, StrategyName, Workload
from controlplane.core.ids import ClusterId
from controlplane.core.index import PodSize
from controlplane.core.placement.asking import Room, Wish
from controlplane.core.placement.counters import counters_of
from controlplane.core.placement.placed import Placed
from controlplane.core.placement.registry import STRATEGIES
from controlplane.core.placement.search import roomiest
from controlplane.core.scenario import Mark, Scenario

Place = Callable[[Wish], Placed | None]


def most_pods(
    scenario: Scenario, pod_set: PodSet, size: PodSize, cluster: ClusterId, room: int, *, is_exact: bool = False
) -> int:
    """So many pods of a size could there be in a cluster at most, by `room` units and by counters of devices alone.

    `is_exact`: by counters of all that they need, which cost a look at each node where nobody asked for them yet.
    """
    index = scenario.index
    size_class = index.size_class(size.devices_only if size.devices and not is_exact else size)
    counters = counters_of(index, STRATEGIES[StrategyName.SPREAD], pod_set, size_class, cluster)
    found = None if counters is None else roomiest(counters, pod_set, cluster)
    if counters is None or found is None:
        return 0
    pods = min(pod_set.replicas, counters.room(found))
    if size.devices:
        pods = min(pods, room // size.devices)
    return pods - pods % (pod_set.slice_size or 1)


def grown(
    scenario: Scenario,
    workload: Workload,
    least: Placed,
    mark: Mark,
    clusters: Sequence[ClusterId],
    room: Room,
    place: Place,
) -> Placed:
    """The same place with as many pods as fit, one PodSet after the other as declared, of the Flavors that they have.

    `least` is held in the Scenario since `mark`; what is returned is held instead. `place` holds what it finds.
    """
    scenario.rollback(mark)
    best = least
    for pod_set in workload.pod_sets:
        if pod_set.is_elastic:
            best = _with_more(scenario, pod_set, best, clusters, room, place)
    scenario.index.take(best.takes())
    return best


def _with_more(
    scenario: Scenario, pod_set: PodSet, best: Placed, clusters: Sequence[ClusterId], room: Room, place: Place
) -> Placed:
    """The largest number first, which is the right one where counters of devices alone say all; then by halving."""
    step, wish = pod_set.slice_size or 1, _as_it_is(best)
    size = next(each.size for each in best.sets if each.pod_set.name == pod_set.name)
    low, high = wish.pods[pod_set.name], pod_set.replicas
    units = room.get(size.flavor, 0)
    high = min(high, sum(most_pods(scenario, pod_set, size, cluster, units) for cluster in clusters))
    tried = high
    while low < high:
        mark = scenario.checkpoint()
        found = place(replace(wish, pods={**wish.pods, pod_set.name: tried}))
        scenario.rollback(mark)
        if found is None:
            high = tried - step
        else:
            best, low = found, tried
        tried = low + (high - low + step) // (2 * step) * step
    return best


def _as_it_is(placed: Placed) -> Wish:
    pods: dict[str, int] = {}
    for each in placed.sets:
        pods[each.pod_set.name] = pods.get(each.pod_set.name, 0) + each.pods
    return Wish(pods, {each.pod_set.name: each.size.flavor for each in placed.sets if each.size.devices})
