"""The statements of `snapshot_reader`, one per table of a planner's world.

Each takes `pool` and `since` (a transaction id; 0 reads everything that is alive). Rows that left the world come
too when `since` is set, so that a warm planner forgets them.
"""

from sqlalchemy import TextClause, text

from controlplane.db.banned import AGENT_BANNED

_SINCE = "CAST(CAST(:since AS text) AS xid8)"


def _text(statement: str) -> TextClause:
    return text(statement.replace("{since}", _SINCE))


CLOCK = _text("SELECT clock_timestamp(), CAST(pg_current_snapshot() AS text)")

POLICY = _text("""
    SELECT pool.name, pool.policy_version AS version, coalesce(policy.spec, CAST('{}' AS jsonb)) AS spec
    FROM pool LEFT JOIN policy ON policy.pool_id = pool.id AND policy.version = pool.policy_version
    WHERE pool.id = :pool""")

CLUSTERS = _text(f"""
    SELECT id, pool_id, name, state, levels, labels, namespaces, inventory_at, removed_at, cordon_reason, cordon_until,
           drain_reason, {AGENT_BANNED} AS agent_banned, coalesce(spec ->> 'networkDomain', '') AS network_domain,
           coalesce(spec ->> 'memberAddress', '') AS member_address,
           spec -> 'facts' AS facts
    FROM cluster
    WHERE changed_xid >= {_SINCE} AND (:since > 0 OR (pool_id = :pool AND removed_at IS NULL))
    ORDER BY id""")

# A node is read whole when more of it, or of its counters, was written than what is held there (`told_xid`, which moves
# together with `changed_xid`). Where its cluster has other levels, whoever stores them touches it.
NODES = _text("""
    SELECT node.id, node.cluster_id, node.name, node.ready, node.cordoned, node.deleting, node.cordoned_by_us,
           node.lost_at, node.removed_at, CAST(node.domains AS text) AS domains,
           node.cpu_milli, node.memory_bytes, node.cpu_milli_held,
           node.memory_bytes_held, node.pods, node.rdma, node.rdma_held, node.hugepages_bytes,
           node.hugepages_bytes_held, node.local_storage_bytes, node.local_storage_bytes_held, node.labels, node.taints,
           CAST(cluster.levels AS text) AS levels,
           (SELECT cordon_reason FROM device WHERE node_id = node.id AND cordon_reason <> '' ORDER BY device.id LIMIT 1)
               AS device_cordon
    FROM node JOIN cluster ON cluster.id = node.cluster_id
    WHERE cluster.pool_id = :pool AND (:since > 0 OR node.removed_at IS NULL) AND (
        (node.changed_xid >= {since} AND node.told_xid >= {since})
        OR node.id IN (SELECT node_id FROM node_flavor WHERE changed_xid >= {since} AND told_xid >= {since}))
    ORDER BY node.id""")

# The others of which something moved, without those that the reader has as it wrote them itself.
HELD = _text("""
    WITH moved AS (
        SELECT id FROM node WHERE changed_xid >= {since} AND changed_xid <> ALL(CAST(:own AS xid8[]))
        UNION SELECT node_id FROM node_flavor
        WHERE changed_xid >= {since} AND changed_xid <> ALL(CAST(:own AS xid8[]))
        UNION SELECT unnest(CAST(:again AS bigint[])))
    SELECT node.id, node_flavor.flavor, node_flavor.held, node.cpu_milli_held, node.memory_bytes_held,
           (SELECT count(*) FROM hold WHERE hold.node_id = node.id AND released_at IS NULL) AS pods, node.rdma_held,
           node.hugepages_bytes_held, node.local_storage_bytes_held
    FROM moved JOIN node ON node.id = moved.id JOIN cluster ON cluster.id = node.cluster_id
        LEFT JOIN node_flavor ON node_flavor.node_id = node.id
    WHERE cluster.pool_id = :pool AND node.removed_at IS NULL
    ORDER BY node.id, node_flavor.flavor""")

NODE_FLAVORS = _text("""
    SELECT node_id, flavor, resource, owned, capacity, held, withheld FROM node_flavor
    WHERE node_id = ANY(CAST(:nodes AS bigint[])) ORDER BY node_id, flavor""")

HELD_PODS = _text("""
    SELECT node_id, count(*) AS pods FROM hold
    WHERE released_at IS NULL AND node_id = ANY(CAST(:nodes AS bigint[])) GROUP BY node_id""")

QUEUES_CHANGED = _text("""
    SELECT EXISTS (SELECT FROM queue WHERE changed_xid >= {since})
        OR EXISTS (SELECT FROM quota WHERE changed_xid >= {since})""")

QUEUES = _text("""
    SELECT id, path, parent_id, weight, namespace, budgets, most_running, deleted_at FROM queue
    ORDER BY array_length(string_to_array(path, '/'), 1), path""")

QUOTAS = _text("""
    SELECT queue_id, flavor, nominal, borrow_limit, lend_limit FROM quota WHERE is_listed ORDER BY queue_id, flavor""")

