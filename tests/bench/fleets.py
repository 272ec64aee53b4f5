"""The fleet and the loads of figure A, written into a real database in bulk.

8-GPU nodes, rack of 16, spine of 16 racks, cluster of 4 spines (8,192 GPUs). Gangs by a fixed distribution, under
Queues of three levels. The second load has five models of GPU, CPU and memory, tainted racks and 200 tenants; the third
has 10,000 gangs waiting of which a fifth can never be placed.
"""

import json
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import text

from controlplane.core.demand import NodeRules, Toleration
from controlplane.core.records import to_record
from controlplane.services import accounting
from tests.services.planes import H100, Plane

NODES_PER_CLUSTER = 1_024
DEVICES = 8
RACK = 16
SPINE = 256
GANGS: tuple[tuple[int, int, float], ...] = (  # pods, devices per pod, share in percent
    (1, 1, 40), (1, 2, 8), (1, 4, 8), (1, 8, 20), (2, 8, 8), (4, 8, 6), (8, 8, 5), (16, 8, 3), (32, 8, 1.4),
    (64, 8, 0.5), (128, 8, 0.1),
)  # fmt: skip
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "example.org/train:1"}]}}
MODELS = (H100, "nvidia-h200-141gb", "nvidia-a100-80gb", "nvidia-l40s-48gb", "amd-mi300x-192gb")
TAINT = "example.org/reserved"
TAINTED_EVERY = 8  # racks
TOLERANT_SHARE = 0.1
CPU_PER_DEVICE, MEMORY_PER_DEVICE = (
    20_000,
    200 * 2**30,
)  # of 192,000 millicores and 2 TiB for 8: both fit, and bind none


@dataclass(frozen=True, slots=True)
class Load:
    """What a round asks for, and of how many."""

    name: str
    departments: int = 4
    teams: int = 5  # in each
    models: tuple[str, ...] = (H100,)
    has_needs: bool = False  # CPU, memory and taints
    pending: int = 1_000
    infeasible: float = 0.0  # share


LOADS = {
    "first": Load("first"),
    "second": Load("second", departments=10, teams=20, models=MODELS, has_needs=True),
    "third": Load("third", pending=10_000, infeasible=0.2),
}


