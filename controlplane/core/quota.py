"""The quota tree: who may use how many units of a Flavor, and which accounts a use changes.

The formulas are those of Kueue's `resource_node.go`, on integers per (Queue, Flavor): subtree quota S,
kept part K, borrowing limit B, usage U. `charge` does not ask whether the amount is available, because
running work is a fact; whoever plans asks `available` first. What accounts look like on disk is `db`'s.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.resources import UNLIMITED, add, subtract, total
from controlplane.core.tenancy import Queue, Quota

DEPTH_MAX = 8


class ImpossibleTree(ValueError):
    """The Queues form no tree: a cycle, a missing parent, too deep, or two roots that own one Flavor."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One account's part of a charge or refund; `amount` is always above 0."""

    queue: QueueId
    flavor: FlavorName
    amount: int


@dataclass(frozen=True, slots=True)
class AccountRow:
    """One account as it is materialised. `overdraft` is what usage exceeds the limits by, after a cut."""

    queue: QueueId
    flavor: FlavorName
    parent: QueueId | None
    s: int
    k: int
    b: int | None
    u: int
    overdraft: int = 0


@dataclass(frozen=True, slots=True)
class Limit:
    """Which Queue on the way to the root stops a request, and its numbers."""

    queue: QueueId
    used: int
    limit: int


class Account:
    """The live numbers of one (Queue, Flavor); only QuotaTree writes them."""

    __slots__ = ("b", "flavor", "given", "k", "parent", "queue", "s", "u")

    def __init__(self, queue: QueueId, flavor: FlavorName, parent: "Account | None") -> None:
        self.queue = queue
        self.flavor = flavor
        self.parent = parent
        self.s = 0
        self.given = 0  # S before anything was taken off it because it is not there
        self.k = 0
        self.b: int | None = None
        self.u = 0

    def passes_up(self, amount: int) -> int:
        """How much of a charge of `amount` the parent would see."""
        return max(0, amount - max(0, self.k - self.u))

    def available(self) -> int:
        """How much more may be used here now; negative after a cut, which only stops admission."""
        if self.parent is None:
            return subtract(self.s, self.u)
        above = self.parent.available()
        if self.b is not None:
            above = min(above, self._stored_above())
        return add(max(0, self.k - self.u), above)

    def _stored_above(self) -> int:
        assert self.b is not None
        return add(subtract(subtract(self.s, self.k), max(0, self.u - self.k)), self.b)

    def potential(self) -> int:
        """The most that could ever be used here, were nobody else using anything."""
        if self.parent is None:
            return self.s
        reachable = add(self.k, self.parent.potential())
        return reachable if self.b is None else min(add(self.s, self.b), reachable)

    def limit(self) -> Limit:
        """The account on the way to the root that stops more use first."""
        if self.parent is None:
            return Limit(self.queue, self.u, self.s)
        if self.b is not None and self._stored_above() <= self.parent.available():
            return Limit(self.queue, self.u, add(self.s, self.b))
        return self.parent.limit()

    def overdraft(self) -> int:
        """Units in use beyond what the database's checks would allow without overdraft."""
        over = subtract(self.u, self.s) if self.parent is None else 0
        if self.b is not None:
            over = max(over, subtract(self.u, add(self.s, self.b)))
        return max(0, over)

    def row(self) -> AccountRow:
        """A copy of the numbers."""
        parent = None if self.parent is None else self.parent.queue
        return AccountRow(self.queue, self.flavor, parent, self.s, self.k, self.b, self.u, self.overdraft())


