"""A small plane in a real database: a fleet, Queues and waiting Workloads, written row by row.

It writes what enrolment, inventory and submission would have written, so that planning can be tested alone.
"""

import itertools
import json
import uuid
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Engine, text

from controlplane.core.ids import PoolId
from controlplane.db.engine import make_engine
from controlplane.db.snapshot_reader import SqlSnapshotReader
from controlplane.db.unit_of_work import SqlUnitOfWork
from controlplane.services import accounting
from controlplane.services.scheduling import Planner, PlanningTools
from controlplane.settings import Settings
from tests.support.databases import Database

NOBODY = "redis://127.0.0.1:1/0"
H100 = "nvidia-h100-80gb"
_numbers = itertools.count(1)


class SilentWakeups:
    """Drops every poke, as a switched-off Redis does."""

    def poke(self, pool: PoolId) -> None:
        """Nobody hears it."""


class Plane:
    """One database with a Pool `default`."""

    def __init__(self, database: Database) -> None:
        settings = {"DATABASE_URL": database.url, "REDIS_URL": NOBODY, "database_role": database.app_role}
        self.engine: Engine = make_engine(Settings.model_validate(settings))
        self.tools = PlanningTools(
            uow_factory=self.uow, reader=SqlSnapshotReader(self.engine), lease_seconds=3, base_every=50
        )
        rows = self.rows("SELECT id FROM pool WHERE name = 'default'")
        self.pool = PoolId(rows[0].id if rows else self.do("INSERT INTO pool (name) VALUES ('default') RETURNING id"))

    def close(self) -> None:
        self.engine.dispose()

    def uow(self) -> SqlUnitOfWork:
        return SqlUnitOfWork(self.engine, SilentWakeups())

    def planner(self, owner: str = "first") -> Planner:
        planner = Planner(self.pool, owner, self.tools)
        planner.take()
        return planner

    def rows(self, statement: str, **bound: object) -> list[Any]:
        with self.engine.begin() as connection:
            return list(connection.execute(text(statement), bound))

    def do(self, statement: str, **bound: object) -> int:
        with self.engine.begin() as connection:
            result = connection.execute(text(statement), bound)
            return int(result.scalar_one()) if result.returns_rows else result.rowcount

    def cluster(
        self, name: str, *, nodes: int, devices: int = 8, rack: int = 4, namespaces: Iterable[str] = ("team",)
    ) -> int:
        """A ready cluster; consecutive nodes form racks."""
        cluster = self.do(
            """INSERT INTO cluster (pool_id, name, state, levels, namespaces, created_at, inventory_at, accepted_at)
               VALUES (:pool, :name, 'created', '["rack", "host"]', CAST(:namespaces AS jsonb), now(), now(), now())
               RETURNING id""",
            pool=self.pool, name=name, namespaces=json.dumps(list(namespaces)),
        )  # fmt: skip
        for before, state in itertools.pairwise(("created", "enrolled", "accepted", "ready")):
            self.do("UPDATE cluster SET state = :state WHERE id = :id", state=state, id=cluster)
            self.do(
                """INSERT INTO audit (at, actor, action, object_kind, object_id, state_from, state_to)
                   VALUES (now(), 'test', 'advance', 'cluster', CAST(:id AS text), :before, :state)""",
                id=cluster, before=before, state=state,
            )  # fmt: skip
        for number in range(nodes):
            self.node(cluster, f"{name}-{number}", devices=devices, rack=f"rack-{number // rack}")
        return cluster

    def node(self, cluster: int, name: str, *, devices: int, rack: str) -> int:
        node = self.do(
            """INSERT INTO node (cluster_id, uid, name, ready, domains, cpu_milli, memory_bytes, first_seen_at,
                   observed_at)
               VALUES (:cluster, :uid, :name, true, CAST(:domains AS jsonb), 192000, 2000000000000, now(), now())
               RETURNING id""",
            cluster=cluster, uid=str(uuid.uuid4()), name=name, domains=json.dumps({"rack": rack}),
        )  # fmt: skip
        self.do(
            """INSERT INTO node_flavor (node_id, flavor, cluster_id, owned, allocatable, capacity)
               VALUES (:node, :flavor, :cluster, :devices, :devices, :devices)""",
            node=node, flavor=H100, cluster=cluster, devices=devices,
        )  # fmt: skip
        return node

    def queue(self, path: str, *, nominal: int | None = None, borrow: int | None = None) -> int:
        parent = self.rows("SELECT id FROM queue WHERE path = :path", path=path.rpartition("/")[0])
        queue = self.do(
            """INSERT INTO queue (path, parent_id, namespace, created_at) VALUES (:path, :parent, 'team', now())
               RETURNING id""",
            path=path, parent=parent[0].id if parent else None,
        )  # fmt: skip
        if nominal is not None:
            self.do(
                """INSERT INTO quota (queue_id, flavor, nominal, borrow_limit)
                   VALUES (:queue, :flavor, :nominal, :borrow)""",
                queue=queue, flavor=H100, nominal=nominal, borrow=borrow,
            )  # fmt: skip
        with self.uow() as uow:
            accounting.sync_accounts(uow)
        return queue

    def workload(
        self, name: str, queue: int, *, pods: int, devices: int = 8, priority: int = 500, rack: str = ""
    ) -> str:
        workload = str(uuid.uuid4())
        spec = {
            "podSets": [{"name": "main", "replicas": pods, "template": {"spec": {"containers": [{"name": "main"}]}}}]
        }
        self.do(
            """INSERT INTO workload (id, name, queue_id, pool_id, owner, priority, state, kind, spec, shape,
                   submitted_at, state_changed_at, next_check_at)
               VALUES (CAST(:id AS uuid), :name, :queue, :pool, 'ann', :priority, 'pending', 'Workload',
                   CAST(:spec AS jsonb), :name, clock_timestamp(), now(), now())""",
            id=workload, name=name, queue=queue, pool=self.pool, priority=priority, spec=json.dumps(spec),
        )  # fmt: skip
        self.do(
            """INSERT INTO pod_set (workload_id, name, position, replicas, devices, flavors, topology_mode,
                   topology_level)
               VALUES (CAST(:id AS uuid), 'main', 0, :pods, :devices, CAST(:flavors AS jsonb), :mode, :level)""",
            id=workload, pods=pods, devices=devices, flavors=json.dumps([H100]),
            mode="required" if rack else "none", level=rack,
        )  # fmt: skip
        self.wake()
        return workload

    def wake(self) -> None:
        with self.uow() as uow:
            uow.wake_pool(self.pool)

    def state(self, workload: str) -> str:
        return str(self.rows("SELECT state FROM workload WHERE id = CAST(:id AS uuid)", id=workload)[0].state)
