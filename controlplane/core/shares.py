"""What each Queue is entitled to, given what all of them want: for display, and to measure turns against.

Nothing is decided here. Amounts are units of a Flavor; shares are exact fractions, since a third of a card is what
three equal teams are entitled to of one.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.quota import Account, QuotaTree

Demand = Mapping[tuple[QueueId, FlavorName], int]
Shares = dict[tuple[QueueId, FlavorName], Fraction]
_NOTHING = Fraction(0)


def fair_shares(tree: QuotaTree, demand: Demand, weights: Mapping[QueueId, int] | None = None) -> Shares:
    """Divide every Flavor fairly among those that want it: weighted max-min, level by level. Usage is not looked at.

    `demand` is what each Queue itself wants in all, in use or waiting, in units. The result has what each Queue with a
    demand in it or below it is entitled to, an inner one for all below it together; who is not in it has nothing.

    By S, K and B of `quota`: a Queue *wants* what it asks for itself and what its children want beyond their K, at most
    S + B where B is set. A root with S shares out min(S, what it wants). A Queue that may use C shares it out thus:

    1. Each child keeps its K whatever C is, and of what it wants up to S it is *guaranteed* the rest, out of C. (What
       children lend is part of their parent's S, so C is always enough.)
    2. Of what is left, work that waits in the Queue itself comes first: it has its turn before the children.
    3. What is still left is *borrowed* by the children that want more than S: the highest level x is taken at which
       every child has min(what it wants beyond S, x times its weight).
    4. What nobody with a weight wants is divided alike among the children of weight 0.

    So no child could have more but at the cost of a sibling that borrows no more by weight than it does. `weights` are
    those of the tree's Queues, if it has them.
    """
    if weights is None:
        weights = {queue.id: queue.weight for queue in tree.queues.values()}
    by_flavor: dict[FlavorName, dict[QueueId, int]] = {}
    for (queue, flavor), amount in demand.items():
        if amount > 0 and queue in tree:
            by_flavor.setdefault(flavor, {})[queue] = amount
    shares: Shares = {}
    for flavor in sorted(by_flavor):
        shares.update(_Division(tree, flavor, by_flavor[flavor], weights).shares())
    return shares


def level(wants: Iterable[tuple[int, int]], room: Fraction) -> Fraction | None:
    """The x at which the sum of min(want, x times weight) is `room`; None if there is room for all. Weights above 0."""
    wants = sorted(wants, key=lambda each: Fraction(*each))
    weights = sum(weight for _, weight in wants)
    for want, weight in wants:
        if want * weights > room * weight:
            return Fraction(room, weights)
        room -= want
        weights -= weight
    return None


class _Division:
    """One Flavor among those that want it."""

    def __init__(
        self, tree: QuotaTree, flavor: FlavorName, own: Mapping[QueueId, int], weights: Mapping[QueueId, int]
    ) -> None:
        self._tree = tree
        self._weights = weights
        self._flavor = flavor
        self._own = own
        self._children: dict[QueueId | None, list[QueueId]] = {}
        self._wants: dict[QueueId, int] = {}
        depth: dict[QueueId, int] = {}
        for queue in sorted(own):
            path = tree.path(queue)
            for below, each in enumerate(path):
                if each not in depth:
                    depth[each] = len(path) - below
                    parent = path[below + 1] if below + 1 < len(path) else None
                    self._children.setdefault(parent, []).append(each)
        self._downwards = sorted(depth, key=lambda queue: (depth[queue], queue))
        for queue in reversed(self._downwards):
            self._wants[queue] = self._wanted(queue)

    def shares(self) -> Shares:
        """By Queue, also inner ones."""
        may_use = {root: Fraction(max(0, min(self._s(root), self._wants[root]))) for root in self._children[None]}
        result: Shares = {}
        for queue in self._downwards:
            children = self._children.get(queue, [])
            if children:
                own = self._share_out(queue, children, may_use)
                result[queue, self._flavor] = own
            else:
                result[queue, self._flavor] = may_use[queue]
        for queue in reversed(self._downwards):
            for child in self._children.get(queue, []):
                result[queue, self._flavor] += result[child, self._flavor]
        return result

    def _share_out(self, queue: QueueId, children: list[QueueId], may_use: dict[QueueId, Fraction]) -> Fraction:
        """Set what each child may use; returns what is left to the Queue's own work."""
        room = may_use[queue]
        for child in children:
            guaranteed = min(self._wants[child], self._s(child))
            may_use[child] = Fraction(guaranteed)
            room -= max(0, guaranteed - self._account(child).k)
        own = min(room, Fraction(self._own.get(queue, 0)))
        room -= own
        more = {child: self._wants[child] - self._s(child) for child in children if self._wants[child] > self._s(child)}
        weights = {child: self._weights[child] for child in more}
        room = self._lend(room, {child: (more[child], weights[child]) for child in more if weights[child] > 0}, may_use)
        self._lend(room, {child: (more[child], 1) for child in more if weights[child] <= 0}, may_use)
        return own

    @staticmethod
    def _lend(room: Fraction, asked: Mapping[QueueId, tuple[int, int]], may_use: dict[QueueId, Fraction]) -> Fraction:
        """Give more to those that want more; returns what is left."""
        height = level(asked.values(), room)
        for child, (want, weight) in asked.items():
            borrowed = Fraction(want) if height is None else min(Fraction(want), height * weight)
            may_use[child] += borrowed
            room -= borrowed
        return room

    def _wanted(self, queue: QueueId) -> int:
        account = self._account(queue)
        below = ((self._wants[child], self._account(child).k) for child in self._children.get(queue, []))
        wanted = self._own.get(queue, 0) + sum(max(0, wants - kept) for wants, kept in below)
        return wanted if account.b is None else min(wanted, account.s + account.b)

    def _account(self, queue: QueueId) -> Account:
        return self._tree.account(queue, self._flavor)

    def _s(self, queue: QueueId) -> int:
        return self._account(queue).s
