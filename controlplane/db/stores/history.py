"""What turns remember, as rows: by Queue and Flavor, and by owner. Fulfils `services.ports.history.HistoryStore`."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.orm import Session

from controlplane.core.history import WHOLE, Account, Owner, Past
from controlplane.core.ids import FlavorName, PoolId, QueueId
from controlplane.db.arrays import plain, texts

FORGOTTEN = timedelta(days=1)  # how long a row that says nothing stays, for planners that have not read it yet

_PUT_QUEUES = text("""
    INSERT INTO queue_history (pool_id, queue_id, flavor, contended, weight, credit, reckoned_at)
    SELECT :pool, queue_id, flavor, contended, weight, credit, :now
    FROM unnest(CAST(:queues AS bigint[]), CAST(:flavors AS text[]), CAST(:contended AS numeric[]),
                CAST(:weights AS bigint[]), CAST(:credits AS numeric[]))
        AS told (queue_id, flavor, contended, weight, credit)
    ORDER BY queue_id, flavor
    ON CONFLICT (pool_id, queue_id, flavor) DO UPDATE SET contended = excluded.contended, weight = excluded.weight,
        credit = excluded.credit, reckoned_at = excluded.reckoned_at""")
_PUT_OWNERS = text("""
    INSERT INTO owner_history (pool_id, queue_id, owner, used, reckoned_at)
    SELECT :pool, queue_id, owner, used, :now
    FROM unnest(CAST(:queues AS bigint[]), CAST(:owners AS text[]), CAST(:used AS numeric[]))
        AS told (queue_id, owner, used)
    ORDER BY queue_id, owner
    ON CONFLICT (pool_id, queue_id, owner) DO UPDATE SET used = excluded.used, reckoned_at = excluded.reckoned_at""")
_DROP_QUEUES = text("""
    DELETE FROM queue_history WHERE pool_id = :pool AND contended = 0 AND weight = :whole AND reckoned_at < :before""")
_DROP_OWNERS = text("DELETE FROM owner_history WHERE pool_id = :pool AND used = 0 AND reckoned_at < :before")


class SqlHistoryStore:
    """`uow.history`."""

    def __init__(self, session: Session) -> None:
        """One transaction's session."""
        self._session = session

    def pasts(self, pool: PoolId) -> Mapping[Account, tuple[Past, datetime]]:
        """Every Queue's past in this Pool, and when it was reckoned."""
        rows = self._session.execute(text("SELECT * FROM queue_history WHERE pool_id = :pool"), {"pool": pool})
        return {
            (QueueId(row.queue_id), FlavorName(row.flavor)): (
                Past(int(row.contended), row.weight, int(row.credit)),
                row.reckoned_at,
            )
            for row in rows
        }

    def owners(self, pool: PoolId) -> Mapping[Owner, tuple[int, datetime]]:
        """What every owner used, in device-microseconds, and when that was reckoned."""
        rows = self._session.execute(text("SELECT * FROM owner_history WHERE pool_id = :pool"), {"pool": pool})
        return {(QueueId(row.queue_id), row.owner): (int(row.used), row.reckoned_at) for row in rows}

    def write(self, pool: PoolId, pasts: Mapping[Account, Past], owners: Mapping[Owner, int], now: datetime) -> None:
        """Store what was reckoned, and forget what says nothing any more."""
        if pasts:
            listed: Sequence[tuple[Account, Past]] = sorted(pasts.items(), key=lambda each: each[0])
            self._session.execute(
                _PUT_QUEUES,
                {
                    "pool": pool,
                    "now": now,
                    "queues": plain(queue for (queue, _), _ in listed),
                    "flavors": texts(flavor for (_, flavor), _ in listed),
                    "contended": plain(past.contended for _, past in listed),
                    "weights": plain(past.weight for _, past in listed),
                    "credits": plain(past.credit for _, past in listed),
                },
            )
        if owners:
            keys = sorted(owners)
            self._session.execute(
                _PUT_OWNERS,
                {
                    "pool": pool,
                    "now": now,
                    "queues": plain(queue for queue, _ in keys),
                    "owners": texts(owner for _, owner in keys),
                    "used": plain(owners[key] for key in keys),
                },
            )
        said_nothing = {"pool": pool, "before": now - FORGOTTEN}
        self._session.execute(_DROP_QUEUES, said_nothing | {"whole": WHOLE})
        self._session.execute(_DROP_OWNERS, said_nothing)
