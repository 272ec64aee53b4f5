"""An independent oracle for fair shares: from the Queues' documents, by another algorithm, with exact fractions.

It reads no quota tree. S, K and B are worked out from the formulas as they are written down, everything is recursion
over paths, and what is borrowed is found by letting all borrowers rise until one has enough or nothing is left.
"""

import random
from collections.abc import Mapping
from fractions import Fraction

from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.quota import QuotaTree
from controlplane.core.shares import fair_shares
from controlplane.core.tenancy import Queue, Quota

DEPTH = 5
Limits = tuple[int, int, int | None]  # S, K, B


class Oracle:
    """Shares of one Flavor."""

    def __init__(self, queues: Mapping[str, Queue], flavor: str, demand: Mapping[str, int], owned: int = 0) -> None:
        """`demand` by path, in units; `owned` is what clusters own, for a root without a nominal."""
        self.queues, self.flavor, self.demand, self.owned = queues, flavor, demand, owned
        self.result: dict[str, Fraction] = {}
        self._limits: dict[str, Limits] = {}
        for path in queues:
            if "/" not in path and self.quota(path).nominal is None:
                missing = sum(self.limits(each)[0] for each in queues if "/" not in each) - owned
                self._take_off(path, max(0, min(missing, self.limits(path)[0])))
        for path in queues:
            if "/" not in path:
                self.result[path] = self._give(path, Fraction(min(self.limits(path)[0], self.wants(path))))

    def children(self, path: str) -> list[str]:
        return [each for each in self.queues if each.rpartition("/")[0] == path]

    def quota(self, path: str) -> Quota:
        listed = [quota for quota in self.queues[path].quotas if quota.flavor == self.flavor]
        return listed[0] if listed else Quota(FlavorName(self.flavor), 0)

    def limits(self, path: str) -> Limits:
        if path not in self._limits:
            self._limits[path] = self._reckoned(path)
        return self._limits[path]

    def _reckoned(self, path: str) -> Limits:
        quota = self.quota(path)
        lent = sum(s - k for s, k, _ in map(self.limits, self.children(path)))
        nominal = quota.nominal
        if nominal is None:
            others = [each for each in self.queues if "/" not in each and each != path]
            nominal = max(0, self.owned - lent - sum(self.limits(each)[0] for each in others))
        s = nominal + lent
        return s, 0 if quota.lend is None else max(0, s - quota.lend), quota.borrow

    def _take_off(self, path: str, amount: int) -> None:
        """What clusters do not have: off its own nominal, then off what its children lend, by exact fractions."""
        s, k, b = self.limits(path)
        self._limits[path] = s - amount, k, b
        lent = {child: self.limits(child)[0] - self.limits(child)[1] for child in self.children(path)}
        rest = amount - (s - sum(lent.values()))
        if rest <= 0:
            return
        exact = {child: Fraction(rest * part, sum(lent.values())) for child, part in lent.items()}
        whole = {child: int(part) for child, part in exact.items()}
        for child in sorted(exact, key=lambda child: (whole[child] - exact[child], child))[
            : rest - sum(whole.values())
        ]:
            whole[child] += 1
        for child, taken in whole.items():
            self._take_off(child, taken)

    def wants(self, path: str) -> int:
        s, _, b = self.limits(path)
        wanted = self.demand.get(path, 0)
        wanted += sum(max(0, self.wants(child) - self.limits(child)[1]) for child in self.children(path))
        return wanted if b is None else min(wanted, s + b)

    def _give(self, path: str, capacity: Fraction) -> Fraction:
        """Share a subtree's capacity out; returns all that the subtree has, kept parts of its children included."""
        has: dict[str, Fraction] = {}
        left = capacity
        for child in self.children(path):
            s, k, _ = self.limits(child)
            has[child] = Fraction(min(s, self.wants(child)))
            left -= max(Fraction(0), has[child] - k)
        own = min(left, Fraction(self.demand.get(path, 0)))
        left -= own
        by_weight = {child: Fraction(self.queues[child].weight) for child in has}
        for rates in (by_weight, {child: Fraction(weight == 0) for child, weight in by_weight.items()}):
            while left > 0:
                rising = {child: rates[child] for child in has if rates[child] and has[child] < self.wants(child)}
                if not rising:
                    break
                step = min((self.wants(child) - has[child]) / rate for child, rate in rising.items())
                step = min(step, left / sum(rising.values()))
                for child, rate in rising.items():
                    has[child] += step * rate
                    left -= step * rate
        total = own
        for child, capacity_of_child in has.items():
            self.result[child] = self._give(child, capacity_of_child)
            total += self.result[child]
        return total


class RandomTree:
    """A forest of 2 to 40 Queues with every kind of limit, weights from 0, and some demand anywhere in it."""

    def __init__(self, seed: int, flavor: FlavorName) -> None:
        chance = random.Random(seed)
        self.seed = seed
        self.flavor = flavor
        self.queues: dict[str, Queue] = {}
        self.owned = chance.randrange(200)
        for number in range(chance.randrange(2, 41)):
            above = [path for path in self.queues if path.count("/") < DEPTH - 1]
            parent = chance.choice(above) if above and chance.randrange(10) else ""
            path = f"{parent}/q{number}" if parent else f"q{number}"
            above_it = self.queues[parent].id if parent else None
            self.queues[path] = Queue(
                QueueId(number + 1), path, above_it, chance.randrange(5), self._quota(chance, number)
            )
        asking = chance.sample(list(self.queues), chance.randrange(1, len(self.queues) + 1))
        self.demand = {path: chance.randrange(60) for path in asking}

    def __repr__(self) -> str:
        return f"RandomTree({self.seed}, {self.flavor!r})"

    def shares(self) -> dict[str, Fraction]:
        """What the product says, by path; 0 for everybody it does not name."""
        ids = {path: queue.id for path, queue in self.queues.items()}
        found = fair_shares(self.tree(), {(ids[path], self.flavor): units for path, units in self.demand.items()})
        return {path: found.get((queue, self.flavor), Fraction(0)) for path, queue in ids.items()}

    def expected(self) -> dict[str, Fraction]:
        """What the oracle says."""
        return Oracle(self.queues, self.flavor, self.demand, self.owned).result

    def tree(self, used: Mapping[str, int] | None = None) -> QuotaTree:
        """Its quota tree, with this in use."""
        usage = {(self.queues[path].id, self.flavor): units for path, units in (used or {}).items()}
        return QuotaTree(self.queues.values(), usage, {self.flavor: self.owned})

    def _quota(self, chance: random.Random, number: int) -> tuple[Quota, ...]:
        if chance.randrange(5) == 0 and number:
            return ()
        borrow = chance.choice((None, None, 0, chance.randrange(40)))
        lend = chance.choice((None, None, 0, chance.randrange(40)))
        nominal = None if number == 0 and chance.randrange(2) else chance.randrange(40)
        return (Quota(self.flavor, nominal, borrow, lend),)
