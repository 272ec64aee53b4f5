"""The fleet and the load of figure A, written into a real database in bulk.

8-GPU nodes, rack of 16, spine of 16 racks, cluster of 4 spines (8,192 GPUs). Gangs by a fixed distribution.
"""

import json
import random
import uuid
from datetime import UTC, datetime

from sqlalchemy import text

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


def add_fleet(plane: Plane, clusters: int) -> None:
    """Ready clusters with all their nodes and counters."""
    for number in range(clusters):
        cluster = plane.cluster(f"cluster-{number}", nodes=0)
        plane.do('UPDATE cluster SET levels = \'["spine", "rack", "host"]\' WHERE id = :id', id=cluster)
        rows = [
            (str(uuid.uuid4()), f"node-{node}", json.dumps({"spine": f"s{node // SPINE}", "rack": f"r{node // RACK}"}))
            for node in range(NODES_PER_CLUSTER)
        ]
        with plane.engine.begin() as connection:
            connection.execute(
                text("""
                    WITH added AS (
                        INSERT INTO node (cluster_id, uid, name, ready, domains, cpu_milli, memory_bytes, first_seen_at,
                            observed_at)
                        SELECT :cluster, uid, name, true, CAST(domains AS jsonb), 192000, 2199023255552, now(), now()
                        FROM unnest(CAST(:uids AS text[]), CAST(:names AS text[]), CAST(:domains AS text[]))
                            AS given(uid, name, domains) RETURNING id)
                    INSERT INTO node_flavor (node_id, flavor, cluster_id, owned, allocatable, capacity)
                    SELECT id, :flavor, :cluster, :devices, :devices, :devices FROM added"""),
                {
                    "cluster": cluster, "flavor": H100, "devices": DEVICES,
                    "uids": [row[0] for row in rows], "names": [row[1] for row in rows],
                    "domains": [row[2] for row in rows],
                },
            )  # fmt: skip


def add_gangs(plane: Plane, queues: list[int], count: int, chance: random.Random) -> int:
    """Pending gangs by the distribution, each asking for one rack by preference; returns their devices."""
    shapes = chance.choices([(pods, devices) for pods, devices, _ in GANGS], [share for *_, share in GANGS], k=count)
    ids = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in shapes]
    stamp = datetime.now(UTC)
    specs = [json.dumps({"podSets": [{"name": "main", "replicas": pods, "template": TEMPLATE}]}) for pods, _ in shapes]
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
             "now": stamp},
        )  # fmt: skip
        connection.execute(
            text("""
                INSERT INTO pod_set (workload_id, name, position, replicas, devices, flavors, topology_mode,
                    topology_level)
                SELECT id, 'main', 0, pods, devices, CAST(:flavors AS jsonb), 'preferred', 'rack'
                FROM unnest(CAST(:ids AS uuid[]), CAST(:pods AS bigint[]), CAST(:devices AS bigint[]))
                    AS given(id, pods, devices)"""),
            {"ids": ids, "pods": [p for p, _ in shapes], "devices": [d for _, d in shapes],
             "flavors": json.dumps([H100])},
        )  # fmt: skip
    plane.wake()
    return sum(pods * devices for pods, devices in shapes)
