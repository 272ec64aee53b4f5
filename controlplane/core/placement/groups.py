"""Which PodSets of a Workload share a domain: those that name one another, or all of them.

Values only: `seating` looks for the domain.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from controlplane.core.demand import PodSet, TopologyMode


@dataclass(frozen=True, slots=True)
class Group:
    """PodSets, or groups of them, that share one domain: as `level` and `mode` say, or the smallest that holds them."""

    parts: tuple["Unit", ...]
    mode: TopologyMode = TopologyMode.NONE
    level: str = ""


Unit = PodSet | Group


def units_of(order: Sequence[PodSet]) -> tuple[Unit, ...]:
    """What is seated one after the other: a PodSet with all that sit beside it, or a single one.

    A group stands where its first member stood in `order`; it asks for the level of the PodSet that the others name.
    """
    if not any(each.with_pod_set for each in order):
        return tuple(order)
    by_name = {each.name: each for each in order}
    members: dict[str, list[PodSet]] = {}
    for each in order:
        members.setdefault(_named(each, by_name).name, []).append(each)
    return tuple(_unit(by_name[name], sets) for name, sets in members.items())


def sets_of(unit: Unit) -> list[PodSet]:
    """All PodSets in a unit."""
    return [unit] if isinstance(unit, PodSet) else [each for part in unit.parts for each in sets_of(part)]


def is_divisible(unit: Unit) -> bool:
    """Whether slices of it may be in several clusters: a PodSet in slices that needs no one domain as a whole."""
    return isinstance(unit, PodSet) and unit.slice_size > 0 and unit.topology_mode is not TopologyMode.REQUIRED


def piece_of(unit: Unit) -> list[PodSet]:
    """The smallest part of a unit that has to be in one cluster: a slice, or all of it."""
    if isinstance(unit, PodSet) and is_divisible(unit):
        return [replace(unit, replicas=unit.slice_size, min_replicas=None)]
    return sets_of(unit)


def _named(pod_set: PodSet, by_name: dict[str, PodSet]) -> PodSet:
    """The PodSet at the end of the chain of names; one that is not among them ends it, as does a circle."""
    seen = {pod_set.name}
    while (following := by_name.get(pod_set.with_pod_set)) is not None and following.name not in seen:
        pod_set = following
        seen.add(pod_set.name)
    return pod_set


def _unit(first: PodSet, sets: Sequence[PodSet]) -> Unit:
    if len(sets) == 1:
        return first
    beside = tuple(each for each in sets if each is not first)
    return Group((first, *beside), first.topology_mode, first.topology_level)
