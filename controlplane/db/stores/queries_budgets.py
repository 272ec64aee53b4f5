"""Read models of budgets: what Queues have used of them in the period that runs, also what runs has used up to now."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy.orm import Session

from controlplane.contract.rest.tenancy import BudgetView
from controlplane.core.budgets import HOUR, Balance, balances
from controlplane.core.ids import QueueId
from controlplane.db.spent_reader import budgets, spent


def views(session: Session, now: datetime) -> Mapping[int, list[BudgetView]]:
    """Every budget that there is, by Queue; few Queues have any."""
    asked = budgets(session)
    rows = {(each.queue, each.flavor, each.per): each for each in spent(session, asked, now)}
    found: dict[int, list[BudgetView]] = defaultdict(list)
    for queue, listed in asked:
        found[queue] = [_view(each) for each in balances(QueueId(queue), listed, rows, now)]
    return found


def _view(each: Balance) -> BudgetView:
    return BudgetView(
        flavor=each.budget.flavor,
        limit=each.budget.device_hours,
        used=each.used // HOUR,
        per=each.budget.per.value,
        hard=each.budget.is_hard,
        is_spent=each.left == 0,
        ends_at=each.until,
    )
