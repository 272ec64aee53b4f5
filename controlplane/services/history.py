"""Keeps one Pool's past up to date beside its planner, and reckons it into weights when Policy says so.

What is contended is looked at when a cycle has been planned, at most every few seconds; the units of one look count
until the next one, exactly, whatever time passes. A stretch in which no planner lived counts as not contended. A
reckoning reads the rows, lets them decay, adds what was gathered and writes weights for the next cycles: cycles
themselves only ever see rows, so replay agrees.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeVar

from controlplane.core.decay import decayed, microseconds
from controlplane.core.history import WHOLE, Account, Gathering, Owner, Past, Use, carried, reckoned
from controlplane.core.ids import FlavorName, PoolId
from controlplane.core.policy import Policy
from controlplane.core.quota import QuotaTree
from controlplane.core.snapshot import Snapshot
from controlplane.services.ports.unit_of_work import UnitOfWork

LOOK_SECONDS = 10

Key = TypeVar("Key")
Told = TypeVar("Told")


class PoolHistory:
    """Of one planner's life; belongs to its thread."""

    def __init__(self, pool: PoolId) -> None:
        """Nothing gathered yet."""
        self._pool = pool
        self._use = Use()
        self._looked_at: datetime | None = None
        self._reckoned_at: datetime | None = None
        self._half_life = 0
        self._queues: Gathering[Account] = Gathering(1)
        self._owners: Gathering[Owner] = Gathering(1)

    def wants_a_look(self, policy: Policy, now: datetime) -> bool:
        """Whether `look` should be told what is contended now."""
        if policy.history_half_life_seconds != self._half_life:
            return True
        return self._looked_at is None or now - self._looked_at >= timedelta(seconds=LOOK_SECONDS)

    def look(self, snapshot: Snapshot, policy: Policy, use: Use, now: datetime) -> None:
        """Count what was contended until `now`, and take `use` for what is from now on."""
        if policy.history_half_life_seconds != self._half_life:
            self._half_life = policy.history_half_life_seconds
            self._queues, self._owners = Gathering(self._half_life), Gathering(self._half_life)
        elif self._looked_at is not None:
            self._queues.add(self._use.queues, self._looked_at, now)
            self._owners.add(self._use.owners, self._looked_at, now)
        if self._reckoned_at is None:
            before = [each.reckoned_at for each in snapshot.standings.values() if each.reckoned_at is not None]
            self._reckoned_at = max(before, default=now)
        self._use, self._looked_at = use, now

    def is_due(self, policy: Policy, now: datetime) -> bool:
        """Whether weights are to be reckoned anew."""
        every = timedelta(seconds=policy.weights_every_seconds)
        return self._reckoned_at is not None and now - self._reckoned_at >= every

    def reckon(
        self, uow: UnitOfWork, policy: Policy, tree: QuotaTree, owned: Mapping[FlavorName, int], now: datetime
    ) -> None:
        """Write pasts, weights and credits as of `now`; once this is committed, tell `reckoned`."""
        half_life = policy.history_half_life_seconds * WHOLE
        more = self._queues.amounts(now)
        stored = uow.history.pasts(self._pool)
        pasts = {
            account: carried(past, max(0, microseconds(now - at)), half_life, more.get(account, 0))
            for account, (past, at) in stored.items()
        }
        pasts |= {account: Past(amount) for account, amount in more.items() if account not in stored}
        known = {account: past for account, past in pasts.items() if account[0] in tree}
        owners = self._owners.amounts(now)
        known_owners = uow.history.owners(self._pool)
        for owner, (used, at) in known_owners.items():
            owners[owner] = owners.get(owner, 0) + decayed(used, max(0, microseconds(now - at)), half_life)
        seconds = {owner: used // WHOLE * WHOLE for owner, used in owners.items()}  # below one, nobody is told of it
        weighed = reckoned(tree, policy, owned, known, self._use.wants)
        weighed |= {account: Past() for account in stored if account[0] not in tree}
        # A row that said nothing and says nothing again is left to grow old, and goes in the end.
        news = {account: past for account, past in weighed.items() if past != Past() or _says(stored, account)}
        used_by = {owner: used for owner, used in seconds.items() if used or _says(known_owners, owner)}
        uow.history.write(self._pool, news, used_by, now)

    def put_off(self, now: datetime) -> None:
        """It could not be reckoned; it is tried again in its time, with all that was gathered."""
        self._reckoned_at = now

    def reckoned(self, now: datetime) -> None:
        """What was gathered is in the rows."""
        self._reckoned_at = now
        self._queues, self._owners = Gathering(self._half_life), Gathering(self._half_life)


def _says(stored: Mapping[Key, tuple[Told, datetime]], key: Key) -> bool:
    """Whether a stored row says anything."""
    return key in stored and stored[key][0] not in (0, Past())