class QuotaTree:
    """Every account of every Queue, with an undo log, so that a plan can be tried and taken back."""

    def __init__(
        self,
        queues: Iterable[Queue],
        usage: Mapping[tuple[QueueId, FlavorName], int] | None = None,
        owned: Mapping[FlavorName, int] | None = None,
        *,
        is_as_given: bool = False,
    ) -> None:
        """`usage` is by leaf Queue; `owned` is what all accepted clusters own, by Flavor; None: nobody knows.

        `is_as_given`: Queues have what they were given, also where that is not there (yet).
        """
        self._is_as_given = is_as_given
        self.queues: Mapping[QueueId, Queue] = {queue.id: queue for queue in sorted(queues, key=lambda q: q.path)}
        self._parents: dict[QueueId, QueueId | None] = {queue.id: queue.parent for queue in self.queues.values()}
        self._accounts: dict[QueueId, dict[FlavorName, Account]] = {queue: {} for queue in self.queues}
        self._children: dict[QueueId, list[QueueId]] | None = None
        self._log: list[tuple[Account, int]] = []
        self._unset: dict[FlavorName, tuple[Account, Quota, int, int]] = {}  # roots that own what is left: see `own`
        self._cut: dict[FlavorName, list[Account]] = {}  # from which something was taken off
        self._accumulate(_children_first(self.queues))
        if owned is not None:
            self.own(owned)
        for (queue, flavor), amount in sorted((usage or {}).items()):
            self.charge(queue, flavor, amount)
        self.settle()

    @classmethod
    def from_rows(cls, rows: Iterable[AccountRow]) -> "QuotaTree":
        """Rebuild the tree from materialised accounts, without the Queues' documents."""
        tree = cls(())
        listed = sorted(rows, key=lambda row: (row.queue, row.flavor))
        tree._parents = {row.queue: row.parent for row in listed}
        tree._accounts = {queue: {} for queue in tree._parents}
        for row in listed:
            account = tree.account(row.queue, row.flavor)
            account.s, account.k, account.b, account.u = row.s, row.k, row.b, row.u
        return tree

    def __contains__(self, queue: object) -> bool:
        """Whether there is such a Queue."""
        return queue in self._parents

    def path(self, queue: QueueId) -> tuple[QueueId, ...]:
        """The Queue and its ancestors, the root last."""
        result = [queue]
        while (parent := self._parents[result[-1]]) is not None:
            result.append(parent)
        return tuple(result)

    def parent(self, queue: QueueId) -> QueueId | None:
        """The Queue above; None for a root."""
        return self._parents[queue]

    def children(self, queue: QueueId) -> Sequence[QueueId]:
        """The Queues right below, in a fixed order."""
        if self._children is None:
            self._children = {}
            for each in sorted(self._parents):
                if (parent := self._parents[each]) is not None:
                    self._children.setdefault(parent, []).append(each)
        return self._children.get(queue, ())

    def account(self, queue: QueueId, flavor: FlavorName) -> Account:
        """The live account; made on first use, since a Flavor that a Queue does not list has nominal 0."""
        mine = self._accounts[queue]
        account = mine.get(flavor)
        if account is None:
            parent = self._parents[queue]
            account = Account(queue, flavor, None if parent is None else self.account(parent, flavor))
            mine[flavor] = account
        return account

    def accounts_of(self, queue: QueueId) -> Mapping[FlavorName, Account]:
        """All accounts of one Queue that anything has touched so far."""
        return self._accounts[queue]

    def available(self, queue: QueueId, flavor: FlavorName) -> int:
        """How much more of `flavor` the Queue may use now, by its own and every ancestor's limits."""
        return self.account(queue, flavor).available()

    def potential(self, queue: QueueId, flavor: FlavorName) -> int:
        """The most the Queue could ever use."""
        return self.account(queue, flavor).potential()

    def limit(self, queue: QueueId, flavor: FlavorName) -> Limit:
        """Which Queue stops it first, with the numbers."""
        return self.account(queue, flavor).limit()

    def charge(self, queue: QueueId, flavor: FlavorName, amount: int) -> tuple[Leg, ...]:
        """Use `amount` more; one leg per account that changed, the leaf first."""
        legs = []
        account: Account | None = self.account(queue, flavor)
        while account is not None and amount > 0:
            legs.append(Leg(account.queue, flavor, amount))
            passed = account.passes_up(amount)
            self._write(account, add(account.u, amount))
            account, amount = account.parent, passed
        return tuple(legs)

    def refund(self, queue: QueueId, flavor: FlavorName, amount: int) -> tuple[Leg, ...]:
        """Use `amount` less; one leg per account that changed. Usage never falls below 0."""
        legs = []
        account: Account | None = self.account(queue, flavor)
        while account is not None and (amount := min(amount, account.u)) > 0:
            legs.append(Leg(account.queue, flavor, amount))
            passed = min(amount, max(0, account.u - account.k))
            self._write(account, account.u - amount)
            account, amount = account.parent, passed
        return tuple(legs)

    def checkpoint(self) -> int:
        """A mark to roll back to."""
        return len(self._log)

    def rollback(self, mark: int) -> None:
        """Undo everything since `mark`, in time proportional to what changed."""
        while len(self._log) > mark:
            account, used = self._log.pop()
            account.u = used

    def settle(self) -> None:
        """Take what is charged now as given: no rollback reaches behind it."""
        self._log.clear()

    def own(self, owned: Mapping[FlavorName, int]) -> None:
        """Give the roots without a nominal what clusters own, less what is promised of it; usage stays as it is.

        Where more is promised than is there, what is missing is taken off what the root's children lend, each by its
        part of that, and below them in the same way once an own nominal is used up.
        """
        for flavor, (account, quota, claimed, lent) in self._unset.items():
            for cut in self._cut.pop(flavor, ()):
                cut.s = cut.given
            there = owned.get(flavor, 0)
            _set_limits(account, quota, add(lent, max(0, there - claimed)))
            if claimed > there and not self._is_as_given:
                self._take_off(account, min(lent, claimed - there), self._cut.setdefault(flavor, []))
                account.k = _kept(account, quota)
        roots = [queue for queue, parent in self._parents.items() if parent is None]
        for flavor in owned:
            for root in roots:
                self.account(root, flavor)

    def misses(self, flavor: FlavorName) -> bool:
        """Whether Queues were given more of it than there is, so that they could use more if it came."""
        return bool(self._cut.get(flavor))

    def account_rows(self) -> tuple[AccountRow, ...]:
        """Every Queue's account of every Flavor that anybody lists, owns or uses, in a fixed order."""
        flavors = sorted({flavor for mine in self._accounts.values() for flavor in mine})
        return tuple(self.account(queue, flavor).row() for queue in sorted(self._accounts) for flavor in flavors)

    def _take_off(self, account: Account, amount: int, cut: list[Account]) -> None:
        """Lower S by `amount`: first its own nominal, then what its children lend, in proportion to that."""
        account.s -= amount
        cut.append(account)
        known = (self._accounts[child].get(account.flavor) for child in self.children(account.queue))
        lenders = [child for child in known if child is not None and child.given > child.k]
        parts = {self.queues[child.queue].path: child.given - child.k for child in lenders}
        amount -= max(0, account.given - sum(parts.values()))
        if amount > 0:
            taken = divided(amount, parts)
            for child in lenders:
                if (part := taken[self.queues[child.queue].path]) > 0:
                    self._take_off(child, part, cut)

    def _write(self, account: Account, used: int) -> None:
        self._log.append((account, account.u))
        account.u = used

    def _accumulate(self, ordered: tuple[Queue, ...]) -> None:
        """Fill S and K, children before parents, and note which roots own what is left."""
        unset: dict[FlavorName, Queue] = {}
        lent: dict[tuple[QueueId, FlavorName], int] = {}
        for queue in ordered:
            listed = {quota.flavor: quota for quota in queue.quotas}
            for quota in queue.quotas:
                if queue.parent is None and quota.nominal is None:
                    other = unset.setdefault(quota.flavor, queue)
                    if other is not queue:
                        raise ImpossibleTree(f"{other.path} and {queue.path} both own what is left of {quota.flavor}")
            for flavor in sorted(listed.keys() | self._accounts[queue.id].keys()):
                account = self.account(queue.id, flavor)
                _set_limits(account, listed.get(flavor), lent.get((queue.id, flavor), 0))
                if account.parent is not None:
                    above = (account.parent.queue, flavor)
                    lent[above] = add(lent.get(above, 0), account.s - account.k)
        roots = [queue.id for queue in ordered if queue.parent is None]
        for flavor, queue in unset.items():
            claimed = total(self._accounts[root][flavor].s for root in roots if flavor in self._accounts[root])
            account = self.account(queue.id, flavor)
            quota = next(quota for quota in queue.quotas if quota.flavor == flavor)
            self._unset[flavor] = account, quota, claimed, account.s


