"""What a PodSet asks for: its pod sizes, its level, and in which order PodSets are placed.

Values only: nothing here looks for a place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.core.demand import PodSet, TopologyMode
from controlplane.core.ids import ClusterId, FlavorName
from controlplane.core.index import NO_FLAVOR, FleetIndex, PodSize

Room = Mapping[FlavorName, int]  # units of each Flavor that the Queue may still use


@dataclass(frozen=True, slots=True)
class Wish:
    """How many pods of each PodSet, by name, and of which Flavor; what is not named is the least, of any Flavor."""

    pods: Mapping[str, int] = field(default_factory=dict)
    flavors: Mapping[str, FlavorName] = field(default_factory=dict)

    def count(self, pod_set: PodSet) -> int:
        """Pods of a PodSet."""
        return self.pods.get(pod_set.name, pod_set.least)

    def within(self, pod_set: PodSet, room: Room) -> Room:
        """What of `room` a PodSet may use."""
        flavor = self.flavors.get(pod_set.name)
        return room if flavor is None else {flavor: room.get(flavor, 0)}


LEAST = Wish()


def sizes(pod_set: PodSet, room: Room, pods: int | None = None) -> list[tuple[int, PodSize]]:
    """The pod sizes to try with their rank of preference: one per Flavor that quota has room for.

    Room for `pods` of it, or for the least that it starts with.
    The order of preference decides, not the speed: a slower Flavor further down is taken when those before it have no
    place now, since a start now is certain and how long the faster one stays taken is not known here.
    """
    if not pod_set.devices:
        return [(0, PodSize.of(NO_FLAVOR, 0, pod_set.needs, pod_set.rules))]
    wanted = pod_set.devices * (pod_set.least if pods is None else pods)
    return [
        (rank, PodSize.of(flavor, pod_set.devices, pod_set.needs, pod_set.rules))
        for rank, flavor in enumerate(pod_set.flavors)
        if room.get(flavor, 0) >= wanted
    ]


def asked_level(index: FleetIndex, pod_set: PodSet, cluster: ClusterId) -> int | None:
    """The index of the level that a PodSet asks for; hosts if it asks for none; None if required and unknown."""
    finest = len(index.tree.levels[cluster]) - 1
    if pod_set.topology_mode is TopologyMode.NONE:
        return finest
    level = index.tree.level_index(cluster, pod_set.topology_level)
    if level is None and pod_set.topology_mode is TopologyMode.PREFERRED:
        return finest
    return level


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
