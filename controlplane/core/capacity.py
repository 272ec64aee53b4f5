"""Clusters and nodes as the planner sees them: what is usable, what is held, where it stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from controlplane.core.ids import ClusterId, FlavorName, NodeId
from controlplane.core.lifecycle import ClusterState


@dataclass(frozen=True, slots=True)
class Cluster:
    """One Kubernetes cluster. `levels` from coarse to fine, `host` last and always there."""

    id: ClusterId
    name: str
    state: ClusterState
    levels: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    namespaces: frozenset[str]
    inventory_at: datetime | None


@dataclass(frozen=True, slots=True)
class Node:
    """One machine.

    `domains` names its box at each of its cluster's levels, coarse to fine, "" where it has none.
    `usable` units are healthy and not used by foreign pods; `held` ones belong to our pods; `owned`
    counts all known devices, also unhealthy ones. Free = max(0, usable - held). CPU in millicores,
    memory in bytes, both already less what foreign pods ask for.
    """

    id: NodeId
    cluster: ClusterId
    name: str
    domains: tuple[str, ...]
    is_schedulable: bool
    owned: Mapping[FlavorName, int]
    usable: Mapping[FlavorName, int]
    held: Mapping[FlavorName, int]
    cpu_milli: int
    memory_bytes: int
    cpu_milli_held: int
    memory_bytes_held: int

    def free(self, flavor: FlavorName) -> int:
        """Units of `flavor` that may be given to another pod of ours; 0 if the node takes none."""
        if not self.is_schedulable:
            return 0
        return max(0, self.usable.get(flavor, 0) - self.held.get(flavor, 0))
