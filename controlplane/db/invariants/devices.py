"""What is held on nodes: never more than there is, and as long as a pod may still be there (I10, I11, I16)."""

from controlplane.db.invariants.check import Check

COUNTED = Check(
    "I10",
    "Per node and Flavor, what is held is the sum of the live holds and no more than capacity and overdraft.",
    """
    WITH live AS (
      SELECT node_id, flavor, sum(amount) AS amount FROM hold WHERE released_at IS NULL GROUP BY 1, 2
    )
    SELECT node_id, flavor, f.held, live.amount AS holds, f.capacity, f.overdraft
    FROM node_flavor f FULL JOIN live USING (node_id, flavor)
    WHERE coalesce(f.held, 0) <> coalesce(live.amount, 0) OR f.held < 0 OR f.held > f.capacity + f.overdraft
    """,
)

NEEDS = Check(
    "I10",
    "Per node, the CPU, memory, RDMA, huge pages and local disk that are held are those of the live holds.",
    """
    SELECT n.id, n.cpu_milli_held, n.memory_bytes_held, n.rdma_held, n.hugepages_bytes_held, n.local_storage_bytes_held,
        sum(h.cpu_milli) AS cpu_milli, sum(h.memory_bytes) AS bytes, sum(h.rdma) AS rdma,
        sum(h.hugepages_bytes) AS hugepages, sum(h.local_storage_bytes) AS local_storage
    FROM node n LEFT JOIN hold h ON h.node_id = n.id AND h.released_at IS NULL
    GROUP BY n.id
    HAVING (n.cpu_milli_held, n.memory_bytes_held, n.rdma_held, n.hugepages_bytes_held, n.local_storage_bytes_held)
        <> (coalesce(sum(h.cpu_milli), 0), coalesce(sum(h.memory_bytes), 0), coalesce(sum(h.rdma), 0),
            coalesce(sum(h.hugepages_bytes), 0), coalesce(sum(h.local_storage_bytes), 0))
    """,
)

NAMED_ONCE = Check(
    "I10",
    "A named device has at most one live hold, and so has a pod.",
    """
    SELECT 'device' AS what, device_uid AS name, count(*) AS holds FROM hold_device
    WHERE released_at IS NULL GROUP BY device_uid HAVING count(*) > 1
    UNION ALL
    SELECT 'pod', pod_id::text, count(*) FROM hold WHERE released_at IS NULL GROUP BY pod_id HAVING count(*) > 1
    """,
)

OWNED = Check(
    "I11",
    "Per cluster and Flavor, no more is held than the last inventory knew, save what a loss of devices left over.",
    """
    WITH live AS (
      SELECT cluster_id, flavor, sum(amount) AS amount FROM hold WHERE released_at IS NULL GROUP BY 1, 2
    ), known AS (
      SELECT cluster_id, flavor, sum(owned + overdraft) AS units FROM node_flavor GROUP BY 1, 2
    )
    SELECT cluster_id, flavor, live.amount AS held, coalesce(known.units, 0) AS known
    FROM live LEFT JOIN known USING (cluster_id, flavor) WHERE live.amount > coalesce(known.units, 0)
    """,
)

# A pod on a lost node is proven gone when the Node's object is, or when a fence or an admin says so.
RELEASED = Check(
    "I16",
    "A hold ends only when its pod is terminal or gone.",
    """
    SELECT h.pod_id, h.workload_id, h.attempt, p.state FROM hold h JOIN pod p ON p.id = h.pod_id
    WHERE h.released_at IS NOT NULL AND p.state NOT IN ('succeeded', 'failed', 'gone')
      AND NOT (p.state = 'lost' AND (
        EXISTS (SELECT FROM node n WHERE n.id = h.node_id AND n.removed_at IS NOT NULL)
        OR EXISTS (SELECT FROM reservation r WHERE (r.workload_id, r.attempt) = (h.workload_id, h.attempt)
                   AND r.proof IN ('fence', 'declared-lost'))))
    """,
)

LEAKED = Check(
    "I16",
    "A hold ends with its pod once the Attempt is over.",
    """
    SELECT h.pod_id, h.workload_id, h.attempt, p.state
    FROM hold h JOIN pod p ON p.id = h.pod_id JOIN attempt a ON (a.workload_id, a.attempt) = (h.workload_id, h.attempt)
    WHERE h.released_at IS NULL AND a.state = 'ended' AND p.state IN ('succeeded', 'failed', 'gone')
    """,
)

# Holds carry no foreign keys, since those halve the speed of a batch; so their references are looked at here.
REFERENCES = Check(
    "hold references",
    "A live hold names a placement, and the pod, node, Flavor and amount that the placement put there.",
    """
    SELECT h.id, h.pod_id, h.workload_id, h.attempt, h.cluster_id, h.node_id
    FROM hold h LEFT JOIN placement l USING (workload_id, attempt, cluster_id) LEFT JOIN pod p ON p.id = h.pod_id
    WHERE h.released_at IS NULL AND (l.cluster_id IS NULL OR p.id IS NULL
      OR (p.workload_id, p.attempt, p.cluster_id, p.node_id, p.flavor, p.amount)
         IS DISTINCT FROM (h.workload_id, h.attempt, h.cluster_id, h.node_id, h.flavor, h.amount))
    """,
)

CHECKS = (COUNTED, NEEDS, NAMED_ONCE, OWNED, RELEASED, LEAKED, REFERENCES)
