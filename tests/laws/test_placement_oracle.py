"""Placement against exhaustive search, in worlds so small that every way to put pods on nodes can be looked at.

What is promised. For one PodSet: a place is found exactly if there is one, and no place keeps it closer together. For
two: what is found is a place; and where both ask for pods of one size of the same Flavor, one is found exactly if there
is one. Pods of two sizes are a packing problem that no order of PodSets solves in general: there a place may be missed,
never invented.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.capacity import Node
from controlplane.core.cycle import plan_cycle
from controlplane.core.demand import PodNeeds, PodSet, StrategyName, TopologyMode
from controlplane.core.ids import FlavorName, NodeId, WorkloadId
from controlplane.core.placement.registry import STRATEGIES
from controlplane.core.plan import Admit
from controlplane.core.policy import Policy
from tests.builders.core import A100, H100, LEVELS, NOW, AWorld, a_workload, a_world
from tests.laws.worlds import LAW

CORES = 1_000
Counts = Mapping[NodeId, int]
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


@dataclass
class Room:
    """What is left of the nodes while a place is being tried."""

    units: Counter[tuple[NodeId, FlavorName]]
    cpu: Counter[NodeId]

    @classmethod
    def of(cls, nodes: list[Node]) -> "Room":
        """All of it."""
        units = Counter({(node.id, flavor): node.free(flavor) for node in nodes for flavor in node.usable})
        return cls(units, Counter({node.id: node.cpu_milli for node in nodes}))

    def less(self, pod_set: PodSet, flavor: FlavorName, counts: Counts) -> "Room":
        """The same without these pods."""
        units, cpu = Counter(self.units), Counter(self.cpu)
        for node, pods in counts.items():
            units[node, flavor] -= pods * pod_set.devices
            cpu[node] -= pods * pod_set.needs.cpu_milli
        return Room(units, cpu)

    def holds(self, pod_set: PodSet, flavor: FlavorName, node: NodeId, pods: int) -> bool:
        """Whether one node takes so many."""
        has_units = pods * pod_set.devices <= self.units[node, flavor]
        return has_units and pods * pod_set.needs.cpu_milli <= self.cpu[node]


def box(node: Node, depth: int) -> tuple[object, ...]:
    """A node's domain at a level, -1 for the whole cluster; a node without a label is one of its own."""
    domains = node.domains[: depth + 1]
    return (*domains, "" if all(domains) else node.id)


def spreads(nodes: list[Node], pod_set: PodSet, flavor: FlavorName, room: Room, pods: int) -> Iterator[Counts]:
    """Every way to put so many pods on these nodes."""
    if not nodes:
        if not pods:
            yield {}
        return
    first, rest = nodes[0], nodes[1:]
    for count in range(pods + 1):
        if not room.holds(pod_set, flavor, first.id, count):
            return
        for others in spreads(rest, pod_set, flavor, room, pods - count):
            yield {first.id: count, **others} if count else others


def keeps_rules(nodes: list[Node], pod_set: PodSet, counts: Counts) -> bool:
    """Whether these pods are where the PodSet's level and slices allow."""
    used = [node for node in nodes if node.id in counts]
    if pod_set.topology_mode is TopologyMode.REQUIRED:
        depth = LEVELS.index(pod_set.topology_level)
        if len({box(node, depth) for node in used}) > 1:
            return False
    if pod_set.slice_size:
        in_box: Counter[tuple[object, ...]] = Counter()
        for node in used:
            in_box[box(node, LEVELS.index(pod_set.slice_level))] += counts[node.id]
        return all(pods % pod_set.slice_size == 0 for pods in in_box.values())
    return True


def ways(nodes: list[Node], pod_set: PodSet, room: Room) -> Iterator[tuple[FlavorName, Counts]]:
    """Every place of one PodSet, by Flavor in its order."""
    for flavor in pod_set.flavors:
        for counts in spreads(nodes, pod_set, flavor, room, pod_set.replicas):
            if keeps_rules(nodes, pod_set, counts):
                yield flavor, counts


def has_place(nodes: list[Node], pod_sets: tuple[PodSet, ...], room: Room) -> bool:
    """Whether there is any place for all of them together."""
    if not pod_sets:
        return True
    first, rest = pod_sets[0], pod_sets[1:]
    return any(has_place(nodes, rest, room.less(first, *way)) for way in ways(nodes, first, room))


def finest(nodes: list[Node], counts: Counts) -> int:
    """The finest level at which all pods are in one domain; -1: only the whole cluster."""
    used = [node for node in nodes if node.id in counts]
    return max(depth for depth in range(-1, len(LEVELS)) if len({box(node, depth) for node in used}) == 1)


@st.composite
def tiny_fleets(draw: st.DrawFn) -> AWorld:
    """One cluster of at most six nodes in uneven racks, partly taken."""
    world = a_world().cluster("c").queue("team", 1_000)
    world.queues["team"] = replace(
        world.queues["team"], quotas=tuple(replace(world.queues["team"].quotas[0], flavor=f) for f in (H100, A100))
    )
    for number in range(draw(st.integers(1, 6))):
        labels = draw(st.sampled_from(("b0", "b0", "b1", ""))), draw(st.sampled_from(("r0", "r0", "r1", "")))
        flavor = draw(st.sampled_from((H100, H100, H100, A100)))
        cores, held = draw(st.sampled_from((64, 64, 2, 1))), {flavor: draw(st.sampled_from((0, 0, 1, 3)))}
        world.node(f"n{number}", labels, {flavor: draw(st.integers(1, 4))}, held=held, cpu_milli=cores * CORES)
    return world


