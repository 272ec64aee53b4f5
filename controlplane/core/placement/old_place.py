"""Put a requeued Workload back where it was: its image and its data are still there."""

from collections.abc import Sequence

from controlplane.core.demand import PodSet, TopologyMode, Workload
from controlplane.core.ids import ClusterId
from controlplane.core.placement.asking import Room, asked_level, hardest_first, sizes
from controlplane.core.placement.placed import Placed, PlacedSet, Score
from controlplane.core.scenario import Scenario


def place_as_before(scenario: Scenario, workload: Workload, clusters: Sequence[ClusterId], room: Room) -> Placed | None:
    """Try the nodes that it had before, and hold them; None changes nothing.

    Not for PodSets in slices, beside others or of any size: those are placed anew, so that no rule of theirs is broken.
    """
    index = scenario.index
    if any(each.slice_size or each.with_pod_set or each.is_elastic for each in workload.pod_sets):
        return None
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
    return Placed(tuple(sets))


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
            return PlacedSet(
                pod_set, pod_set.replicas, size, tuple(sorted(parts)), Score(rank, 0, 0, 0, 0, 0, 0, cluster)
            )
    return None
