"""The fleet index: how many pods of a size fit into every domain, kept in counters and bitset buckets.

A decision costs time by the size of the gang, not of the fleet. Counters of a size class are made when
the size is first asked for and follow every change; no decision depends on which classes happen to
exist, so a warm index plans as a new one does. Quota is not looked at here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from controlplane.core.capacity import Cluster, Node
from controlplane.core.ids import ClusterId, FlavorName, NodeId
from controlplane.core.topology import TopologyTree

PODS_PER_NODE_MAX = 110  # kubelet's default; also bounds the width of the bitsets
CLASSES_MAX = 256
NO_FLAVOR = FlavorName("")


class PodSize(NamedTuple):
    """What one pod takes from a node. Size classes are keyed by it, some ten times for each decision."""

    flavor: FlavorName
    devices: int
    cpu_milli: int = 0
    memory_bytes: int = 0

    @property
    def devices_only(self) -> "PodSize":
        """The same without CPU and memory: its counters are an upper bound of this one's."""
        return PodSize(self.flavor, self.devices)


class Take(NamedTuple):
    """Units, CPU and memory taken from one node (by its position); negative amounts give back."""

    node: int
    flavor: FlavorName
    amount: int
    cpu_milli: int = 0
    memory_bytes: int = 0

    def reversed(self) -> "Take":
        """The change that undoes this one."""
        return Take(self.node, self.flavor, -self.amount, -self.cpu_milli, -self.memory_bytes)


class Follower(Protocol):
    """Counters that are derived from those of a size class."""

    def follow(self, nodes: Sequence[int]) -> None:
        """The class's counts changed on these nodes and above them."""
        ...


class SizeClass:
    """Counters of one pod size: `count[domain]` pods fit, and buckets of domains by count, per group."""

    __slots__ = ("_tree", "at", "count", "followers", "is_used", "mask", "size")

    def __init__(self, size: PodSize, tree: TopologyTree) -> None:
        self.size = size
        self.is_used = True  # since the last refresh
        self._tree = tree
        self.followers: dict[object, Follower] = {}
        self.count = [0] * tree.domains
        self.mask = [0] * len(tree.members)
        self.at: list[dict[int, int]] = [{} for _ in tree.members]

    def largest(self, group: int) -> int:
        """The largest count in a group."""
        return self.mask[group].bit_length() - 1 if self.mask[group] else 0

    def smallest_holding(self, group: int, pods: int) -> int | None:
        """The domain of a group that holds `pods` most tightly, the first in fabric order; None if none does."""
        above = self.mask[group] >> pods
        if not above:
            return None
        return self._first(group, pods + (above & -above).bit_length() - 1)

    def holding(self, group: int, pods: int) -> Iterable[int]:
        """All domains of a group that hold `pods`, most tightly first, then in fabric order."""
        above, members = self.mask[group] >> pods << pods, self._tree.members[group]
        while above:
            lowest_count = above & -above
            above ^= lowest_count
            bits = self.at[group][lowest_count.bit_length() - 1]
            while bits:
                lowest = bits & -bits
                bits ^= lowest
                yield members[lowest.bit_length() - 1]

    def emptiest(self, group: int) -> int | None:
        """The domain of a group with most room, the first in fabric order."""
        return self._first(group, self.mask[group].bit_length() - 1) if self.mask[group] else None

    def by_room(self, group: int) -> Iterable[tuple[int, int]]:
        """(domain, count) of a group, most room first, then in fabric order; domains without room left out."""
        mask, members = self.mask[group], self._tree.members[group]
        while mask:
            count = mask.bit_length() - 1
            mask ^= 1 << count
            bits = self.at[group][count]
            while bits:
                lowest = bits & -bits
                bits ^= lowest
                yield members[lowest.bit_length() - 1], count

    def update(self, changed: Iterable[tuple[int, int]]) -> None:
        """Set the counts of some nodes; every domain above follows once, not once per node."""
        tree, count = self._tree, self.count
        parent, bit_below, bit_level, level_group = tree.parent, tree.bit_below, tree.bit_level, tree.level_group
        pending = [(node, new - count[node]) for node, new in changed if new != count[node]]
        moved = [node for node, _ in pending] if self.followers else ()
        while pending:
            above: dict[int, int] = {}
            for domain, delta in pending:
                old = count[domain]
                new = count[domain] = old + delta
                group = parent[domain]
                if group < 0 or not delta:
                    continue
                self._move(group, bit_below[domain], old, new)
                if level_group[domain] >= 0:
                    self._move(level_group[domain], bit_level[domain], old, new)
                above[group] = above.get(group, 0) + delta
            pending = list(above.items())
        for follower in self.followers.values() if moved else ():
            follower.follow(moved)

    def _first(self, group: int, count: int) -> int:
        bits = self.at[group][count]
        return self._tree.members[group][(bits & -bits).bit_length() - 1]

    def _move(self, group: int, bit: int, old: int, new: int) -> None:
        at = self.at[group]
        if old:
            rest = at[old] ^ bit
            if rest:
                at[old] = rest
            else:
                del at[old]
                self.mask[group] ^= 1 << old
        if new:
            have = at.get(new)
            if have is None:
                at[new] = bit
                self.mask[group] |= 1 << new
            else:
                at[new] = have | bit


