"""The fleet index: how many pods of a size fit into every domain, kept in counters and bitset buckets.

A decision costs time by the size of the gang, not of the fleet. Counters of a size class are made when
the size is first asked for and follow every change; no decision depends on which classes happen to
exist, so a warm index plans as a new one does. Quota is not looked at here.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from controlplane.core.capacity import Cluster, Node
from controlplane.core.demand import NodeRules
from controlplane.core.ids import ClusterId, FlavorName, NodeId
from controlplane.core.nodes import NO_RULES, Eligibility
from controlplane.core.sizes import NO_FLAVOR, PodSize, SizeClass, Take
from controlplane.core.topology import TopologyTree

__all__ = ["NO_FLAVOR", "PODS_PER_NODE_MAX", "FleetIndex", "PodSize", "SizeClass", "Take"]

PODS_PER_NODE_MAX = 1_024  # whatever a node says: it bounds the width of the bitsets
CLASSES_MAX = 256
_NO_NODES: dict[int, None] = {}


class FleetIndex:
    """What is free on every node, with size classes over it and an undo log."""

    def __init__(self, clusters: Mapping[ClusterId, Cluster], nodes: Mapping[NodeId, Node]) -> None:
        self.tree = TopologyTree(clusters, nodes.values())
        count = len(self.tree.nodes)
        self.cpu = [0] * count
        self.memory = [0] * count
        self.slots = [0] * count  # pods that the kubelet still takes
        self.rdma = [0] * count
        self.hugepages = [0] * count
        self.storage = [0] * count
        self.free: dict[FlavorName, dict[int, int]] = {}  # may be negative: an earmark on units still held
        self.owned: dict[ClusterId, dict[FlavorName, int]] = {cluster: {} for cluster in clusters}
        self.open_units: dict[ClusterId, dict[FlavorName, int]] = {cluster: {} for cluster in clusters}  # free ones
        self.version: dict[ClusterId, int] = dict.fromkeys(clusters, 0)  # rises with every change in a cluster
        self._closed = [0] * count  # how many reasons keep a node out; 0 = open
        self._most = [0] * count  # units of its richest Flavor: with so many slots left, slots bind no pod with devices
        self._seen: list[Node] = list(self.tree.nodes)
        self._log: list[tuple[Take, ...] | int] = []
        self._classes: dict[PodSize, SizeClass] = {}
        self._rules = Eligibility(self.tree.nodes)
        self._is_plain: dict[tuple[NodeRules, FlavorName], bool] = {}
        self._eligible: dict[tuple[PodSize, int], int] = {}
        self._when_empty: dict[tuple[PodSize, ClusterId, int], int] = {}
        for index, node in enumerate(self.tree.nodes):
            self._read(index, node)
            self._own(node, 1)

    def refreshed(
        self,
        clusters: Mapping[ClusterId, Cluster],
        nodes: Mapping[NodeId, Node],
        touched: Collection[NodeId] | None = None,
    ) -> "FleetIndex":
        """This index brought up to date, or a new one if Nodes came, went or moved.

        `touched` are at least the Nodes that differ from those last seen; None: any may.
        """
        self.rollback(0)  # a cycle that crashed may have left something
        if not self.tree.same_shape(clusters, nodes, touched):
            return FleetIndex(clusters, nodes)
        seen, position = self._seen, self.tree.position
        asked = range(len(seen)) if touched is None else sorted(position[node] for node in touched if node in position)
        changed = [index for index in asked if nodes[seen[index].id] is not seen[index]]
        others = [index for index in changed if self._reread(index, nodes[seen[index].id])]
        if others:
            self._when_empty.clear()
            self._eligible.clear()
            self._is_plain.clear()
        # Every class costs at each change: those with needs or rules go when a cycle did not ask for them.
        self._classes = {at: each for at, each in self._classes.items() if each.is_used or not each.is_special}
        self._rules.forget({_rules_of(each) for each in self._classes})
        for size, size_class in self._classes.items():
            size_class.grow_old()
            size_class.allowed = self._allowed(size)
            size_class.touch(changed)
        return self

    def size_class(self, size: PodSize) -> SizeClass:
        """The counters of one pod size, made now if nobody asked for it before."""
        counted = size if size.rules is None else self._counted_as(size)
        size_class = self._classes.get(counted)
        if size_class is not None:
            size_class.is_used = True
            return size_class
        if len(self._classes) >= CLASSES_MAX:
            self._classes = {at: kept for at, kept in self._classes.items() if not kept.is_special}
        size_class = self._classes[counted] = SizeClass(counted, self.tree, self._allowed(counted), self._counts)
        nodes: Collection[int] = self.free.get(size.flavor, ()) if size.devices else range(len(self.tree.nodes))
        if size_class.allowed is not None and len(size_class.allowed) < len(nodes):
            nodes = size_class.allowed
        size_class.update(self._counts(size_class, nodes))
        return size_class

    def is_closed(self, index: int) -> bool:
        """Whether a node takes nothing at all, for now."""
        return self._closed[index] > 0

    def fits(self, size: PodSize, index: int) -> int:
        """How many pods of that size one node would take now."""
        allowed = self._allowed(size)
        if self._closed[index] or (allowed is not None and index not in allowed):
            return 0
        return self._fits(size, index)

    def is_ruled(self, size: PodSize) -> bool:
        """Whether rules or taints keep such pods from any node of the fleet."""
        return self._allowed(size) is not None

    def eligible(self, size: PodSize, domain: int) -> int:
        """How many Nodes of a domain the size's rules allow and its Flavor is on."""
        key = size.devices_only, domain
        if key not in self._eligible:
            allowed, seen = self._allowed(size), self._seen
            self._eligible[key] = sum(
                (allowed is None or index in allowed)
                and (not size.devices or seen[index].owned.get(size.flavor, 0) > 0)
                for index in self.nodes_of(domain)
            )
        return self._eligible[key]

    def ruled_out(self, size: PodSize, domain: int) -> int:
        """How many more pods of that size a domain's nodes would take but for the rules; walks them."""
        allowed = self._allowed(size)
        if allowed is None:
            return 0
        kept_out = (index for index in self.nodes_of(domain) if index not in allowed and not self._closed[index])
        return sum(self._fits(size, index) for index in kept_out)

    def largest_when_empty(self, size: PodSize, cluster: ClusterId, level: int) -> int:
        """How many pods the largest domain of a level owns the devices for, on nodes that the rules allow."""
        assert size.devices, "what has no devices is not owned"
        key = (size.devices_only, cluster, level)
        if key not in self._when_empty:
            sums: dict[int, int] = {}
            allowed = self._allowed(size)
            for index in self.nodes_of(self.tree.root[cluster]):
                if allowed is None or index in allowed:
                    domain, owned = self.tree.ancestor(index, level), self._seen[index].owned.get(size.flavor, 0)
                    sums[domain] = sums.get(domain, 0) + owned // size.devices
            self._when_empty[key] = max(sums.values(), default=0)
        return self._when_empty[key]

    def free_units(self, domain: int, flavor: FlavorName) -> int:
        """Free units in a domain; walks its nodes, so it is for Reasons and reports."""
        return sum(self.free_on(index, flavor) for index in self.nodes_of(domain))

    def free_on(self, index: int, flavor: FlavorName) -> int:
        """Free units on one node, 0 if it is closed."""
        return 0 if self._closed[index] else max(0, self.free.get(flavor, {}).get(index, 0))

    def nodes_of(self, domain: int) -> Iterable[int]:
        """Positions of the nodes in a domain, in fabric order."""
        if domain < len(self.tree.nodes):
            yield domain
            return
        for member in self.tree.members[domain]:
            yield from self.nodes_of(member)

    def holds(self, size: PodSize, index: int, pods: int) -> bool:
        """Whether a node has all that so many pods need beside devices and slots."""
        return (
            (not size.cpu_milli or pods * size.cpu_milli <= self.cpu[index])
            and (not size.memory_bytes or pods * size.memory_bytes <= self.memory[index])
            and (not size.rdma or pods * size.rdma <= self.rdma[index])
            and (not size.hugepages_bytes or pods * size.hugepages_bytes <= self.hugepages[index])
            and (not size.local_storage_bytes or pods * size.local_storage_bytes <= self.storage[index])
        )

    def take(self, takes: Sequence[Take]) -> None:
        """Take from nodes, or give back; counters follow."""
        self._log.append(tuple(takes))
        self._change(takes)

    def close(self, index: int) -> None:
        """Keep a node out until rolled back."""
        self._log.append(index)
        self._set_closed(index, 1)

    def checkpoint(self) -> int:
        """A mark to roll back to."""
        return len(self._log)

    def rollback(self, mark: int) -> None:
        """Undo everything since `mark`, in time proportional to what changed; counters follow once, at the end."""
        undone: list[Take] = []
        while len(self._log) > mark:
            entry = self._log.pop()
            if isinstance(entry, int):
                self._set_closed(entry, -1)
            else:
                undone.extend(take.reversed() for take in entry)
        if undone:
            self._change(undone)

    def _read(self, index: int, node: Node) -> None:
        self._seen[index] = node
        self._closed[index] = 0 if node.is_schedulable else 1
        self.cpu[index] = node.cpu_milli - node.cpu_milli_held
        self.memory[index] = node.memory_bytes - node.memory_bytes_held
        self.slots[index] = min(node.pods, PODS_PER_NODE_MAX) - node.pods_held
        self.rdma[index] = node.rdma - node.rdma_held
        self.hugepages[index] = node.hugepages_bytes - node.hugepages_bytes_held
        self.storage[index] = node.local_storage_bytes - node.local_storage_bytes_held
        self._most[index] = max(node.usable.values(), default=0)
        for flavor, units in node.usable.items():
            self.free.setdefault(flavor, {})[index] = units - node.held.get(flavor, 0)
        for flavor, units in node.held.items():
            if flavor not in node.usable:
                self.free.setdefault(flavor, {})[index] = -units
        self._count_open(index, 1)

    def _reread(self, index: int, node: Node) -> bool:
        """Bring one node up to date; whether it owns other devices now, or other rules keep it out."""
        before = self._seen[index]
        self._count_open(index, -1)
        for flavor in before.usable.keys() | before.held.keys():
            if flavor not in node.usable and flavor not in node.held:
                del self.free[flavor][index]
        is_other = self._rules.update(index, node) or before.usable.keys() != node.usable.keys()
        self._read(index, node)
        if before.owned != node.owned:
            self._own(before, -1)
            self._own(node, 1)
            is_other = True
        return is_other

    def _count_open(self, index: int, sign: int) -> None:
        """Count a node's free units among its cluster's, or no longer, if it is open."""
        if self._closed[index]:
            return
        units = self.open_units[self.tree.cluster_of[index]]
        for flavor, nodes in self.free.items():
            if (free := nodes.get(index, 0)) > 0:
                units[flavor] = units.get(flavor, 0) + sign * free

    def _own(self, node: Node, sign: int) -> None:
        owned = self.owned[node.cluster]
        for flavor, amount in node.owned.items():
            owned[flavor] = owned.get(flavor, 0) + sign * amount

    def _allowed(self, size: PodSize) -> set[int] | None:
        return self._rules.of(size.rules, asks_devices=size.devices > 0)

    def _counted_as(self, size: PodSize) -> PodSize:
        """The same without rules where they leave the nodes of its Flavor as they are: such sizes share counters."""
        assert size.rules is not None
        is_plain = self._is_plain.get((size.rules, size.flavor))
        if is_plain is None:
            plain = self._allowed(PodSize(size.flavor, size.devices))
            is_plain = self._allowed_of(size, self._allowed(size)) == self._allowed_of(size, plain)
            self._is_plain[size.rules, size.flavor] = is_plain
        return size._replace(rules=None) if is_plain else size

    def _allowed_of(self, size: PodSize, allowed: set[int] | None) -> set[int]:
        """Those of the allowed nodes that have the size's Flavor."""
        nodes: Collection[int] = self.free.get(size.flavor, ()) if size.devices else range(len(self.tree.nodes))
        return set(nodes) if allowed is None else {index for index in nodes if index in allowed}

    def _fits(self, size: PodSize, index: int) -> int:
        """What an open node that the rules allow would take."""
        fits = self.slots[index]
        if size.devices:
            fits = min(fits, self.free.get(size.flavor, {}).get(index, 0) // size.devices)
        if size.cpu_milli:
            fits = min(fits, self.cpu[index] // size.cpu_milli)
        if size.memory_bytes:
            fits = min(fits, self.memory[index] // size.memory_bytes)
        if size.rdma:
            fits = min(fits, self.rdma[index] // size.rdma)
        if size.hugepages_bytes:
            fits = min(fits, self.hugepages[index] // size.hugepages_bytes)
        if size.local_storage_bytes:
            fits = min(fits, self.storage[index] // size.local_storage_bytes)
        return max(0, fits)

    def _counts(self, size_class: SizeClass, nodes: Collection[int]) -> list[tuple[int, int]]:
        """What these nodes would take of a class; sizes that count devices alone are the inmost loop."""
        size, allowed = size_class.size, size_class.allowed
        closed: Mapping[int, object] | list[int] = self._closed
        if allowed is not None:
            inside = [index for index in nodes if index in allowed]
            outside = [(index, 0) for index in nodes if index not in allowed]
        else:
            inside, outside = nodes if isinstance(nodes, list) else list(nodes), []
        if size_class.has_needs or not size.devices:
            return outside + [(index, 0 if closed[index] else self._fits(size, index)) for index in inside]
        free, devices, slots = self.free.get(size.flavor, {}), size.devices, self.slots
        for index in inside:
            count = free.get(index, 0) // devices
            count = min(count, slots[index])
            outside.append((index, count if count > 0 and not closed[index] else 0))
        return outside

    def _change(self, takes: Sequence[Take]) -> None:
        touched: dict[FlavorName, dict[int, None]] = {}
        needing: dict[int, None] = {}  # nodes where something else changed that pods need
        podded: dict[int, None] = {}  # nodes with more or fewer pods
        crowded: dict[int, None] = {}  # those of them where slots may bind pods with devices
        for take in takes:
            node = take.node
            if take.amount:
                self._take_units(node, take.flavor, take.amount)
                touched.setdefault(take.flavor, {})[node] = None
            if take.pods:
                podded[node] = None
                left = self.slots[node]
                self.slots[node] = left - take.pods
                if left - take.pods < self._most[node] or left < self._most[node]:
                    crowded[node] = None
            if take.cpu_milli or take.memory_bytes or take.rdma or take.hugepages_bytes or take.local_storage_bytes:
                self._take_needs(take)
                needing[node] = None
        for cluster in {self.tree.cluster_of[take.node] for take in takes}:
            self.version[cluster] += 1
        for size_class in self._classes.values():
            nodes = touched.get(size_class.size.flavor, _NO_NODES) if size_class.size.devices else podded
            if crowded or (needing and size_class.has_needs):
                nodes = nodes | crowded | (needing if size_class.has_needs else _NO_NODES)
            if nodes and not (size_class.allowed is not None and size_class.allowed.isdisjoint(nodes)):
                size_class.touch(nodes)

    def _take_units(self, node: int, flavor: FlavorName, amount: int) -> None:
        free = self.free.setdefault(flavor, {})
        before = free.get(node, 0)
        after = free[node] = before - amount
        self._most[node] = max(self._most[node], after)  # where more is given back than is usable, slots bind sooner
        if not self._closed[node]:
            units = self.open_units[self.tree.cluster_of[node]]
            units[flavor] = units.get(flavor, 0) + max(0, after) - max(0, before)

    def _take_needs(self, take: Take) -> None:
        self.cpu[take.node] -= take.cpu_milli
        self.memory[take.node] -= take.memory_bytes
        self.rdma[take.node] -= take.rdma
        self.hugepages[take.node] -= take.hugepages_bytes
        self.storage[take.node] -= take.local_storage_bytes

    def _set_closed(self, index: int, step: int) -> None:
        self._count_open(index, -1)
        self._closed[index] += step
        self._count_open(index, 1)
        self.version[self.tree.cluster_of[index]] += 1
        for size_class in self._classes.values():
            size_class.touch([index])


def _rules_of(size: PodSize) -> tuple[NodeRules, bool]:
    return size.rules or NO_RULES, size.devices > 0