def add_fleet(plane: Plane, clusters: int, load: Load = LOADS["first"]) -> None:
    """Ready clusters with all their nodes and counters; models change from rack to rack."""
    for number in range(clusters):
        cluster = plane.cluster(f"cluster-{number}", nodes=0)
        plane.do('UPDATE cluster SET levels = \'["spine", "rack", "host"]\' WHERE id = :id', id=cluster)
        racks = [node // RACK for node in range(NODES_PER_CLUSTER)]
        taints = json.dumps([{"key": TAINT, "value": "", "effect": "NoSchedule"}])
        with plane.engine.begin() as connection:
            connection.execute(
                text("""
                    WITH added AS (
                        INSERT INTO node (cluster_id, uid, name, ready, domains, cpu_milli, memory_bytes, first_seen_at,
                            observed_at, taints)
                        SELECT :cluster, uid, name, true, CAST(domains AS jsonb), 192000, 2199023255552, now(), now(),
                            CAST(taints AS jsonb)
                        FROM unnest(CAST(:uids AS text[]), CAST(:names AS text[]), CAST(:domains AS text[]),
                                    CAST(:taints AS text[]))
                            AS given(uid, name, domains, taints) RETURNING id, name)
                    INSERT INTO node_flavor (node_id, flavor, cluster_id, owned, allocatable, capacity)
                    SELECT id, given.flavor, :cluster, :devices, :devices, :devices
                    FROM added JOIN unnest(CAST(:names AS text[]), CAST(:flavors AS text[])) AS given(name, flavor)
                        USING (name)"""),
                {
                    "cluster": cluster, "devices": DEVICES,
                    "flavors": [load.models[rack % len(load.models)] for rack in racks],
                    "uids": [str(uuid.uuid4()) for _ in racks],
                    "names": [f"node-{node}" for node in range(NODES_PER_CLUSTER)],
                    "domains": [json.dumps({"spine": f"s{r * RACK // SPINE}", "rack": f"r{r}"}) for r in racks],
                    "taints": [taints if load.has_needs and rack % TAINTED_EVERY == 0 else "[]" for rack in racks],
                },
            )  # fmt: skip


def add_queues(plane: Plane, load: Load) -> list[int]:
    """An organisation that owns what the clusters own, departments with equal parts of it, and their teams."""
    org = plane.queue("org")
    parts = {row.flavor: int(row.owned) // load.departments
             for row in plane.rows("SELECT flavor, sum(owned) AS owned FROM node_flavor GROUP BY flavor")}  # fmt: skip
    leaves = []
    for flavor in parts:
        _quota(plane, org, flavor, None)
    for number in range(load.departments):
        department = _queue(plane, f"org/department-{number}", org)
        for flavor, part in parts.items():
            _quota(plane, department, flavor, part)
        leaves += [_queue(plane, f"org/department-{number}/team-{team}", department) for team in range(load.teams)]
    with plane.uow() as uow:
        accounting.sync_accounts(uow)
    return leaves


def add_gangs(plane: Plane, queues: list[int], count: int, chance: random.Random, load: Load = LOADS["first"]) -> int:
    """Pending gangs by the distribution, each asking for one rack by preference; returns the devices of those that fit.

    An infeasible one asks for more nodes in one rack than a rack has.
    """
    shapes = chance.choices([(pods, devices) for pods, devices, _ in GANGS], [share for *_, share in GANGS], k=count)
    hopeless = [chance.random() < load.infeasible for _ in shapes]
    shapes = [(RACK + 1, DEVICES) if never else shape for shape, never in zip(shapes, hopeless, strict=True)]
    ids = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in shapes]
    specs = [json.dumps({"podSets": [{"name": "main", "replicas": pods, "template": TEMPLATE}]}) for pods, _ in shapes]
    tolerant = json.dumps(to_record(NodeRules(tolerations=(Toleration(key=TAINT, operator="Exists"),))))
    with plane.engine.begin() as connection:
        connection.execute(
            text("""
                INSERT INTO workload (id, name, queue_id, pool_id, owner, priority, state, kind, spec, shape,
                    submitted_at, state_changed_at)
                SELECT id, 'gang-' || CAST(id AS text), queue, :pool, 'ann', 500, 'pending', 'Workload',
                    CAST(spec AS jsonb), 'bench', :now, :now
                FROM unnest(CAST(:ids AS uuid[]), CAST(:queues AS bigint[]), CAST(:specs AS text[]))
                    AS given(id, queue, spec)"""),
            {"ids": ids, "queues": [queues[n % len(queues)] for n in range(count)], "specs": specs, "pool": plane.pool,
             "now": datetime.now(UTC)},
        )  # fmt: skip
        connection.execute(
            text("""
                INSERT INTO pod_set (workload_id, name, position, replicas, devices, flavors, topology_mode,
                    topology_level, cpu_milli, memory_bytes, rules)
                SELECT id, 'main', 0, pods, devices, CAST(flavors AS jsonb), mode, 'rack', devices * :cpu,
                    devices * :memory, CAST(rules AS jsonb)
                FROM unnest(CAST(:ids AS uuid[]), CAST(:pods AS bigint[]), CAST(:devices AS bigint[]),
                            CAST(:flavors AS text[]), CAST(:modes AS text[]), CAST(:rules AS text[]))
                    AS given(id, pods, devices, flavors, mode, rules)"""),
            {
                "ids": ids, "pods": [p for p, _ in shapes], "devices": [d for _, d in shapes],
                "flavors": [json.dumps([chance.choice(load.models)]) for _ in shapes],
                "modes": ["required" if never else "preferred" for never in hopeless],
                "cpu": CPU_PER_DEVICE if load.has_needs else 0, "memory": MEMORY_PER_DEVICE if load.has_needs else 0,
                "rules": _rules(tolerant, chance, count) if load.has_needs else ["{}"] * count,
            },
        )  # fmt: skip
    plane.wake()
    return sum(pods * devices for (pods, devices), never in zip(shapes, hopeless, strict=True) if not never)


def _rules(tolerant: str, chance: random.Random, count: int) -> Sequence[str]:
    return [tolerant if chance.random() < TOLERANT_SHARE else "{}" for _ in range(count)]


def _queue(plane: Plane, path: str, parent: int) -> int:
    return plane.do(
        """INSERT INTO queue (path, parent_id, namespace, created_at) VALUES (:path, :parent, 'team', now())
           RETURNING id""",
        path=path, parent=parent,
    )  # fmt: skip


def _quota(plane: Plane, queue: int, flavor: str, nominal: int | None) -> None:
    plane.do(
        "INSERT INTO quota (queue_id, flavor, nominal) VALUES (:queue, :flavor, :nominal)",
        queue=queue, flavor=flavor, nominal=nominal,
    )  # fmt: skip
