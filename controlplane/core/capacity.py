"""Clusters and nodes as the planner sees them: what is usable, what is held, where it stands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.core.ids import ClusterId, FlavorName, NodeId
from controlplane.core.lifecycle import ClusterState


@dataclass(frozen=True, slots=True)
class Cluster:
    """One Kubernetes cluster. `levels` from coarse to fine, `host` last and always there.

    `is_banned`: its agent was banned, and no other has enrolled since, so nobody there would hear of an order.
    `cordon` and `drain` say why it takes nothing new, "" where it does. A cordon that is over counts until its row says
    so too, or what is planned on it would fall in every recheck.
    """

    id: ClusterId
    name: str
    state: ClusterState
    levels: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    namespaces: frozenset[str]
    inventory_at: datetime | None
    cordon: str = ""
    cordon_until: datetime | None = None
    drain: str = ""
    is_banned: bool = False
    network_domain: str = ""  # clusters of one domain reach each other's pods; "": nobody's
    member_address: str = ""  # how other clusters call a pod of it, with {host}, {service} and {namespace} in it
    facts: frozenset[str] = frozenset()  # what `requires` asks for, as in "storage/fast-nvme"


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps pods that do not tolerate it from a node.

    `is_for_devices`: its key is the resource that the node's own devices are asked for by, so it keeps out only pods
    that ask for none (the agent gives the others the toleration, as Kubernetes' own admission would).
    """

    key: str
    value: str = ""
    effect: str = "NoSchedule"
    is_for_devices: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """One machine.

    `domains` names its box at each of its cluster's levels, coarse to fine, "" where it has none.
    `usable` units are healthy and not used by foreign pods; `held` ones belong to our pods; `owned`
    counts all known devices, also unhealthy ones. Free = max(0, usable - held). CPU in millicores,
    memory, huge pages and local disk in bytes, RDMA in interfaces, all already less what foreign pods ask for.
    `cordon` says why it, or a device of it, is out of planning, and `withheld` how many units that would be
    usable belong to cordoned devices.
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
    cordon: str = ""
    is_cordoned: bool = False
    withheld: Mapping[FlavorName, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    pods: int = 110  # that the kubelet takes, less foreign ones; 110 is its default
    pods_held: int = 0
    rdma: int = 0
    rdma_held: int = 0
    hugepages_bytes: int = 0
    hugepages_bytes_held: int = 0
    local_storage_bytes: int = 0
    local_storage_bytes_held: int = 0

    def free(self, flavor: FlavorName) -> int:
        """Units of `flavor` that may be given to another pod of ours; 0 if the node takes none."""
        if not self.is_schedulable:
            return 0
        return max(0, self.usable.get(flavor, 0) - self.held.get(flavor, 0))

    def cordoned(self, flavor: FlavorName) -> int:
        """Units of `flavor` that would be free but for a cordon by hand, of the node or of its devices."""
        if not self.is_schedulable and not self.is_cordoned:
            return 0
        withheld = self.withheld.get(flavor, 0)
        free = self.usable.get(flavor, 0) + withheld - self.held.get(flavor, 0)
        return max(0, min(free, withheld) if self.is_schedulable else free)
