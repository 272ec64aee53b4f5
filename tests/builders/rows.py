"""Rows of the truth for tests of stores, the ledger and the doctor: valid by default, written as the plane writes them.

Whatever has rules of its own is written through the product: accounts by `sync_accounts`, transfers by the ledger's
store. Rows beside them are plain inserts, in an order that the database's triggers accept.
"""

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

import sqlalchemy as sa

from controlplane.core.facts.ledger import AccountKey, AttemptKey, TransferDraft, TransferKind
from controlplane.core.ids import AttemptNumber, FlavorName, PoolId, QueueId, WorkloadId
from controlplane.core.ledger import Book
from controlplane.db.base import Base
from controlplane.db.engine import make_engine
from controlplane.db.tables import fleet, ledger, tenancy, workloads
from controlplane.db.unit_of_work import SqlUnitOfWork
from controlplane.services import accounting
from controlplane.services.ports.unit_of_work import UnitOfWork
from controlplane.settings import Settings
from tests.support.databases import Database

H100 = FlavorName("nvidia-h100-80gb")
TABLES = (fleet, ledger, tenancy, workloads)  # imported for what they register
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Pokes:
    """Wakeups that are only noted."""

    pools: list[int] = field(default_factory=list)

    def poke(self, pool: PoolId) -> None:
        self.pools.append(pool)


