"""Brings what counts of what clusters own up to date, each by its Pool's Policy: see `core.owned`.

Whoever reads counts what is told where that is more, so only what falls waits for this.
"""

from controlplane.core.owned import settled
from controlplane.core.policy import Policy
from controlplane.services.ports.unit_of_work import UnitOfWork


def settle(uow: UnitOfWork) -> int:
    """Write what counts now and differs; returns how many rows."""
    told = uow.ledger.told_owned()
    policies = uow.attempts.policies({each.pool for each in told})
    changed = {}
    for each in told:
        permille = policies.get(each.pool, Policy()).inventory_fall_permille_per_hour
        now = settled(each.counted, each.told, permille, uow.now)
        if now != each.counted:
            changed[each.cluster, each.flavor] = now
    uow.ledger.count_owned(changed)
    return len(changed)
