"""Place a Workload: every PodSet in one cluster, or nothing.

Looks at nodes only; whether the Queue may use that much is given by `room`. Every cluster that the
filters let through is tried on the same Scenario and the best result wins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controlplane.core.demand import PodNeeds, PodSet, TopologyMode, Workload
from controlplane.core.ids import ClusterId, FlavorName
from controlplane.core.index import NO_FLAVOR, FleetIndex, PodSize, SizeClass, Take
from controlplane.core.placement.registry import STRATEGIES
from controlplane.core.placement.strategies.base import Part, Strategy
from controlplane.core.plan import Placement, PodPlacement
from controlplane.core.scenario import Scenario
from controlplane.core.topology import WHOLE_CLUSTER

Room = Mapping[FlavorName, int]  # units of each Flavor that the Queue may still use


class Score(NamedTuple):
    """How good a place is; less is better, field by field, the cluster's id last."""

    flavor_rank: int
    climbs: int  # levels above the one asked for
    domains: int
    harm: int
    load: int  # permille of usable units taken
    cluster: ClusterId


@dataclass(frozen=True, slots=True)
class PlacedSet:
    """Where one PodSet goes: pods per node, in fabric order."""

    pod_set: PodSet
    size: PodSize
    parts: tuple[Part, ...]
    score: Score

    def takes(self) -> list[Take]:
        """What it takes from the index."""
        size = self.size
        return [
            Take(node, size.flavor, pods * size.devices, pods * size.cpu_milli, pods * size.memory_bytes)
            for node, pods in self.parts
        ]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a whole Workload goes, in one cluster; `sets` in the order in which they were placed."""

    cluster: ClusterId
    sets: tuple[PlacedSet, ...]

    def charges(self) -> tuple[tuple[FlavorName, int], ...]:
        """Units by Flavor, sorted."""
        amounts: dict[FlavorName, int] = {}
        for placed in self.sets:
            if placed.size.devices:
                amount = placed.size.devices * placed.pod_set.replicas
                amounts[placed.size.flavor] = amounts.get(placed.size.flavor, 0) + amount
        return tuple(sorted(amounts.items()))

    def takes(self) -> list[Take]:
        """What it takes from the index."""
        return [take for placed in self.sets for take in placed.takes()]

    def placement(self, index: FleetIndex, pod_sets: Sequence[PodSet]) -> Placement:
        """As a Plan says it: PodSets as declared, ranks in domain order, so that the ring follows the fabric."""
        pods: list[PodPlacement] = []
        nodes = index.tree.nodes
        for placed in sorted(self.sets, key=lambda each: pod_sets.index(each.pod_set)):
            name, flavor, amount, rank = placed.pod_set.name, placed.size.flavor, placed.size.devices, 0
            for node, count in placed.parts:
                node_id = nodes[node].id
                pods.extend(PodPlacement(name, at, node_id, flavor, amount) for at in range(rank, rank + count))
                rank += count
        return Placement(self.cluster, tuple(pods))


def place_workload(scenario: Scenario, workload: Workload, clusters: Sequence[ClusterId], room: Room) -> Placed | None:
    """Place all of it in the best of `clusters` and hold its nodes in the Scenario; None changes nothing."""
    placed = _in_old_place(scenario, workload, clusters, room) if workload.preferred_nodes else None
    if placed is not None:
        return placed
    ranked = _first_looks(scenario, workload, clusters, room)
    best: tuple[list[Score], Placed] | None = None
    for first in ranked:
        mark = scenario.checkpoint()
        placed = place_in_cluster(scenario, workload, first.cluster, room)
        if placed is None:
            continue
        if len(workload.pod_sets) == 1:
            return placed
        scenario.rollback(mark)
        scores = [each.score for each in placed.sets]
        if best is None or scores < best[0]:
            best = scores, placed
    if best is None:
        return None
    scenario.index.take(best[1].takes())
    return best[1]


def place_in_cluster(scenario: Scenario, workload: Workload, cluster: ClusterId, room: Room) -> Placed | None:
    """Place all of it in this cluster and hold its nodes; None changes nothing.

    Which PodSet is the hardest is a guess where one must sit together and another has no choice of Flavor: a second
    order is tried. No order is tried beyond that, so a place that only a third one finds is missed.
    """
    first = hardest_first(workload.pod_sets)
    placed = place_in_order(scenario, workload, first, cluster, room)
    if placed is not None or len(first) < 2 or (second := choiceless_first(first)) == first:
        return placed
    return place_in_order(scenario, workload, second, cluster, room)


def place_in_order(
    scenario: Scenario, workload: Workload, order: Sequence[PodSet], cluster: ClusterId, room: Room
) -> Placed | None:
    """Place these PodSets one after the other in this cluster and hold their nodes; None changes nothing."""
    mark, left, sets = scenario.checkpoint(), dict(room), []
    for pod_set in order:
        placed = _place_pod_set(scenario, workload, pod_set, cluster, left)
        if placed is None:
            scenario.rollback(mark)
            return None
        scenario.index.take(placed.takes())
        scenario.work += len(placed.parts)
        if pod_set.devices:
            left[placed.size.flavor] -= pod_set.devices * pod_set.replicas
        sets.append(placed)
    return Placed(cluster, tuple(sets))


def fits_in_cluster(scenario: Scenario, workload: Workload, cluster: ClusterId, room: Room) -> bool:
    """Whether `place_in_cluster` would find a place; asks no more than it must and changes nothing."""
    if not workload.pod_sets:
        return False
    pod_set = hardest_first(workload.pod_sets)[0]
    if _first_look(scenario, workload, pod_set, cluster, sizes(pod_set, room)) is None:
        return False
    if len(workload.pod_sets) == 1 and (pod_set.needs == PodNeeds() or not pod_set.devices):
        return True  # counters of this very size were asked
    if len(workload.pod_sets) == 1:
        return _place_pod_set(scenario, workload, pod_set, cluster, room) is not None
    mark = scenario.checkpoint()
    placed = place_in_cluster(scenario, workload, cluster, room)
    scenario.rollback(mark)
    return placed is not None


def missing_units(scenario: Scenario, workload: Workload, cluster: ClusterId) -> int:
    """At least so many units must be freed in a cluster before the hardest PodSet fits: a lower bound."""
    pod_set = hardest_first(workload.pod_sets)[0]
    root, wanted = scenario.index.tree.root[cluster], pod_set.devices * pod_set.replicas
    free = [scenario.index.size_class(PodSize(flavor, 1)).count[root] for flavor in pod_set.flavors]
    return max(0, wanted - max(free, default=wanted))


def hardest_first(pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
    """The order in which PodSets are placed: those that must sit together, then those without a choice of Flavor, then
    large ones; small ones fit around.
    """
    if len(pod_sets) < 2:
        return pod_sets
    return tuple(sorted(pod_sets, key=lambda each: (_sits_apart(each), _chooses(each), *_small_and_late(each))))


def choiceless_first(pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
    """The second order: those without a choice of Flavor go even before those that must sit together."""
    if len(pod_sets) < 2:
        return pod_sets
    return tuple(sorted(pod_sets, key=lambda each: (_chooses(each), _sits_apart(each), *_small_and_late(each))))


def _sits_apart(pod_set: PodSet) -> bool:
    return pod_set.topology_mode is not TopologyMode.REQUIRED


def _chooses(pod_set: PodSet) -> bool:
    return len(pod_set.flavors) > 1


def _small_and_late(pod_set: PodSet) -> tuple[int, str]:
    return -pod_set.devices * pod_set.replicas, pod_set.name


def sizes(pod_set: PodSet, room: Room) -> list[tuple[int, PodSize]]:
    """The pod sizes to try with their rank of preference: one per Flavor that quota has room for."""
    cpu, memory = pod_set.needs.cpu_milli, pod_set.needs.memory_bytes
    if not pod_set.devices:
        return [(0, PodSize(NO_FLAVOR, 0, cpu, memory))]
    wanted = pod_set.devices * pod_set.replicas
    return [
        (rank, PodSize(flavor, pod_set.devices, cpu, memory))
        for rank, flavor in enumerate(pod_set.flavors)
        if room.get(flavor, 0) >= wanted
    ]


def _first_looks(scenario: Scenario, workload: Workload, clusters: Sequence[ClusterId], room: Room) -> list[Score]:
    """Clusters by the score of the hardest PodSet, from counters alone: an upper bound of what fits, in no time.

    A look is remembered until something changes in its cluster, since many Workloads ask for the same.
    """
    scenario.work += len(clusters)
    if not workload.pod_sets:
        return []
    pod_set, index = hardest_first(workload.pod_sets)[0], scenario.index
    tried = sizes(pod_set, room)
    known = scenario.looks.setdefault((pod_set, workload.strategy, tuple(tried)), {})
    scores = []
    for cluster in clusters:
        version = index.version[cluster]
        look = known.get(cluster)
        if look is None or look[0] != version:
            look = known[cluster] = version, _first_look(scenario, workload, pod_set, cluster, tried)
        if isinstance(look[1], Score):
            scores.append(look[1])
    scores.sort()
    return scores


def _first_look(
    scenario: Scenario, workload: Workload, pod_set: PodSet, cluster: ClusterId, tried: Sequence[tuple[int, PodSize]]
) -> Score | None:
    strategy, index = STRATEGIES[workload.strategy], scenario.index
    for rank, size in tried:
        size_class = index.size_class(size.devices_only if size.devices else size)
        found = _find(scenario, strategy, pod_set, size_class, cluster)
        if found is not None:
            return _score(scenario, strategy, size_class, pod_set, found, rank)
    return None


def _place_pod_set(
    scenario: Scenario, workload: Workload, pod_set: PodSet, cluster: ClusterId, room: Room
) -> PlacedSet | None:
    strategy, index = STRATEGIES[workload.strategy], scenario.index
    for rank, size in sizes(pod_set, room):
        # CPU and memory rarely bind, so the counters of devices alone are asked first and the nodes they
        # lead to are checked; only if one is short are counters of the exact size made.
        for counted in dict.fromkeys((size.devices_only, size)) if size.devices else (size,):
            size_class = index.size_class(counted)
            found = _find(scenario, strategy, pod_set, size_class, cluster)
            if found is None:
                break
            parts = sorted(_fill(index, strategy, size_class, found[0], pod_set.replicas))
            if counted == size or all(index.holds(size, node, pods) for node, pods in parts):
                score = _score(scenario, strategy, size_class, pod_set, found, rank)
                return PlacedSet(pod_set, size, tuple(parts), score)
    return None


def asked_level(index: FleetIndex, pod_set: PodSet, cluster: ClusterId) -> int | None:
    """The index of the level that a PodSet asks for; hosts if it asks for none; None if required and unknown."""
    finest = len(index.tree.levels[cluster]) - 1
    if pod_set.topology_mode is TopologyMode.NONE:
        return finest
    level = index.tree.level_index(cluster, pod_set.topology_level)
    if level is None and pod_set.topology_mode is TopologyMode.PREFERRED:
        return finest
    return level


def _find(
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


def _score(
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


def _fill(index: FleetIndex, strategy: Strategy, size_class: SizeClass, domain: int, pods: int) -> list[Part]:
    """Pods per node, inside one domain that holds them all."""
    if domain < len(index.tree.nodes):
        return [(domain, pods)]
    parts: list[Part] = []
    for child, count in strategy.split(size_class, domain, pods):
        parts.extend(_fill(index, strategy, size_class, child, count))
    return parts


def _in_old_place(scenario: Scenario, workload: Workload, clusters: Sequence[ClusterId], room: Room) -> Placed | None:
    """Try the nodes that a requeued Workload had before: its image and its data are still there."""
    index = scenario.index
    old = [index.tree.position[node] for node in dict.fromkeys(workload.preferred_nodes) if node in index.tree.position]
    if not old or index.tree.cluster_of[old[0]] not in clusters:
        return None
    cluster = index.tree.cluster_of[old[0]]
    mark, left, sets = scenario.checkpoint(), dict(room), []
    for pod_set in hardest_first(workload.pod_sets):
        placed = _on_nodes(scenario, pod_set, cluster, [at for at in old if index.tree.cluster_of[at] == cluster], left)
        if placed is None:
            scenario.rollback(mark)
            return None
        index.take(placed.takes())
        scenario.work += len(placed.parts)
        if pod_set.devices:
            left[placed.size.flavor] -= pod_set.devices * pod_set.replicas
        sets.append(placed)
    return Placed(cluster, tuple(sets))


def _on_nodes(
    scenario: Scenario, pod_set: PodSet, cluster: ClusterId, nodes: Sequence[int], room: Room
) -> PlacedSet | None:
    """All pods of a PodSet on some of these nodes, in their order, within the required level."""
    index, asked = scenario.index, asked_level(scenario.index, pod_set, cluster)
    if asked is None:
        return None
    for rank, size in sizes(pod_set, room):
        parts, wanted = [], pod_set.replicas
        for node in nodes:
            pods = min(wanted, index.fits(size, node))
            if pods:
                parts.append((node, pods))
                wanted -= pods
        is_together = len({index.tree.ancestor(node, asked) for node, _ in parts}) <= 1
        if not wanted and (is_together or pod_set.topology_mode is not TopologyMode.REQUIRED):
            return PlacedSet(pod_set, size, tuple(sorted(parts)), Score(rank, 0, 0, 0, 0, cluster))
    return None
