"""Keeps a World's quota tree between cycles: with 100,000 Queues it takes a second to build and no time to follow.

It is told each row that changes and brings the tree up to date when the next Snapshot is frozen: usage by what came
and went, a new tree only where Queues changed. What is charged is by leaf Queue and Flavor, as in `scenario.tree_of`.
"""

from collections.abc import Mapping

from controlplane.core.demand import RunningAttempt
from controlplane.core.facts.planning import Key, Table, Value
from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.quota import QuotaTree
from controlplane.core.scenario import tree_of
from controlplane.core.snapshot import Snapshot

_Account = tuple[QueueId, FlavorName]


class WarmTree:
    """The tree, and what it does not know yet."""

    def __init__(self) -> None:
        """Nothing known: the first tree is a new one."""
        self._tree: QuotaTree | None = None
        self._owned: Mapping[FlavorName, int] = {}
        self._owed: dict[_Account, int] = {}

    def follow(self, table: Table, key: Key, before: Value | None, after: Value | None) -> None:
        """Note what a changed row means for the tree."""
        if table is Table.QUEUES:
            self._tree = None  # limits, parents, names: built anew
        if self._tree is None:
            return
        if table is Table.RUNNING:
            self._note(_charges(before), -1)
            self._note(_charges(after), +1)
        elif table is Table.USAGE_ELSEWHERE:
            assert isinstance(key, tuple)
            account = QueueId(int(key[0])), FlavorName(str(key[1]))
            self._note({account: _amount(after) - _amount(before)}, +1)

    def of(self, snapshot: Snapshot, owned: Mapping[FlavorName, int]) -> QuotaTree:
        """The tree of the Snapshot just frozen; `owned` is what all accepted clusters own, also in other Pools."""
        if self._tree is None:
            self._tree = tree_of(snapshot, owned)
        else:
            self._bring_up_to_date(self._tree, owned)
        self._owned, self._owed = dict(owned), {}
        return self._tree

    def _bring_up_to_date(self, tree: QuotaTree, owned: Mapping[FlavorName, int]) -> None:
        tree.rollback(0)  # a cycle that crashed may have left something
        if owned != self._owned:
            tree.own(owned)
        for (queue, flavor), amount in sorted(self._owed.items()):
            if queue in tree and amount > 0:
                tree.charge(queue, flavor, amount)
            elif queue in tree:
                tree.refund(queue, flavor, -amount)
        tree.settle()

    def _note(self, amounts: Mapping[_Account, int], sign: int) -> None:
        for account, amount in amounts.items():
            self._owed[account] = self._owed.get(account, 0) + sign * amount


def _charges(row: Value | None) -> dict[_Account, int]:
    if not isinstance(row, RunningAttempt):
        return {}
    return {(row.queue, flavor): amount for flavor, amount in row.charges}


def _amount(row: Value | None) -> int:
    return row if isinstance(row, int) else 0
