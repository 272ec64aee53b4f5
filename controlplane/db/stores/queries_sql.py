"""The statements of the read models. Filters are all there at once; one that is NULL matches everything."""

from sqlalchemy import text

from controlplane.db.banned import AGENT_BANNED

# A scope of NULL sees everything; else a Queue must be one of the paths or stand below one.
IN_SCOPE = """(CAST(:paths AS text[]) IS NULL OR EXISTS (
    SELECT FROM unnest(CAST(:paths AS text[])) AS seen (path)
    WHERE queue.path = seen.path OR starts_with(queue.path, seen.path || '/')))"""

WORKLOAD = text(f"""
    SELECT workload.*, queue.path AS queue_path, pool.name AS pool_name
    FROM workload JOIN queue ON queue.id = workload.queue_id JOIN pool ON pool.id = workload.pool_id
    WHERE workload.id = CAST(:id AS uuid) AND {IN_SCOPE}""")

NAMED = text(f"""
    SELECT workload.id FROM workload JOIN queue ON queue.id = workload.queue_id
    WHERE workload.name = :name AND {IN_SCOPE}
    ORDER BY workload.state IN ('succeeded', 'failed', 'cancelled'), workload.submitted_at DESC LIMIT 2""")

POD_SETS = text("SELECT * FROM pod_set WHERE workload_id = CAST(:id AS uuid) ORDER BY position")

ATTEMPTS = text("SELECT * FROM attempt WHERE workload_id = CAST(:id AS uuid) ORDER BY attempt DESC LIMIT 100")

PLACEMENTS = text(f"""
    SELECT placement.attempt, cluster.name AS cluster, placement.state, placement.message,
           CASE WHEN {AGENT_BANNED} THEN 'banned' ELSE cluster.state END AS cluster_state
    FROM placement JOIN cluster ON cluster.id = placement.cluster_id
    WHERE placement.workload_id = CAST(:id AS uuid) ORDER BY placement.attempt, cluster.name""")

# Of the last Attempt only: a long history of a large gang would be too much for one answer.
NODE_USE = text("""
    SELECT pod.attempt, cluster.name AS cluster, node.name AS node, pod.flavor, pod.state, count(*) AS pods,
           sum(pod.amount) AS devices
    FROM pod JOIN cluster ON cluster.id = pod.cluster_id LEFT JOIN node ON node.id = pod.node_id
    WHERE pod.workload_id = CAST(:id AS uuid) AND pod.attempt = :attempt
    GROUP BY pod.attempt, cluster.name, node.name, pod.flavor, pod.state
    ORDER BY cluster.name, node.name, pod.flavor, pod.state""")

# Who waits and who ended badly speak first: why is asked of them. Of a few tries, and of a few pods of each.
POD_WORDS = text("""
    SELECT attempt, pod_set, pod_index, rank, node, state, exit_code, message
    FROM (SELECT pod.attempt, pod.pod_set, pod.index AS pod_index, pod.rank, coalesce(node.name, '') AS node, pod.state,
                 pod.exit_code, pod.message,
                 row_number() OVER (PARTITION BY pod.attempt
                     ORDER BY coalesce(pod.exit_code, 1) = 0, pod.finished_at NULLS FIRST, pod.rank) AS place
          FROM pod LEFT JOIN node ON node.id = pod.node_id
          WHERE pod.workload_id = CAST(:id AS uuid) AND pod.attempt > :attempt - 3
              AND pod.message NOT IN ('', 'Completed')) AS said
    WHERE place <= 8 ORDER BY attempt, place""")

QUEUES = text(f"""
    SELECT queue.id, queue.path, queue.parent_id, queue.weight, queue.namespace, queue.labels, queue.version,
           queue.most_running,
           (SELECT count(*) FROM workload WHERE queue_id = queue.id AND state = 'pending') AS waiting,
           (SELECT count(*) FROM workload WHERE queue_id = queue.id
                AND state IN ('reserved', 'running', 'stopping', 'cancelling')) AS running,
           {IN_SCOPE} AS visible
    FROM queue WHERE queue.deleted_at IS NULL
    ORDER BY array_length(string_to_array(queue.path, '/'), 1), queue.path""")

QUOTAS = text("SELECT * FROM quota WHERE is_listed ORDER BY queue_id, flavor")

ACCOUNTS = text("SELECT * FROM account ORDER BY queue_id, flavor")

