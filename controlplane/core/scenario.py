"""A what-if overlay on one Snapshot: place, evict, keep; roll back whatever did not work out.

It joins the fleet index and the quota tree under one undo log. It decides nothing: whether something may
be placed or evicted is asked by `placement`, `reclaim` and `cycle`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from controlplane.core.capacity import Cluster
from controlplane.core.demand import Earmark, NodeShare, RunningAttempt, StrategyName
from controlplane.core.ids import ClusterId, FlavorName, QueueId, WorkloadId
from controlplane.core.index import FleetIndex, Take
from controlplane.core.lifecycle import ClusterState
from controlplane.core.quota import Leg, QuotaTree
from controlplane.core.snapshot import Snapshot

Mark = tuple[int, int]
Charges = Sequence[tuple[FlavorName, int]]


class Scenario:
    """One cycle's working state. Index and tree are handed back as they came by `rollback(start)`."""

    def __init__(
        self, snapshot: Snapshot, now: datetime, index: FleetIndex | None = None, tree: QuotaTree | None = None
    ) -> None:
        """`index` and `tree`, if given, are warm ones of this very Snapshot."""
        self.snapshot = snapshot
        self.index = index or FleetIndex(snapshot.clusters, snapshot.nodes)
        self.tree = tree or tree_of(snapshot, owned_by_all(snapshot, self.index))
        self.work = 0  # work units: looks at Workloads, clusters and nodes, counted so that replay agrees
        self.start = self.checkpoint()
        self.earmarks: dict[WorkloadId, Earmark] = {}
        # What a look at a cluster gave: (its version, the result), by what was asked. `placement.workload` keeps it.
        self.looks: dict[object, dict[ClusterId, tuple[int, object]]] = {}
        # What `placement.outlook` settles for a cycle: the strategy of each Flavor, what places in a cluster cost.
        self.picks: Mapping[FlavorName, StrategyName] = {}
        self.preference: Mapping[ClusterId, int] = {}
        self._legs_kept: dict[WorkloadId, list[Leg]] = {}
        self._kept: dict[tuple[QueueId, FlavorName], int] = {}  # their sums
        for earmark in sorted(snapshot.earmarks.values(), key=lambda earmark: earmark.workload):
            if earmark.until > now and earmark.workload not in snapshot.running:  # placed, it holds its own room
                self.keep(earmark)

    def checkpoint(self) -> Mark:
        """A mark to roll back to."""
        return self.index.checkpoint(), self.tree.checkpoint()

    def rollback(self, mark: Mark) -> None:
        """Undo everything since `mark`."""
        self.index.rollback(mark[0])
        self.tree.rollback(mark[1])

    def charge(self, queue: QueueId, charges: Charges) -> None:
        """Charge a Queue; its nodes are taken from the index by whoever found them."""
        for flavor, amount in charges:
            self.tree.charge(queue, flavor, amount)

    def evict(self, attempt: RunningAttempt) -> None:
        """Free what a running Attempt holds, as if it had gone."""
        self.index.take([take.reversed() for take in self._takes(attempt.shares)])
        if attempt.queue in self.tree:
            for flavor, amount in attempt.charges:
                self.tree.refund(attempt.queue, flavor, amount)

    def restore(self, attempt: RunningAttempt) -> None:
        """Let an evicted Attempt run after all."""
        self.index.take(self._takes(attempt.shares))
        if attempt.queue in self.tree:
            self.charge(attempt.queue, attempt.charges)

    def keep(self, earmark: Earmark) -> None:
        """Take an Earmark's room and quota away from everyone else."""
        self.earmarks[earmark.workload] = earmark
        self.index.take(self._takes(earmark.shares))
        charges = self._earmarked(earmark)
        if charges:
            queue = self.snapshot.waiting[earmark.workload].queue
            legs = [leg for flavor, amount in charges for leg in self.tree.charge(queue, flavor, amount)]
            self._legs_kept[earmark.workload] = legs
            _add_up(self._kept, legs, 1)

    def open_earmark(self, workload: WorkloadId) -> None:
        """Give a Workload's own Earmark back, so that it can use it; roll back if it does not."""
        earmark = self.earmarks.get(workload)
        if earmark is None:
            return
        self.index.take([take.reversed() for take in self._takes(earmark.shares)])
        for flavor, amount in self._earmarked(earmark):
            self.tree.refund(self.snapshot.waiting[workload].queue, flavor, amount)

    def end_earmark(self, workload: WorkloadId) -> None:
        """Give a Workload's own Earmark back for good: it starts."""
        self.open_earmark(workload)
        self.earmarks.pop(workload, None)
        _add_up(self._kept, self._legs_kept.pop(workload, ()), -1)

    def own_room(self, workload: WorkloadId, room: Mapping[FlavorName, int]) -> Mapping[FlavorName, int]:
        """At least what its own Earmark, which is open, keeps of quota, as far as that is free by now.

        What others wait for was planned beside it, so it need not wait until their victims have gone as well.
        """
        earmark = self.earmarks.get(workload)
        own = {} if earmark is None else dict(self._earmarked(earmark))
        if all(room.get(flavor, 0) >= amount for flavor, amount in own.items()):
            return room
        mark = self.tree.checkpoint()
        for other in self._legs_kept:
            if other != workload:
                for flavor, amount in self._earmarked(self.earmarks[other]):
                    self.tree.refund(self.snapshot.waiting[other].queue, flavor, amount)
        free = {flavor: self.tree.available(self.snapshot.waiting[workload].queue, flavor) for flavor in own}
        self.tree.rollback(mark)
        return {flavor: max(units, min(free.get(flavor, 0), own.get(flavor, 0))) for flavor, units in room.items()}

    def kept_for_others(self, workload: WorkloadId) -> Mapping[tuple[QueueId, FlavorName], int]:
        """What Earmarks of others make up of the tree's usage, by account."""
        own = self._legs_kept.get(workload)
        if not own:
            return self._kept
        kept = self._kept.copy()
        _add_up(kept, own, -1)
        return kept

    def close_nodes(self, positions: Iterable[int]) -> None:
        """Keep nodes out until rolled back."""
        for position in positions:
            self.index.close(position)

    def load(self, cluster: ClusterId, flavor: FlavorName) -> int:
        """Permille of a cluster's own units of a Flavor that are not free."""
        owned = self.index.owned[cluster].get(flavor, 0)
        if not owned:
            return 0
        return 1000 * (owned - self.index.open_units[cluster].get(flavor, 0)) // owned

    def _takes(self, shares: Iterable[NodeShare]) -> list[Take]:
        position = self.index.tree.position
        return [
            Take(
                position[share.node],
                share.flavor,
                share.amount,
                share.cpu_milli,
                share.memory_bytes,
                share.pods,
                share.rdma,
                share.hugepages_bytes,
                share.local_storage_bytes,
            )
            for share in shares
            if share.node in position
        ]

    def _earmarked(self, earmark: Earmark) -> Charges:
        """What an Earmark keeps of quota; nothing if its Workload no longer waits in a known Queue."""
        workload = self.snapshot.waiting.get(earmark.workload)
        if workload is None or workload.queue not in self.tree:
            return ()
        amounts: dict[FlavorName, int] = {}
        for share in earmark.shares:
            amounts[share.flavor] = amounts.get(share.flavor, 0) + share.amount
        return sorted(amounts.items())