class Rows:
    """One database, its units of work, and short ways to put rows into it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.pokes = Pokes()
        self.engine = make_engine(settings_of(database))

    def uow(self) -> UnitOfWork:
        return SqlUnitOfWork(self.engine, self.pokes)

    def insert(self, table: str, **values: object) -> dict[str, object]:
        """One row; returns its primary key's columns."""
        model = Base.metadata.tables[table]
        with self.engine.begin() as connection:
            statement = sa.insert(model).values(**values).returning(*model.primary_key.columns)
            return dict(connection.execute(statement).mappings().one())

    def run(self, statement: str, **bound: object) -> list[tuple[object, ...]]:
        """A statement as the plane's own role; returns its rows, if it has any."""
        with self.engine.begin() as connection:
            result = connection.execute(sa.text(statement), bound)
            return [tuple(row) for row in result] if result.returns_rows else []

    def as_superuser(self, *statements: str) -> None:
        """For planting what neither the plane nor the owner could write."""
        engine = sa.create_engine(self.database.superuser_url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement))

    def pool(self, name: str = "default") -> int:
        return number(self.insert("pool", name=name))

    def cluster(self, pool: int, name: str = "one") -> int:
        """A Cluster that is ready, by the steps that lead there, each audited."""
        cluster = number(self.insert("cluster", pool_id=pool, name=name, state="created", created_at=NOW))
        before = "created"
        for state in ("enrolled", "accepted", "ready"):
            self.run(
                "UPDATE cluster SET state = :state, accepted_at = :now, last_heard_at = :now, fingerprint = :print"
                " WHERE id = :id",
                state=state, now=NOW, id=cluster, print=f"uid-{name}",
            )  # fmt: skip
            self.audit("cluster", str(cluster), before, state)
            before = state
        return cluster

    def node(self, cluster: int, name: str = "n1", devices: int = 8, flavor: str = H100) -> int:
        node = number(
            self.insert("node", cluster_id=cluster, uid=name, name=name, ready=True, first_seen_at=NOW, observed_at=NOW)
        )
        self.insert(
            "node_flavor", node_id=node, flavor=flavor, cluster_id=cluster, owned=devices, allocatable=devices,
            capacity=devices,
        )  # fmt: skip
        for index in range(devices):
            self.insert(
                "device", cluster_id=cluster, node_id=node, device_key=f"{name}-{index}", key_quality="uuid",
                vendor="nvidia", kind="card", flavor=flavor, health="ok", state="present", first_seen_at=NOW,
                observed_at=NOW,
            )  # fmt: skip
        return node

    def queue(self, path: str, parent: int | None = None, flavor: str = H100, **quota: int | None) -> QueueId:
        """A Queue; with a quota (nominal, borrow_limit, lend_limit) where one is given."""
        queue = number(self.insert("queue", path=path, parent_id=parent, created_at=NOW))
        if quota:
            self.insert("quota", queue_id=queue, flavor=flavor, **quota)
        return QueueId(queue)

    def sync_accounts(self) -> int:
        with self.uow() as uow:
            return accounting.sync_accounts(uow)

    def workload(self, queue: int, pool: int, name: str = "") -> WorkloadId:
        made = str(uuid.uuid4())
        self.insert(
            "workload", id=made, name=name or made, queue_id=queue, pool_id=pool, owner="ada", priority=0,
            state="pending", kind="Workload", spec={}, submitted_at=NOW, state_changed_at=NOW, next_check_at=NOW,
        )  # fmt: skip
        self.audit("workload", made, None, "pending")
        return WorkloadId(made)

    def place(
        self, workload: str, queue: QueueId, nodes: dict[int, int], cluster: int, flavor: str = H100
    ) -> AttemptKey:
        """Admit it: one pod per node with so many devices, and everything that a commit writes."""
        with self.uow() as uow:
            key = charge(uow, workload, queue, sum(nodes.values()), flavor)
        ids = {"workload_id": workload, "attempt": key.attempt}
        self.run(
            "UPDATE workload SET state = 'reserved', attempts_made = :attempt, next_check_at = NULL WHERE id = :id",
            id=workload, attempt=key.attempt,
        )  # fmt: skip
        self.insert("attempt", **ids, state="placed", placed_at=NOW, next_check_at=NOW)
        self.insert("placement", **ids, cluster_id=cluster, state="ordered")
        for rank, (node, amount) in enumerate(nodes.items()):
            pod = number(
                self.insert(
                    "pod", **ids, cluster_id=cluster, pod_set="main", index=rank, rank=rank, node_id=node,
                    flavor=flavor, amount=amount, state="placed", changed_at=NOW,
                )
            )  # fmt: skip
            self.insert(
                "hold", **ids, pod_id=pod, node_id=node, cluster_id=cluster, flavor=flavor, amount=amount,
                created_at=NOW,
            )  # fmt: skip
            self.run(
                "UPDATE node_flavor SET held = held + :amount WHERE node_id = :node AND flavor = :flavor",
                amount=amount, node=node, flavor=flavor,
            )  # fmt: skip
        self.insert("reservation", **ids, flavor=flavor, queue_id=queue, amount=sum(nodes.values()), created_at=NOW)
        self.insert(
            "directive", **ids, cluster_id=cluster, object_id=f"{workload}.{key.attempt}", gen=1, kind="apply", body={},
            created_at=NOW,
        )  # fmt: skip
        self.audit("workload", workload, "pending", "reserved")
        self.audit("attempt", f"{workload}.{key.attempt}", None, "placed")
        return key

    def advance(self, key: AttemptKey, *states: str, **more: object) -> None:
        """Take the Attempt through these states, each audited; `more` goes with the last one."""
        bound = {"w": key.workload, "a": key.attempt}
        for position, state in enumerate(states):
            [(before,)] = self.run("SELECT state FROM attempt WHERE workload_id = :w AND attempt = :a", **bound)
            extra = more if position == len(states) - 1 else {}
            columns = "".join(f", {name} = :{name}" for name in extra)
            self.run(
                f"UPDATE attempt SET state = :state{columns} WHERE workload_id = :w AND attempt = :a",
                **bound, state=state, **extra,
            )  # fmt: skip
            self.audit("attempt", f"{key.workload}.{key.attempt}", str(before), state)

    def move(self, workload: str, *states: str) -> None:
        """Take the Workload through these states, each audited."""
        for state in states:
            [(before,)] = self.run("SELECT state FROM workload WHERE id = :w", w=workload)
            self.run("UPDATE workload SET state = :state WHERE id = :w", w=workload, state=state)
            self.audit("workload", workload, str(before), state)

    def finish(self, key: AttemptKey) -> None:
        """All pods succeed; everything that goes with it, save the ledger's part."""
        bound = {"w": key.workload, "a": key.attempt}
        [(state,)] = self.run("SELECT state FROM attempt WHERE workload_id = :w AND attempt = :a", **bound)
        if state == "placed":
            self.advance(key, "prepared", "starting")
        self.run("UPDATE pod SET state = 'succeeded' WHERE workload_id = :w AND attempt = :a", **bound)
        self.run(
            "WITH gone AS (UPDATE hold SET released_at = :now WHERE workload_id = :w AND attempt = :a RETURNING *)"
            " UPDATE node_flavor f SET held = held - amount FROM gone WHERE f.node_id = gone.node_id",
            now=NOW, **bound,
        )  # fmt: skip
        self.advance(key, "ended", outcome="succeeded", ended_at=NOW)
        self.move(key.workload, "succeeded")
        self.run("UPDATE workload SET finished_at = :now WHERE id = :w", now=NOW, w=key.workload)
        self.run(
            "INSERT INTO directive (cluster_id, object_id, gen, workload_id, attempt, kind, body, created_at)"
            " SELECT cluster_id, workload_id || '.' || attempt, wanted_gen + 1, workload_id, attempt, 'tombstone',"
            " '{}', :now"
            " FROM placement WHERE workload_id = :w AND attempt = :a",
            now=NOW, **bound,
        )  # fmt: skip
        self.run(
            "UPDATE placement SET state = 'gone', wanted_gen = wanted_gen + 1, applied_gen = wanted_gen + 1"
            " WHERE workload_id = :w AND attempt = :a",
            **bound,
        )

    def audit(self, kind: str, object_id: str, before: str | None, after: str) -> None:
        with self.uow() as uow:
            uow.audit.record(
                actor="test", action="move", object_kind=kind, object_id=object_id, state_from=before, state_to=after
            )

    def dispose(self) -> None:
        self.engine.dispose()


def charge(uow: UnitOfWork, workload: str, queue: QueueId, amount: int, flavor: str = H100) -> AttemptKey:
    """The ledger's part of a placement, as the plan's commit writes it; AssertionError where quota says no."""
    account = AccountKey(queue, FlavorName(flavor))
    book = Book(uow.ledger.lock_accounts([account]))
    assert book.available(account) >= amount, "over quota"
    key = AttemptKey(WorkloadId(workload), AttemptNumber(1))
    uow.ledger.write_transfers([TransferDraft(TransferKind.PLACE, book.place([(account, amount)]), key)])
    return key


def settings_of(database: Database) -> Settings:
    return Settings.model_validate(
        {
            "DATABASE_URL": database.url,
            "REDIS_URL": "redis://127.0.0.1:1/0",
            "database_role": database.app_role,
            "database_pool_size": 16,
        }
    )


def number(key: dict[str, object]) -> int:
    (value,) = key.values()
    assert isinstance(value, int)
    return value
