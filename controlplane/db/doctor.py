"""Runs every invariant that stored rows can show, in one read-only transaction: `muster doctor`, and the end of a test.

What rows cannot show (that a write was lost, that an agent obeys) is for simulations and races. A healthy plane gives
no Violation at any moment, since each change keeps every invariant by itself.
"""

from datetime import datetime

from sqlalchemy import Connection, text

from controlplane.contract.agent.attempts import Budgets
from controlplane.core.facts.violations import Violation
from controlplane.db.invariants import devices, fleet, history, protocol, quota, work

CHECKS = (*quota.CHECKS, *history.CHECKS, *devices.CHECKS, *work.CHECKS, *protocol.CHECKS, *fleet.CHECKS)
PARTIAL_SECONDS = 3_900  # more than a start may take before the plane voids it, where budgets are as usual
_USUAL = Budgets()
_USUAL_SECONDS = _USUAL.bind_seconds + _USUAL.pull_seconds + _USUAL.ready_seconds  # longer ones are given more time
SHOWN_ROWS_MAX = 20
_STATEMENT_SECONDS = 60


def violations(
    connection: Connection, now: datetime | None = None, partial_seconds: int = PARTIAL_SECONDS
) -> list[Violation]:
    """What is broken, by invariant; empty when nothing is. The connection's transaction must not have begun.

    `now` is the database's clock unless given. `partial_seconds`: how long a Workload may be partly running.
    """
    connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
    connection.execute(text(f"SET LOCAL statement_timeout = '{_STATEMENT_SECONDS}s'"))
    bound = {
        "now": now or connection.execute(text("SELECT now()")).scalar_one(),
        "partial_seconds": partial_seconds,
        "usual_seconds": _USUAL_SECONDS,
    }
    found: list[Violation] = []
    for check in CHECKS:
        named = {name: value for name, value in bound.items() if f":{name}" in check.query}
        rows = connection.execute(text(check.query), named).mappings().fetchmany(SHOWN_ROWS_MAX)
        if rows:
            shown = tuple(", ".join(f"{name}={value}" for name, value in row.items()) for row in rows)
            found.append(Violation(check.invariant, check.sentence, shown))
    connection.rollback()
    return found
