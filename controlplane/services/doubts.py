"""What is taken and will wait, perhaps for ever: nothing that is enrolled now is such a thing. Told, not refused.

A cluster, node or level may come later, so it is no mistake for sure. It is told from a memory that may be seconds old.
"""

from collections.abc import Collection, Mapping, Sequence

from controlplane.contract.rest.common import Warned
from controlplane.core.demand import PodSet, TopologyMode
from controlplane.core.facts.workloads import FleetShape
from controlplane.core.ids import FlavorName

HOST = "host"
_NAMED_MAX = 8


def of_pod_sets(shape: FleetShape, pod_sets: Sequence[PodSet], named: Collection[str]) -> list[Warned]:
    """A warning for each reason why a PodSet could start nowhere; `named`: Flavors that the user wrote down."""
    if not shape.levels:
        return []  # before the first cluster is enrolled everything waits, and everybody knows why
    return [
        warning
        for each in pod_sets
        for warning in (*_flavors(shape, each, named), *_width(shape, each), *_level(shape, each))
    ]


def of_flavors(totals: Mapping[str, object], flavors: Collection[str]) -> list[Warned]:
    """A warning where a quota is for Flavors that no enrolled cluster has; `totals` is by those that some have."""
    unknown = sorted(flavor for flavor in flavors if flavor not in totals) if totals else []
    if not unknown:
        return []
    return [_warned("flavor-unknown", f"no enrolled cluster has {_list(unknown)}; there are {_list(sorted(totals))}")]


def of_nominals(owned: Mapping[FlavorName, int], nominals: Mapping[FlavorName, int]) -> list[Warned]:
    """A warning for each part of a tree that is given more of a Flavor than all accepted clusters own of it."""
    return [
        _warned(
            "beyond-owned",
            f"{nominal} {flavor} are given and all clusters own {owned[flavor]}: no more can run, and where the root's"
            " quota is what clusters own, what is missing is taken off those it was given to, each by its part",
        )
        for flavor, nominal in sorted(nominals.items())
        if 0 < owned.get(flavor, 0) < nominal
    ]


def _flavors(shape: FleetShape, each: PodSet, named: Collection[str]) -> list[Warned]:
    if not each.devices:
        return []
    has_some = any(flavor in shape.widest for flavor in each.flavors)
    return of_flavors(shape.widest, [flavor for flavor in each.flavors if flavor in named or not has_some])


def _width(shape: FleetShape, each: PodSet) -> list[Warned]:
    widths = [shape.widest[flavor] for flavor in each.flavors if flavor in shape.widest]
    if not widths or max(widths) >= each.devices:
        return []
    words = f"a pod of {each.name} asks for {each.devices} devices, and no node has more than {max(widths)} of them"
    return [_warned("wider-than-any-node", words)]


_WAITS = {
    TopologyMode.REQUIRED: "so it waits until one has",
    TopologyMode.PREFERRED: "so that wish has no effect",
}


def _level(shape: FleetShape, each: PodSet) -> list[Warned]:
    asked = {} if each.topology_mode is TopologyMode.NONE else {each.topology_level: each.topology_mode}
    if each.slice_size:
        asked[each.slice_level] = TopologyMode.REQUIRED
    return [
        _warned("level-unknown", f"no enrolled cluster has a topology level {level}, {_WAITS[mode]}; there are {known}")
        for known in [_list(sorted(shape.levels))]
        for level, mode in asked.items()
        if level != HOST and level not in shape.levels
    ]


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more


def _warned(code: str, words: str) -> Warned:
    return Warned(code=code, detail=words)