WORKLOADS = _text("""
    SELECT CAST(workload.id AS text) AS id, workload.name, workload.queue_id, workload.pool_id, workload.owner,
           workload.priority,
           workload.state, workload.shape,
           greatest(workload.attempts_made, workload.attempts_seen) AS attempts_made,
           CAST(workload.old_place AS text) AS old_place, workload.not_before,
           workload.infrastructure_ends,
           workload.submitted_at, workload.spec ->> 'strategy' AS strategy,
           CAST(workload.spec -> 'clusters' AS text) AS clusters,
           CAST(workload.spec -> 'requires' AS text) AS requires,
           coalesce(workload.spec ->> 'namespace', '') AS namespace
    FROM workload
    WHERE (changed_xid >= {since} AND changed_xid <> ALL(CAST(:own AS xid8[]))
           OR :since > 0 AND id = ANY(CAST(:again AS uuid[])))
        AND (:since > 0 OR (pool_id = :pool AND state = 'pending'))
    ORDER BY workload.id""")

POD_SETS = _text("""
    SELECT CAST(workload_id AS text) AS workload_id, name, replicas, devices, CAST(flavors AS text) AS flavors,
           cpu_milli, memory_bytes,
           topology_mode, topology_level, min_replicas, rdma, hugepages_bytes, local_storage_bytes, slice_size,
           slice_level, with_pod_set, CAST(speeds AS text) AS speeds, CAST(rules AS text) AS rules
    FROM pod_set WHERE workload_id = ANY(CAST(:workloads AS uuid[])) ORDER BY workload_id, position""")

# One that ended is of no interest beside a live one of the same Workload, which may not have been written since.
ATTEMPTS = _text("""
    SELECT CAST(attempt.workload_id AS text) AS workload_id, attempt.attempt, attempt.state, attempt.placed_at,
           workload.name, workload.queue_id, workload.owner, workload.priority, workload.pool_id
    FROM attempt JOIN workload ON workload.id = attempt.workload_id
    WHERE (attempt.changed_xid >= {since} AND attempt.changed_xid <> ALL(CAST(:own AS xid8[]))
           OR :since > 0 AND attempt.workload_id = ANY(CAST(:again AS uuid[])))
        AND (:since > 0 OR (workload.pool_id = :pool AND attempt.state <> 'ended'))
        AND (attempt.state <> 'ended' OR NOT EXISTS (
            SELECT FROM attempt live WHERE live.workload_id = attempt.workload_id AND live.state <> 'ended'))
    ORDER BY attempt.workload_id, attempt.attempt""")

_KEYS = "(SELECT * FROM unnest(CAST(:workloads AS uuid[]), CAST(:attempts AS bigint[])))"

SHARES = _text(f"""
    SELECT CAST(workload_id AS text) AS workload_id, node_id, cluster_id, flavor, sum(amount) AS amount,
           sum(cpu_milli) AS cpu_milli, sum(memory_bytes) AS memory_bytes, count(*) AS pods, sum(rdma) AS rdma,
           sum(hugepages_bytes) AS hugepages_bytes, sum(local_storage_bytes) AS local_storage_bytes FROM hold
    WHERE released_at IS NULL AND (workload_id, attempt) IN {_KEYS}
    GROUP BY hold.workload_id, node_id, cluster_id, flavor ORDER BY hold.workload_id, node_id, flavor""")

CHARGES = _text(f"""
    SELECT CAST(workload_id AS text) AS workload_id, flavor, amount FROM reservation
    WHERE state = 'held' AND (workload_id, attempt) IN {_KEYS} ORDER BY workload_id, flavor""")

EARMARKS = _text("""
    SELECT CAST(workload_id AS text) AS workload_id, cluster_id, shares, until, ended_at FROM earmark
    WHERE changed_xid >= {since} AND pool_id = :pool AND (:since > 0 OR ended_at IS NULL) ORDER BY workload_id""")

EXCLUSIONS = _text("""
    SELECT shape, node_id, until, words FROM exclusion
    WHERE changed_xid >= {since} AND pool_id = :pool ORDER BY shape, node_id""")

# A Queue with rows of several Flavors is read whole when one of them changed.
STANDINGS = _text("""
    SELECT queue_id, min(weight) AS weight, sum(contended) AS contended, sum(credit) AS credit,
           max(reckoned_at) AS reckoned_at
    FROM queue_history
    WHERE pool_id = :pool AND queue_id IN (
        SELECT queue_id FROM queue_history WHERE pool_id = :pool AND changed_xid >= {since})
    GROUP BY queue_id ORDER BY queue_id""")

OWNERS = _text("""
    SELECT queue_id, owner, used FROM owner_history
    WHERE pool_id = :pool AND changed_xid >= {since} ORDER BY queue_id, owner""")

# What other Pools charge to the same accounts; a Queue's sums are read again when one of its attempts moved.
ELSEWHERE = _text("""
    WITH touched AS (
        SELECT DISTINCT workload.queue_id FROM attempt JOIN workload ON workload.id = attempt.workload_id
        WHERE workload.pool_id <> :pool AND attempt.changed_xid >= {since})
    SELECT reservation.queue_id, reservation.flavor,
           coalesce(sum(reservation.amount) FILTER (WHERE reservation.state = 'held'), 0) AS amount
    FROM touched JOIN reservation USING (queue_id) JOIN workload ON workload.id = reservation.workload_id
    WHERE workload.pool_id <> :pool
    GROUP BY reservation.queue_id, reservation.flavor ORDER BY 1, 2""")