class FleetIndex:
    """Free units, CPU and memory of every node, with size classes over them and an undo log."""

    def __init__(self, clusters: Mapping[ClusterId, Cluster], nodes: Mapping[NodeId, Node]) -> None:
        self.tree = TopologyTree(clusters, nodes.values())
        count = len(self.tree.nodes)
        self.cpu = [0] * count
        self.memory = [0] * count
        self.free: dict[FlavorName, dict[int, int]] = {}  # may be negative: an earmark on units still held
        self.owned: dict[ClusterId, dict[FlavorName, int]] = {cluster: {} for cluster in clusters}
        self.usable: dict[ClusterId, int] = dict.fromkeys(clusters, 0)
        self._closed = [0] * count  # how many reasons keep a node out; 0 = open
        self._seen: list[Node] = list(self.tree.nodes)
        self.version: dict[ClusterId, int] = dict.fromkeys(clusters, 0)  # rises with every change in a cluster
        self._log: list[tuple[Take, ...] | int] = []
        self._classes: dict[PodSize, SizeClass] = {}
        self._when_empty: dict[tuple[FlavorName, int, ClusterId, int], int] = {}
        for index, node in enumerate(self.tree.nodes):
            self._read(index, node)

    def refreshed(self, clusters: Mapping[ClusterId, Cluster], nodes: Mapping[NodeId, Node]) -> "FleetIndex":
        """This index brought up to date, or a new one if Nodes came, went or moved."""
        self.rollback(0)  # a cycle that crashed may have left something
        if not self.tree.same_shape(clusters, nodes):
            return FleetIndex(clusters, nodes)
        changed = [index for index, seen in enumerate(self._seen) if nodes[seen.id] is not seen]
        if any(nodes[self._seen[index].id].owned != self._seen[index].owned for index in changed):
            self._when_empty.clear()
        for index in changed:
            self._forget(index)
            self._read(index, nodes[self._seen[index].id])
        # Every class costs at each change: those with CPU and memory go when a cycle did not ask for them.
        self._classes = {at: each for at, each in self._classes.items() if each.is_used or at == at.devices_only}
        for size_class in self._classes.values():
            size_class.is_used = False
            size_class.update([(index, self.fits(size_class.size, index)) for index in changed])
        return self

    def size_class(self, size: PodSize) -> SizeClass:
        """The counters of one pod size, made now if nobody asked for it before."""
        size_class = self._classes.get(size)
        if size_class is not None:
            size_class.is_used = True
        else:
            if len(self._classes) >= CLASSES_MAX:
                self._classes = {at: kept for at, kept in self._classes.items() if at == at.devices_only}
            size_class = self._classes[size] = SizeClass(size, self.tree)
            nodes: Iterable[int] = self.free.get(size.flavor, ()) if size.devices else range(len(self.tree.nodes))
            size_class.update([(index, self.fits(size, index)) for index in nodes])
        return size_class

    def largest_when_empty(self, flavor: FlavorName, devices: int, cluster: ClusterId, level: int) -> int:
        """How many pods of that many devices the largest domain of a level owns the devices for."""
        key = (flavor, devices, cluster, level)
        if key not in self._when_empty:
            sums: dict[int, int] = {}
            for index in self.nodes_of(self.tree.root[cluster]):
                domain = self.tree.ancestor(index, level)
                sums[domain] = sums.get(domain, 0) + self._seen[index].owned.get(flavor, 0) // devices
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
        """Whether a node has the CPU and memory for that many pods."""
        return pods * size.cpu_milli <= self.cpu[index] and pods * size.memory_bytes <= self.memory[index]

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
        for flavor in node.usable.keys() | node.held.keys():
            self.free.setdefault(flavor, {})[index] = node.usable.get(flavor, 0) - node.held.get(flavor, 0)
        self._count_cluster(node, 1)

    def _forget(self, index: int) -> None:
        node = self._seen[index]
        for flavor in node.usable.keys() | node.held.keys():
            del self.free[flavor][index]
        self._count_cluster(node, -1)

    def _count_cluster(self, node: Node, sign: int) -> None:
        owned = self.owned[node.cluster]
        for flavor, amount in node.owned.items():
            owned[flavor] = owned.get(flavor, 0) + sign * amount
        self.usable[node.cluster] += sign * sum(node.usable.values())

    def fits(self, size: PodSize, index: int) -> int:
        """How many pods of that size one node would take now."""
        if self._closed[index]:
            return 0
        fits = PODS_PER_NODE_MAX
        if size.devices:
            fits = min(fits, self.free.get(size.flavor, {}).get(index, 0) // size.devices)
        if size.cpu_milli:
            fits = min(fits, self.cpu[index] // size.cpu_milli)
        if size.memory_bytes:
            fits = min(fits, self.memory[index] // size.memory_bytes)
        return max(0, fits)

    def _change(self, takes: Sequence[Take]) -> None:
        touched: dict[FlavorName, list[int]] = {}
        with_needs: list[int] = []
        for cluster in {self.tree.cluster_of[take.node] for take in takes}:
            self.version[cluster] += 1
        for take in takes:
            if take.amount:
                free = self.free.setdefault(take.flavor, {})
                free[take.node] = free.get(take.node, 0) - take.amount
                touched.setdefault(take.flavor, []).append(take.node)
            if take.cpu_milli or take.memory_bytes:
                self.cpu[take.node] -= take.cpu_milli
                self.memory[take.node] -= take.memory_bytes
                with_needs.append(take.node)
        for size, size_class in self._classes.items():
            nodes = touched.get(size.flavor, []) if size.devices else []
            if with_needs and (size.cpu_milli or size.memory_bytes):
                nodes = sorted({*nodes, *with_needs})
            if not nodes:
                continue
            if size.cpu_milli or size.memory_bytes:
                size_class.update([(index, self.fits(size, index)) for index in dict.fromkeys(nodes)])
            else:
                size_class.update(self._fits_by_devices(size, nodes))

    def _fits_by_devices(self, size: PodSize, nodes: list[int]) -> list[tuple[int, int]]:
        """What `fits` gives for sizes that count devices alone, without its questions: this is the inmost loop."""
        free, devices, closed = self.free[size.flavor], size.devices, self._closed
        return [
            (index, 0 if closed[index] or free[index] < devices else min(PODS_PER_NODE_MAX, free[index] // devices))
            for index in (nodes if len(nodes) == 1 else dict.fromkeys(nodes))
        ]

    def _set_closed(self, index: int, step: int) -> None:
        self._closed[index] += step
        self.version[self.tree.cluster_of[index]] += 1
        for size, size_class in self._classes.items():
            size_class.update([(index, self.fits(size, index))])
