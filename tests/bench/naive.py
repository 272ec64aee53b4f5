"""The baseline of figure A: placement by looking at every node for every gang. Planning only, nothing is written.

Best fit on the smallest level that holds the gang, and inside it the nodes with most room first, so that what is
compared is the search and not its aim. Free room is that of the database when a round begins.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.measuring import LEVELS
from tests.services.planes import Plane


@dataclass(slots=True)
class _Node:
    flavor: str
    free: int
    domains: tuple[object, ...]  # of LEVELS, the host first


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods, devices of each, and their Flavor."""

    pods: int
    devices: int
    flavor: str


def measure(plane: Plane, gangs: Sequence[Gang]) -> tuple[float, Mapping[str, float]]:
    """Gangs per second, and the share of them inside one domain of each level, in percent."""
    nodes = [
        _Node(row.flavor, row.free, (row.id, (row.cluster_id, row.rack), (row.cluster_id, row.spine), row.cluster_id))
        for row in plane.rows(
            """SELECT node.id, node.cluster_id, domains ->> 'rack' AS rack, domains ->> 'spine' AS spine, flavor,
                      capacity - held AS free
               FROM node JOIN node_flavor ON node_flavor.node_id = node.id ORDER BY node.id"""
        )
    ]
    reached: Counter[int] = Counter()
    started = time.perf_counter()
    for gang in gangs:
        level = _place(nodes, gang)
        if level is not None:
            reached[level] += 1
    seconds = time.perf_counter() - started
    placed = max(1, reached.total())
    shares = {name: sum(count for at, count in reached.items() if at <= level) for level, name in enumerate(LEVELS)}
    return reached.total() / seconds, {name: round(100 * count / placed, 1) for name, count in shares.items()}


def gangs_of(rows: Iterable[Any]) -> list[Gang]:
    """The gangs of rows with `replicas`, `devices` and `flavor`."""
    return [Gang(row.replicas, row.devices, row.flavor) for row in rows]


def _place(nodes: Sequence[_Node], gang: Gang) -> int | None:
    """Take the room; returns the level of the smallest domain that held all of it."""
    fits = [node.free // gang.devices if node.flavor == gang.flavor else 0 for node in nodes]
    for level in range(len(LEVELS)):
        sums: dict[object, int] = {}
        for node, count in zip(nodes, fits, strict=True):
            if count:
                sums[node.domains[level]] = sums.get(node.domains[level], 0) + count
        holding = [(count, domain) for domain, count in sums.items() if count >= gang.pods]
        if holding:
            _, best = min(holding, key=lambda at: at[0])
            inside = [at for at, node in enumerate(nodes) if fits[at] and node.domains[level] == best]
            left = gang.pods
            for at in sorted(inside, key=lambda at: -fits[at]):
                taken = min(left, fits[at])
                nodes[at].free -= taken * gang.devices
                left -= taken
            return level
    return None
