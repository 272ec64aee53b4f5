"""Find a place for one PodSet inside a domain: the best box by counters, then pods per node in it.

Changes nothing; whoever asked holds what is found.
"""

from collections.abc import Iterator

from controlplane.core.demand import PodSet, StrategyName, TopologyMode
from controlplane.core.ids import ClusterId, FlavorName
from controlplane.core.placement.asking import Room, asked_level, sizes
from controlplane.core.placement.counters import Counters, counters_of
from controlplane.core.placement.placed import PlacedSet, Score
from controlplane.core.placement.registry import STRATEGIES
from controlplane.core.placement.strategies.base import Part, Strategy
from controlplane.core.scenario import Scenario
from controlplane.core.topology import WHOLE_CLUSTER

Found = tuple[int, int]  # (domain, climbs): climbs are levels above the one asked for


def strategy_for(scenario: Scenario, name: StrategyName, flavor: FlavorName) -> Strategy:
    """What a strategy comes to for a Flavor in this cycle."""
    return STRATEGIES[name].resolved(flavor, scenario.picks)


def find_place(
    scenario: Scenario, name: StrategyName, pod_set: PodSet, pods: int, within: int, room: Room
) -> PlacedSet | None:
    """The best place of that many pods of a PodSet inside the domain `within`; None if there is none."""
    index, cluster = scenario.index, scenario.index.tree.cluster_of[within]
    for rank, size in sizes(pod_set, room, pods):
        strategy = strategy_for(scenario, name, size.flavor)
        # What is needed beside devices rarely binds, so the counters of devices alone are asked first and the nodes
        # they lead to are checked; only if one is short are counters of the exact size made.
        for counted in dict.fromkeys((size.devices_only, size)) if size.devices else (size,):
            counters = counters_of(index, strategy, pod_set, index.size_class(counted), cluster)
            found = None if counters is None else find_domain(scenario, counters, pod_set, pods, within)
            if counters is None or found is None:
                break
            parts = sorted(fill(counters, found[0], pods))
            if counted == size or all(index.holds(size, node, count) for node, count in parts):
                score = score_of(scenario, counters, pod_set, pods, found, rank)
                return PlacedSet(pod_set, pods, size, tuple(parts), score)
    return None


def find_domain(scenario: Scenario, counters: Counters, pod_set: PodSet, pods: int, within: int) -> Found | None:
    """The best domain inside `within` that holds so many pods of this PodSet at the level it asks for."""
    tree = counters.tree
    if counters.room(within) < pods:
        return None
    cluster = tree.cluster_of[within]
    asked = asked_level(scenario.index, pod_set, cluster)
    if asked is None:
        return None
    is_required = pod_set.topology_mode is TopologyMode.REQUIRED
    if within != tree.root[cluster]:
        return _inside(counters, within, pods, asked, is_required=is_required)
    finest = len(tree.levels[cluster]) - 1
    for level in counters.strategy.search_order(asked, is_required, finest):
        if level == WHOLE_CLUSTER:
            return within, asked + 1
        group = tree.group_of_level.get((cluster, level))
        domain = None if group is None else counters.choose(group, level, pods)
        if domain is not None:
            return domain, max(0, asked - level)
    return None


def _inside(counters: Counters, within: int, pods: int, asked: int, *, is_required: bool) -> Found | None:
    """The same below a cluster's root: the level asked for, or all of `within`, whose split finds the finer ones."""
    here = counters.tree.level[within]
    if asked > here:
        domain = next(domains_in(counters, within, asked, pods), None)
        if domain is not None or is_required:
            return None if domain is None else (domain, 0)
    return within, max(0, asked - here)


def roomiest(counters: Counters, pod_set: PodSet, cluster: ClusterId) -> int | None:
    """The domain in which most pods of a PodSet could be, under the strategy that takes the emptiest; None if none."""
    tree, root = counters.tree, counters.tree.root[cluster]
    if pod_set.topology_mode is not TopologyMode.REQUIRED:
        return root
    level = tree.level_index(cluster, pod_set.topology_level)
    group = None if level is None else tree.group_of_level.get((cluster, level))
    return None if level is None or group is None else counters.choose(group, level, pod_set.slice_size or 1)


def domains_in(counters: Counters, within: int, level: int, pods: int) -> Iterator[int]:
    """The domains of a level inside `within` that hold so many pods, in the strategy's order; itself if it is finer."""
    tree = counters.tree
    here, cluster = tree.level[within], tree.cluster_of[within]
    if level <= here:
        if counters.room(within) >= pods:
            yield within
    elif within == tree.root[cluster]:
        group = tree.group_of_level.get((cluster, level))
        if group is not None:
            yield from counters.ranked(group, level, pods)
    else:
        for child in counters.ranked(within, here + 1, pods):
            yield from domains_in(counters, child, level, pods)


def score_of(scenario: Scenario, counters: Counters, pod_set: PodSet, pods: int, found: Found, rank: int) -> Score:
    """How good it is to take a domain that was found."""
    (domain, climbs), tree, strategy = found, counters.tree, counters.strategy
    cluster, domains = tree.cluster_of[domain], 1
    if climbs and strategy.wants_few_domains and domain >= len(tree.nodes):
        domains = len(counters.split(domain, pods))
    harm = strategy.harm(counters.room(domain), pods) * max(1, pod_set.devices)
    return Score(
        rank,
        pod_set.replicas - pods,
        climbs,
        domains,
        harm,
        scenario.preference.get(cluster, 0),
        scenario.load(cluster, counters.flavor),
        cluster,
    )


def fill(counters: Counters, domain: int, pods: int) -> list[Part]:
    """Pods per node, inside one domain that holds them all."""
    if domain < len(counters.tree.nodes):
        return [(domain, pods)]
    parts: list[Part] = []
    for child, count in counters.split(domain, pods):
        parts.extend(fill(counters, child, count))
    return parts