def divided(amount: int, parts: Mapping[str, int]) -> dict[str, int]:
    """`amount` in proportion to `parts`, by largest remainder, ties by name; never more of anything than its part."""
    whole = sum(parts.values())
    amount = min(amount, whole)
    shares = {name: amount * part // whole for name, part in parts.items()} if whole else dict.fromkeys(parts, 0)
    first = sorted(parts, key=lambda name: (-(amount * parts[name] % whole), name)) if whole else []
    for name in first[: amount - sum(shares.values())]:
        shares[name] += 1
    return shares


def _set_limits(account: Account, quota: Quota | None, lent: int) -> None:
    account.s = account.given = add(lent, (quota.nominal or 0) if quota is not None else 0)
    account.b = quota.borrow if quota is not None else None
    account.k = _kept(account, quota)
    if account.b is not None and account.b >= UNLIMITED:
        account.b = None


def _kept(account: Account, quota: Quota | None) -> int:
    return max(0, subtract(account.s, quota.lend)) if quota is not None and quota.lend is not None else 0


def _children_first(queues: Mapping[QueueId, Queue]) -> tuple[Queue, ...]:
    """Order Queues deepest first; raise ImpossibleTree for what is no tree."""
    depths: dict[QueueId, int] = {}
    for queue in queues.values():
        depth, at = 1, queue
        while at.parent is not None:
            if at.parent not in queues:
                raise ImpossibleTree(f"{at.path} has no parent")
            depth, at = depth + 1, queues[at.parent]
            if depth > DEPTH_MAX:
                raise ImpossibleTree(f"{queue.path} is in a cycle or deeper than {DEPTH_MAX} levels")
        depths[queue.id] = depth
    return tuple(sorted(queues.values(), key=lambda queue: (-depths[queue.id], queue.path, queue.id)))
