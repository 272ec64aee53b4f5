"""Find a place for one PodSet inside one cluster: the best domain by counters, then pods per node in it.

Changes nothing; `workload` holds what is found.
"""

from controlplane.core.demand import PodSet, TopologyMode, Workload
from controlplane.core.ids import ClusterId
from controlplane.core.index import FleetIndex, SizeClass
from controlplane.core.placement.asking import Room, asked_level, sizes
from controlplane.core.placement.placed import PlacedSet, Score
from controlplane.core.placement.registry import STRATEGIES
from controlplane.core.placement.strategies.base import Part, Strategy
from controlplane.core.scenario import Scenario
from controlplane.core.topology import WHOLE_CLUSTER


def find_place(
    scenario: Scenario, workload: Workload, pod_set: PodSet, cluster: ClusterId, room: Room
) -> PlacedSet | None:
    strategy, index = STRATEGIES[workload.strategy], scenario.index
    for rank, size in sizes(pod_set, room):
        # CPU and memory rarely bind, so the counters of devices alone are asked first and the nodes they
        # lead to are checked; only if one is short are counters of the exact size made.
        for counted in dict.fromkeys((size.devices_only, size)) if size.devices else (size,):
            size_class = index.size_class(counted)
            found = find_domain(scenario, strategy, pod_set, size_class, cluster)
            if found is None:
                break
            parts = sorted(fill(index, strategy, size_class, found[0], pod_set.replicas))
            if counted == size or all(index.holds(size, node, pods) for node, pods in parts):
                score = score_of(scenario, strategy, size_class, pod_set, found, rank)
                return PlacedSet(pod_set, size, tuple(parts), score)
    return None


def find_domain(
    scenario: Scenario, strategy: Strategy, pod_set: PodSet, size_class: SizeClass, cluster: ClusterId
) -> tuple[int, int] | None:
    """(domain, climbs) of the best domain that holds the whole PodSet."""
    tree, pods = scenario.index.tree, pod_set.replicas
    root, asked = tree.root[cluster], asked_level(scenario.index, pod_set, cluster)
    if asked is None or size_class.count[root] < pods:
        return None
    is_required = pod_set.topology_mode is TopologyMode.REQUIRED
    finest = len(tree.levels[cluster]) - 1
    for level in strategy.search_order(asked, is_required, finest):
        if level == WHOLE_CLUSTER:
            return root, asked + 1
        group = tree.group_of_level.get((cluster, level))
        domain = None if group is None else strategy.choose(size_class, group, pods)
        if domain is not None:
            return domain, max(0, asked - level)
    return None


def score_of(
    scenario: Scenario,
    strategy: Strategy,
    size_class: SizeClass,
    pod_set: PodSet,
    found: tuple[int, int],
    rank: int,
) -> Score:
    (domain, climbs), index, pods = found, scenario.index, pod_set.replicas
    cluster, room = index.tree.cluster_of[domain], size_class.count[domain]
    domains = 1
    if climbs and strategy.wants_few_domains and domain >= len(index.tree.nodes):
        domains = len(strategy.split(size_class, domain, pods))
    harm = strategy.harm(room, pods) * max(1, pod_set.devices)
    return Score(rank, climbs, domains, harm, scenario.load(cluster, size_class.size.flavor), cluster)


def fill(index: FleetIndex, strategy: Strategy, size_class: SizeClass, domain: int, pods: int) -> list[Part]:
    """Pods per node, inside one domain that holds them all."""
    if domain < len(index.tree.nodes):
        return [(domain, pods)]
    parts: list[Part] = []
    for child, count in strategy.split(size_class, domain, pods):
        parts.extend(fill(index, strategy, size_class, child, count))
    return parts
