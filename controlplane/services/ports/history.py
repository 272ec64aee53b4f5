"""What turns remember between reckonings."""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from controlplane.core.history import Account, Owner, Past
from controlplane.core.ids import PoolId


class HistoryStore(Protocol):
    """`uow.history`: one Pool's past, by Queue and Flavor and by owner of a leaf."""

    def pasts(self, pool: PoolId) -> Mapping[Account, tuple[Past, datetime]]:
        """Every Queue's past in this Pool, and when it was reckoned."""
        ...

    def owners(self, pool: PoolId) -> Mapping[Owner, tuple[int, datetime]]:
        """What every owner used, in device-microseconds, and when that was reckoned."""
        ...

    def write(self, pool: PoolId, pasts: Mapping[Account, Past], owners: Mapping[Owner, int], now: datetime) -> None:
        """Store what was reckoned, and forget what says nothing any more."""
        ...