CLUSTERS = text(f"""
    SELECT cluster.*, pool.name AS pool_name, {AGENT_BANNED} AS agent_banned,
           EXISTS (SELECT FROM agent_key WHERE agent_key.cluster_id = cluster.id) AS agent_known,
           (SELECT count(*) FROM node WHERE cluster_id = cluster.id AND removed_at IS NULL) AS nodes,
           (SELECT count(*) FROM node WHERE cluster_id = cluster.id AND removed_at IS NULL AND ready) AS nodes_ready,
           CASE WHEN drain_reason = '' THEN 0 ELSE (
               SELECT count(*) FROM placement JOIN attempt USING (workload_id, attempt)
               WHERE placement.cluster_id = cluster.id AND placement.state <> 'gone'
                   AND attempt.state <> 'ended') END AS attempts_left
    FROM cluster JOIN pool ON pool.id = cluster.pool_id
    WHERE cluster.removed_at IS NULL AND (CAST(:name AS text) IS NULL OR cluster.name = :name)
    ORDER BY cluster.name LIMIT 1000""")

CLUSTER_FLAVORS = text("""
    SELECT node_flavor.cluster_id, node_flavor.flavor, sum(owned) AS owned, sum(capacity) AS usable, sum(held) AS held,
           sum(foreign_held) AS foreign_held,
           sum(CASE WHEN node.ready AND NOT node.cordoned AND NOT node.deleting AND node.cordoned_by_us = ''
                     AND node.lost_at IS NULL THEN greatest(0, capacity - held) ELSE 0 END) AS free
    FROM node_flavor JOIN node ON node.id = node_flavor.node_id
    WHERE node.removed_at IS NULL AND node_flavor.cluster_id = ANY(:clusters)
    GROUP BY node_flavor.cluster_id, node_flavor.flavor ORDER BY node_flavor.cluster_id, node_flavor.flavor""")

NODES = text("""
    SELECT node.*, cluster.name AS cluster_name,
        (SELECT count(*) FROM hold WHERE hold.node_id = node.id AND released_at IS NULL) AS pods_held
    FROM node JOIN cluster ON cluster.id = node.cluster_id
    WHERE node.removed_at IS NULL AND cluster.removed_at IS NULL AND node.id > :after
        AND (CAST(:cluster AS text) IS NULL OR cluster.name = :cluster)
        AND (CAST(:node AS text) IS NULL OR node.name = :node)
        AND (CAST(:flavor AS text) IS NULL
             OR EXISTS (SELECT FROM node_flavor WHERE node_id = node.id AND flavor = :flavor AND owned > 0))
    ORDER BY node.id LIMIT :limit""")

NODE_FLAVORS = text("SELECT * FROM node_flavor WHERE node_id = ANY(:nodes) ORDER BY node_id, flavor")

DEVICES = text("""
    SELECT device.*, cluster.name AS cluster_name, node.name AS node_name
    FROM device JOIN cluster ON cluster.id = device.cluster_id JOIN node ON node.id = device.node_id
    WHERE device.state <> 'removed' AND cluster.removed_at IS NULL AND device.id > :after
        AND (CAST(:cluster AS text) IS NULL OR cluster.name = :cluster)
        AND (CAST(:node AS text) IS NULL OR node.name = :node)
        AND (CAST(:flavor AS text) IS NULL OR device.flavor = :flavor)
        AND (CAST(:health AS text) IS NULL OR device.health = :health)
    ORDER BY device.id LIMIT :limit""")

CYCLES = text("""
    SELECT cycle.id, pool.name AS pool, cycle.policy_version, cycle.decisions, cycle.dropped, cycle.work_units,
           cycle.left_over, cycle.started_at, cycle.finished_at, encode(cycle.plan_sha256, 'hex') AS plan_sha256
    FROM cycle JOIN pool ON pool.id = cycle.pool_id
    WHERE (CAST(:pool AS text) IS NULL OR pool.name = :pool) AND (CAST(:before AS bigint) IS NULL OR cycle.id < :before)
    ORDER BY cycle.id DESC LIMIT :limit""")

REBALANCE = text("""
    SELECT pool.name AS pool, rebalance_report.at, rebalance_report.report
    FROM rebalance_report JOIN pool ON pool.id = rebalance_report.pool_id
    WHERE pool.name = :pool ORDER BY rebalance_report.at DESC LIMIT 1""")

HEARTBEATS = text("""
    SELECT name, kind, CAST(extract(epoch FROM CAST(:now AS timestamptz) - at) AS bigint) AS age
    FROM process_heartbeat ORDER BY name""")
