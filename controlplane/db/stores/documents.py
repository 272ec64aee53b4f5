"""Every statement that writes Queues, Quotas, Pools and Policies, and reads documents of a kind as they stand.

Fulfils `services.ports.documents.DocumentStore`.
"""

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.orm import Session

from controlplane.core.facts.tenancy import NewQueue, StoredDocument, Use
from controlplane.core.ids import PoolId, QueueId
from controlplane.db.stores import documents_sql as sql

_DOCUMENTS = 0x6D75_7303  # advisory lock: one writer of documents at a time


class DocumentStore:
    """`uow.documents`."""

    def __init__(self, session: Session, now: datetime) -> None:
        """Take the transaction's session and its reading of the clock."""
        self._session = session
        self._now = now

    def lock(self) -> None:
        """Keep other writers of documents out until this transaction ends."""
        self._session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _DOCUMENTS})

    def stored(self, kind: str, name: str | None = None) -> Sequence[StoredDocument]:
        """Every live document of this kind, or the one of this name; none of a kind that is not stored."""
        statement = sql.STORED.get(kind)
        rows = () if statement is None else self._session.execute(statement, {"name": name})
        return [StoredDocument(kind, row.name, row.id, row.labels, row.spec, row.version) for row in rows]

    def hold_queues(self, queues: Collection[QueueId]) -> None:
        """Keep new work out of these Queues."""
        self._session.execute(sql.HOLD_QUEUES, {"queues": sorted(queues)})

    def queue_uses(self, queues: Collection[QueueId]) -> Mapping[QueueId, Use]:
        """Live Workloads and held units of each."""
        rows = self._session.execute(sql.QUEUE_USES, {"queues": sorted(queues)})
        return {QueueId(row.id): Use(workloads=int(row.workloads), held=int(row.held)) for row in rows}

    def put_queues(self, queues: Sequence[NewQueue]) -> None:
        """Write each at its path, one statement per level of the tree; then all Quotas."""
        ordered = sorted(queues, key=lambda queue: (queue.path.count("/"), queue.path))
        for _, level in itertools.groupby(ordered, key=lambda queue: queue.path.count("/")):
            rows = [
                {
                    "path": queue.path, "parent": queue.path.rpartition("/")[0], "weight": queue.weight,
                    "namespace": queue.namespace, "labels": dict(queue.labels), "spec": dict(queue.spec),
                }
                for queue in level
            ]  # fmt: skip
            self._session.execute(sql.PUT_QUEUES, {"rows": json.dumps(rows), "now": self._now})
        listed = [(queue.path, quota) for queue in ordered for quota in queue.quotas]
        columns = {
            "paths": [queue.path for queue in ordered],
            "of": [path for path, _ in listed],
            "flavors": [quota.flavor for _, quota in listed],
        }
        self._session.execute(sql.WITHDRAW_QUOTAS, columns)
        if listed:
            numbers = {
                "nominals": [quota.nominal for _, quota in listed],
                "borrows": [quota.borrow for _, quota in listed],
                "lends": [quota.lend for _, quota in listed],
            }
            self._session.execute(sql.PUT_QUOTAS, {**columns, **numbers})

    def move_queue(self, queue: QueueId, parent: QueueId | None, path: str) -> None:
        """Give it, and all below it, new paths."""
        self._session.execute(sql.GIVE_UP_PATHS, {"path": path})
        old = self._session.execute(sql.SET_PARENT, {"parent": parent, "queue": queue}).scalar_one()
        self._session.execute(sql.MOVE_PATHS, {"path": path, "old": old})

    def delete_queues(self, queues: Collection[QueueId]) -> int:
        """Mark them deleted; their Quotas are withdrawn, roles bound to them and tokens bounded by them end."""
        given = {"queues": sorted(queues), "now": self._now}
        self._session.execute(sql.DELETE_QUEUES, given)
        self._session.execute(sql.WITHDRAW_ALL, given)
        self._session.execute(sql.REVOKE_WITHIN, given)  # a Queue that is made again there is somebody else's
        return len(self._session.execute(sql.UNBIND, given).all())

    def put_pool(self, name: str, labels: Mapping[str, str], spec: Mapping[str, object]) -> PoolId:
        """Write the Pool."""
        given = {"name": name, "labels": json.dumps(dict(labels)), "spec": json.dumps(dict(spec))}
        return PoolId(self._session.execute(sql.PUT_POOL, given).scalar_one())

    def pool_use(self, pool: PoolId) -> Use:
        """Clusters and live Workloads of it, with its row locked."""
        self._session.execute(sql.HOLD_POOL, {"pool": pool})
        row = self._session.execute(sql.POOL_USE, {"pool": pool}).one()
        return Use(workloads=int(row.workloads), clusters=tuple(row.clusters))

    def delete_pool(self, pool: PoolId) -> None:
        """Mark it deleted."""
        self._session.execute(sql.DELETE_POOL, {"pool": pool, "now": self._now})

    def add_policy(self, pool: PoolId, labels: Mapping[str, str], spec: Mapping[str, object], created_by: str) -> int:
        """Write the Pool's next Policy version; return it."""
        version = int(self._session.execute(sql.NEXT_POLICY, {"pool": pool}).scalar_one())
        given = {
            "pool": pool, "version": version, "labels": json.dumps(dict(labels)), "spec": json.dumps(dict(spec)),
            "now": self._now, "by": created_by,
        }  # fmt: skip
        self._session.execute(sql.ADD_POLICY, given)
        return version
