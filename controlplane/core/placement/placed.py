"""Where something goes: the place of a PodSet, of a whole Workload, and how good it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controlplane.core.demand import PodSet
from controlplane.core.ids import ClusterId, FlavorName
from controlplane.core.index import FleetIndex, PodSize, Take
from controlplane.core.placement.strategies.base import Part
from controlplane.core.plan import Placement, PodPlacement


class Score(NamedTuple):
    """How good a place is; less is better, field by field, the cluster's id last."""

    flavor_rank: int
    lacking: int  # pods that an elastic PodSet would like to have besides
    climbs: int  # levels above the one asked for
    domains: int
    harm: int
    preference: int  # the Policy's, for this cluster
    load: int  # permille of usable units taken
    cluster: ClusterId


@dataclass(frozen=True, slots=True)
class PlacedSet:
    """Where one PodSet goes: pods per node, in fabric order."""

    pod_set: PodSet
    pods: int
    size: PodSize
    parts: tuple[Part, ...]
    score: Score

    def takes(self) -> list[Take]:
        """What it takes from the index."""
        return [self.size.take(node, pods) for node, pods in self.parts]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a whole Workload goes; `sets` in the order in which they were placed, a divided PodSet once per cluster."""

    sets: tuple[PlacedSet, ...]

    @property
    def cluster(self) -> ClusterId:
        """The first of its clusters; the only one, unless it is divided."""
        return min(each.score.cluster for each in self.sets)

    def charges(self) -> tuple[tuple[FlavorName, int], ...]:
        """Units by Flavor, sorted."""
        amounts: dict[FlavorName, int] = {}
        for placed in self.sets:
            if placed.size.devices:
                amount = placed.size.devices * placed.pods
                amounts[placed.size.flavor] = amounts.get(placed.size.flavor, 0) + amount
        return tuple(sorted(amounts.items()))

    def takes(self) -> list[Take]:
        """What it takes from the index."""
        return [take for placed in self.sets for take in placed.takes()]

    def placements(self, index: FleetIndex, pod_sets: Sequence[PodSet]) -> tuple[Placement, ...]:
        """As a Plan says it, by cluster: PodSets as declared, ranks in domain order, so that rings follow the fabric.

        The ranks of a PodSet that is divided go on from one cluster to the next.
        """
        order = {each.name: position for position, each in enumerate(pod_sets)}
        pods: dict[ClusterId, list[PodPlacement]] = {}
        ranks: dict[str, int] = {}
        nodes = index.tree.nodes
        for placed in sorted(self.sets, key=lambda each: (order[each.pod_set.name], each.score.cluster)):
            name, flavor, amount = placed.pod_set.name, placed.size.flavor, placed.size.devices
            rank, here = ranks.get(name, 0), pods.setdefault(placed.score.cluster, [])
            for node, count in placed.parts:
                node_id = nodes[node].id
                here.extend(PodPlacement(name, at, node_id, flavor, amount) for at in range(rank, rank + count))
                rank += count
            ranks[name] = rank
        return tuple(Placement(cluster, tuple(pods[cluster])) for cluster in sorted(pods))