@st.composite
def tiny_sets(draw: st.DrawFn, name: str = "main", devices: int | None = None) -> PodSet:
    """At most four pods."""
    flavors = draw(st.sampled_from(((H100,), (H100,), (H100, A100), (A100, H100))))
    mode = draw(st.sampled_from(TopologyMode))
    level = draw(st.sampled_from(LEVELS)) if mode is not TopologyMode.NONE else ""
    size = draw(st.integers(1, 4)) if devices is None else devices
    needs = PodNeeds(cpu_milli=draw(st.sampled_from((0, 0, CORES))) if devices is None else 0)
    pod_set = PodSet(name, draw(st.integers(1, 4)), size, flavors, needs, mode, level)
    if pod_set.replicas % 2 == 0 and draw(st.booleans()):
        return replace(pod_set, slice_size=2, slice_level=draw(st.sampled_from(LEVELS)))
    return pod_set


def placed(world: AWorld, strategy: StrategyName, *pod_sets: PodSet) -> dict[str, tuple[FlavorName, Counts]] | None:
    """Where the planner puts them, by PodSet; None if nowhere."""
    world.waiting.clear()
    snapshot = world.waits(a_workload("job").with_sets(*pod_sets).having(strategy=strategy)).build()
    admits = [each for each in plan_cycle(snapshot, Policy(), NOW).decisions if isinstance(each, Admit)]
    if not admits:
        assert WorkloadId("job") in plan_cycle(snapshot, Policy(), NOW).reasons
        return None
    (placement,) = admits[0].placements
    found: dict[str, tuple[FlavorName, Counts]] = {}
    for pod_set in pod_sets:
        pods = [pod for pod in placement.pods if pod.pod_set == pod_set.name]
        assert len(pods) == pod_set.replicas
        (flavor,) = {pod.flavor for pod in pods}
        found[pod_set.name] = flavor, Counter(pod.node for pod in pods)
    return found


def is_a_place(nodes: list[Node], pod_sets: tuple[PodSet, ...], found: dict[str, tuple[FlavorName, Counts]]) -> bool:
    """Whether what was found holds all rules and fits, one PodSet after the other."""
    room = Room.of(nodes)
    for pod_set in pod_sets:
        flavor, counts = found[pod_set.name]
        fits = all(room.holds(pod_set, flavor, node, pods) for node, pods in counts.items())
        if not fits or flavor not in pod_set.flavors or not keeps_rules(nodes, pod_set, counts):
            return False
        room = room.less(pod_set, flavor, counts)
    return True


@each_strategy
@LAW
@given(tiny_fleets(), tiny_sets())
def test_one_pod_set_finds_a_place_exactly_if_there_is_one(
    strategy: StrategyName, world: AWorld, pod_set: PodSet
) -> None:
    nodes = list(world.nodes.values())
    found = placed(world, strategy, pod_set)
    assert (found is not None) == has_place(nodes, (pod_set,), Room.of(nodes))
    assert found is None or is_a_place(nodes, (pod_set,), found)


@each_strategy
@LAW
@given(tiny_fleets(), tiny_sets())
def test_no_place_reaches_a_better_level_than_the_one_that_is_found(
    strategy: StrategyName, world: AWorld, pod_set: PodSet
) -> None:
    """Of the first Flavor that has any place: the level asked for, or the next one above it that holds all pods.

    What spreads takes a host for no wish: pods that shall be apart are not asked onto one machine.
    """
    found = placed(world, strategy, pod_set)
    spreads_hosts = strategy in {StrategyName.SPREAD, StrategyName.DYNAMIC} and pod_set.topology_level == LEVELS[-1]
    if found is None or pod_set.topology_mode is not TopologyMode.PREFERRED or spreads_hosts:
        return
    nodes, asked = list(world.nodes.values()), LEVELS.index(pod_set.topology_level)
    flavor, counts = found["main"]
    others = list(ways(nodes, pod_set, Room.of(nodes)))
    assert flavor == others[0][0], "the order of Flavors goes before the level"
    best = max(min(asked, finest(nodes, way)) for of, way in others if of == flavor)
    assert min(asked, finest(nodes, counts)) == best


@each_strategy
@LAW
@given(tiny_fleets(), tiny_sets("a"), tiny_sets("b"))
def test_what_two_pod_sets_find_is_a_place(
    strategy: StrategyName, world: AWorld, first: PodSet, second: PodSet
) -> None:
    nodes = list(world.nodes.values())
    found = placed(world, strategy, first, second)
    assert found is None or is_a_place(nodes, (first, second), found)


@st.composite
def two_of_one_size(draw: st.DrawFn) -> tuple[PodSet, PodSet]:
    """Two PodSets that compete for the same slots."""
    devices = draw(st.integers(1, 4))
    return draw(tiny_sets("a", devices)), draw(tiny_sets("b", devices))


@each_strategy
@LAW
@given(tiny_fleets(), two_of_one_size())
def test_two_pod_sets_of_one_size_find_a_place_exactly_if_there_is_one(
    strategy: StrategyName, world: AWorld, both: tuple[PodSet, PodSet]
) -> None:
    nodes = list(world.nodes.values())
    found = placed(world, strategy, *both)
    assert (found is not None) == has_place(nodes, both, Room.of(nodes))
