"""What turns remember within a cycle: weights as history makes them, and who used less in a leaf.

An admission counts at once, by an *entry penalty*: as if its units were in use until the next reckoning. It is derived
from the live Attempts that were placed since the last one, one penalty each, so none can be forgotten when an Attempt
ends, nor be counted twice: with the reckoning that counts what it really used, it is gone.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from controlplane.core.demand import Workload
from controlplane.core.history import WHOLE, Account, Owner, lessened, share_of_window
from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.policy import Policy
from controlplane.core.quota import QuotaTree
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Standing

Charges = Iterable[tuple[FlavorName, int]]


class Memory:
    """Of one cycle; follows what the cycle admits."""

    def __init__(
        self,
        tree: QuotaTree,
        snapshot: Snapshot,
        policy: Policy,
        now: datetime,
        owned: Mapping[FlavorName, int],
    ) -> None:
        """`tree` is charged as the cycle goes on; `owned` is what this Pool's clusters own."""
        self._tree, self._policy, self._owned = tree, policy, owned
        self._standings = snapshot.standings
        self._owners = snapshot.owners
        self._is_on = policy.history_strength_permille > 0
        self._entered: dict[Account, int] = {}  # units of Attempts since the last reckoning, also on the way up
        self._flavors: dict[QueueId, list[FlavorName]] = {}
        self._entered_by: dict[Owner, int] = {}
        self._among: dict[QueueId, int] = {}  # by parent: the weights of those of its children that take part
        if self._is_on:
            self._count_in(workload.queue for workload in snapshot.waiting.values())
            at_most = now - timedelta(seconds=policy.weights_every_seconds)
            since = max((at.reckoned_at or at_most for at in self._standings.values()), default=at_most)
            since = max(since, at_most)
            for attempt in snapshot.running.values():
                if attempt.placed_at > since:
                    self._enter(attempt.queue, attempt.owner, attempt.charges)

    def weight(self, queue: QueueId) -> int:
        """What counts of a Queue's weight now, in millionths of a whole one."""
        plain = self._tree.queues[queue].weight
        if not self._is_on:
            return plain * WHOLE
        standing = self._standings.get(queue)
        part = WHOLE if standing is None else standing.weight
        off = max((self._penalty(queue, flavor) for flavor in self._flavors.get(queue, ())), default=0)
        return plain * max(self._policy.history_floor_permille * (WHOLE // 1_000), part - off)

    def used(self, queue: QueueId, owner: str) -> int:
        """What an owner has had lately of what others of the same leaf waited for, in device-microseconds."""
        if not self._is_on:
            return 0
        entered = self._entered_by.get((queue, owner), 0) * self._policy.weights_every_seconds
        return (self._owners.get((queue, owner), 0) + entered) * WHOLE

    def admitted(self, workload: Workload, charges: Charges) -> None:
        """It starts, and its quota is charged already."""
        if self._is_on:
            self._enter(workload.queue, workload.owner, charges)

    def _enter(self, leaf: QueueId, owner: str, charges: Charges) -> None:
        for flavor, units in charges:
            self._entered_by[leaf, owner] = self._entered_by.get((leaf, owner), 0) + units
            for queue in self._tree.path(leaf)[:-1] if leaf in self._tree else ():
                if (queue, flavor) not in self._entered:
                    self._flavors.setdefault(queue, []).append(flavor)
                self._entered[queue, flavor] = self._entered.get((queue, flavor), 0) + units

    def _penalty(self, queue: QueueId, flavor: FlavorName) -> int:
        """Millionths; what the Queue keeps from its siblings costs nothing."""
        account = self._tree.account(queue, flavor)
        units = min(self._entered[queue, flavor], account.u - account.k)
        parent = self._tree.parent(queue)
        if units <= 0 or parent is None:
            return 0
        share = share_of_window(self._tree, self._policy, self._owned, (queue, flavor), self._among.get(parent, 0))
        return lessened(self._policy, units * self._policy.weights_every_seconds * WHOLE, share)

    def _count_in(self, leaves: Iterable[QueueId]) -> None:
        """Note who takes part: whoever waits, and whoever used much lately."""
        part = {queue for leaf in set(leaves) if leaf in self._tree for queue in self._tree.path(leaf)}
        for queue in part | {name for name, each in self._standings.items() if name in self._tree and _has_much(each)}:
            parent = self._tree.parent(queue)
            if parent is not None:
                self._among[parent] = self._among.get(parent, 0) + self._tree.queues[queue].weight


def _has_much(standing: Standing) -> bool:
    """Whether it takes part in sharing by what it used alone: a thousandth of its own share at least."""
    return standing.contended > 0 and standing.contended * 1_000 >= standing.contended + standing.credit
