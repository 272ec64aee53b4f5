"""What Queues have used of their budgets at a world's moment: what their documents say, and what runs below them.

As a plane reckons it from its ledger; `core.budgets` says what is left of it.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from controlplane.contract.rest.worlds import WorldQueue
from controlplane.core.budgets import EVERY_FLAVOR, HOUR, period_of
from controlplane.core.demand import RunningAttempt
from controlplane.core.tenancy import Spent
from controlplane.worlds.tree import Tree

_SECOND = timedelta(seconds=1)


def spent_of(tree: Tree, running: Iterable[RunningAttempt], now: datetime) -> tuple[Spent, ...]:
    """One for each budget of each Queue; `running` are those of all Pools."""
    paths = {queue.id: path for path, queue in tree.queues.items()}
    live = [(paths[each.queue], each) for each in running]
    found: list[Spent] = []
    for path, queue in sorted(tree.queues.items()):
        document = tree.members[path].document
        assert isinstance(document, WorldQueue)
        before = {(each.flavor, each.per): each.device_hours * HOUR for each in document.spec.spent}
        below = [attempt for at, attempt in live if f"{at}/".startswith(f"{path}/")] if queue.budgets else []
        for budget in queue.budgets:
            began, _ = period_of(budget.per, now)
            units = late = 0
            for attempt in below:
                amount = sum(of for flavor, of in attempt.charges if budget.flavor in {flavor, EVERY_FLAVOR})
                units += amount
                late += amount * (max(timedelta(0), attempt.placed_at - began) // _SECOND)
            ended = before.get((budget.flavor, budget.per.value), 0)
            found.append(Spent(queue.id, budget.flavor, budget.per, ended, began, units, late))
    return tuple(found)
