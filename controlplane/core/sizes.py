"""What one pod takes from a node, and counters of how many such pods fit into every domain, in bitset buckets.

The tightest domain that holds n pods is two shifts away, and a change of one node moves one bit per level. What is free
on nodes is `index`'s to know.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from controlplane.core.demand import NodeRules, PodNeeds
from controlplane.core.ids import FlavorName
from controlplane.core.nodes import NO_RULES
from controlplane.core.topology import TopologyTree

NO_FLAVOR = FlavorName("")


class PodSize(NamedTuple):
    """What one pod takes from a node, beside its place among the pods, and on which nodes it may be (None: untainted).

    Size classes are keyed by it, some ten times for each decision.
    """

    flavor: FlavorName
    devices: int
    cpu_milli: int = 0
    memory_bytes: int = 0
    rdma: int = 0
    hugepages_bytes: int = 0
    local_storage_bytes: int = 0
    rules: NodeRules | None = None

    @classmethod
    def of(cls, flavor: FlavorName, devices: int, needs: PodNeeds, rules: NodeRules = NO_RULES) -> "PodSize":
        """The size of pods with these needs and rules."""
        return cls(
            flavor,
            devices,
            needs.cpu_milli,
            needs.memory_bytes,
            needs.rdma,
            needs.hugepages_bytes,
            needs.local_storage_bytes,
            rules if rules.selector or rules.terms or rules.tolerations else None,
        )

    @property
    def devices_only(self) -> "PodSize":
        """The same without what rarely binds: its counters are an upper bound of this one's."""
        return PodSize(self.flavor, self.devices, rules=self.rules) if any(self[2:7]) else self

    def take(self, node: int, pods: int) -> "Take":
        """What that many of these pods take from a node."""
        flavor, devices, cpu, memory, rdma, hugepages, storage, _ = self
        return Take(node, flavor, pods * devices, pods * cpu, pods * memory, pods, pods * rdma, pods * hugepages,
                    pods * storage)  # fmt: skip


class Take(NamedTuple):
    """What is taken from one node (by its position); negative amounts give back."""

    node: int
    flavor: FlavorName
    amount: int
    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 0
    rdma: int = 0
    hugepages_bytes: int = 0
    local_storage_bytes: int = 0

    def reversed(self) -> "Take":
        """The change that undoes this one."""
        node, flavor, *amounts = self
        return Take(node, flavor, *(-amount for amount in amounts))


Recount = Callable[["SizeClass", Collection[int]], list[tuple[int, int]]]
"""What some nodes would take of a class now: (node, pods) each."""


class Follower(Protocol):
    """Counters that are derived from those of a size class."""

    is_used: bool  # since the last refresh

    def follow(self, nodes: Sequence[int]) -> None:
        """The class's counts changed on these nodes and above them."""
        ...


_NOTHING: dict[int, int] = {}  # of all groups without members, and most are: a Node is a domain with nothing below


class SizeClass:
    """Counters of one pod size: `count[domain]` pods fit, and buckets of domains by count, per group.

    Nodes that changed are counted again when somebody looks: most looks come after many changes of one node, and what
    was rolled back before costs next to nothing.
    """

    __slots__ = (
        "_at", "_count", "_mask", "_recount", "_tree", "allowed", "followers", "has_needs", "is_special", "is_used",
        "size", "source", "touched",
    )  # fmt: skip

    def __init__(
        self, size: PodSize, tree: TopologyTree, allowed: set[int] | None = None, recount: Recount | None = None
    ) -> None:
        self.size = size
        self.source: SizeClass = self  # what has to be settled before these counters are true
        self._recount = recount
        self.touched: dict[int, None] = {}
        self.allowed = allowed  # the nodes that its rules let it on; None: every one
        self.has_needs = any(size[2:7])
        self.is_special = self.has_needs or size.rules is not None
        self.is_used = True  # since the last refresh
        self._tree = tree
        self.followers: dict[object, Follower] = {}
        self._count = [0] * tree.domains
        self._mask = [0] * len(tree.members)
        self._at: list[dict[int, int]] = [{} if members else _NOTHING for members in tree.members]  # count -> domains

    def grow_old(self) -> None:
        """A cycle begins: what follows these counters and was not asked for in the last one costs nothing more."""
        self.followers = {key: each for key, each in self.followers.items() if each.is_used}
        for follower in self.followers.values():
            follower.is_used = False
        self.is_used = False

    @property
    def count(self) -> list[int]:
        """How many pods fit into each domain."""
        if self.source.touched:
            self.source.settle()
        return self._count

    @property
    def mask(self) -> list[int]:
        """For each group, a bit for each count that occurs."""
        if self.source.touched:
            self.source.settle()
        return self._mask

    @property
    def at(self) -> list[dict[int, int]]:
        """For each group, the domains of each count, as bits."""
        if self.source.touched:
            self.source.settle()
        return self._at

    def touch(self, nodes: Iterable[int]) -> None:
        """Something changed on these nodes."""
        self.touched.update(nodes if isinstance(nodes, dict) else dict.fromkeys(nodes))

    def settle(self) -> None:
        """Count again what was touched."""
        nodes, self.touched = self.touched, {}
        assert self._recount is not None, "only what is counted on nodes is touched"
        self.update(self._recount(self, nodes))

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
        tree, count = self._tree, self._count
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
        at = self._at[group]
        if old:
            rest = at[old] ^ bit
            if rest:
                at[old] = rest
            else:
                del at[old]
                self._mask[group] ^= 1 << old
        if new:
            have = at.get(new)
            if have is None:
                at[new] = bit
                self._mask[group] |= 1 << new
            else:
                at[new] = have | bit