def _add_up(kept: dict[tuple[QueueId, FlavorName], int], legs: Iterable[Leg], sign: int) -> None:
    for leg in legs:
        kept[leg.queue, leg.flavor] = kept.get((leg.queue, leg.flavor), 0) + sign * leg.amount


def tree_of(snapshot: Snapshot, owned: Mapping[FlavorName, int] | None = None) -> QuotaTree:
    """The quota tree of a Snapshot, charged with all that runs and with what other Pools use.

    `owned` is what all accepted clusters own, also in other Pools, if the caller has counted it already.
    """
    usage: dict[tuple[QueueId, FlavorName], int] = {}
    for (queue, flavor), amount in snapshot.usage_elsewhere.items():
        usage[queue, FlavorName(flavor)] = amount
    for attempt in snapshot.running.values():
        for flavor, amount in attempt.charges:
            usage[attempt.queue, flavor] = usage.get((attempt.queue, flavor), 0) + amount
    known = {account: amount for account, amount in usage.items() if account[0] in snapshot.queues}
    if owned is None:
        accepted = {cluster.id for cluster in snapshot.clusters.values() if is_accepted(cluster)}
        told: dict[ClusterId, list[Mapping[FlavorName, int]]] = {}
        for node in snapshot.nodes.values():
            told.setdefault(node.cluster, []).append(node.owned)
        here = {cluster: _summed(told.get(cluster, ())) for cluster in accepted}
        owned = _summed((*here.values(), _counted_beside(snapshot, here), snapshot.owned_elsewhere))
    return QuotaTree(snapshot.queues.values(), known, owned)


def owned_by_all(snapshot: Snapshot, index: FleetIndex) -> dict[FlavorName, int]:
    """What counts of what accepted clusters own, those of this Pool by its index and those of other Pools."""
    beside = _counted_beside(snapshot, index.owned)
    return _summed((owned_here(snapshot, index), beside, snapshot.owned_elsewhere))


def owned_here(snapshot: Snapshot, index: FleetIndex) -> dict[FlavorName, int]:
    """What accepted clusters of this Pool own."""
    return _summed(owned for cluster, owned in index.owned.items() if is_accepted(snapshot.clusters[cluster]))


def _counted_beside(snapshot: Snapshot, told: Mapping[ClusterId, Mapping[FlavorName, int]]) -> dict[FlavorName, int]:
    """Units that count although they are not told any more."""
    beside: dict[FlavorName, int] = {}
    for (cluster, name), units in snapshot.owned_counted.items():
        flavor = FlavorName(name)
        more = units - told.get(cluster, {}).get(flavor, 0)
        if more > 0 and cluster in snapshot.clusters and is_accepted(snapshot.clusters[cluster]):
            beside[flavor] = beside.get(flavor, 0) + more
    return beside


def is_accepted(cluster: Cluster) -> bool:
    """Whether what a Cluster owns counts for quota; also while it is silent: a dark cluster cuts nobody."""
    return cluster.state not in {ClusterState.CREATED, ClusterState.ENROLLED, ClusterState.REMOVED}


def _summed(amounts: Iterable[Mapping[FlavorName, int]]) -> dict[FlavorName, int]:
    result: dict[FlavorName, int] = {}
    for each in amounts:
        for flavor, amount in each.items():
            result[flavor] = result.get(flavor, 0) + amount
    return result
