"""The statements of `cordons`."""

from sqlalchemy import TextClause, text

from controlplane.db.stores.fleet_sql import CLUSTER_ROW, NODE_ROW


def _text(statement: str) -> TextClause:
    return text(statement)


HOLD_PLANNING = _text("SELECT pg_advisory_xact_lock(:class, :pool)")

CORDON_CLUSTER = _text("""
    UPDATE cluster SET cordon_reason = :reason, cordon_until = :until, cordon_by = :by, version = version + 1
    WHERE id = :cluster""")

DRAIN_CLUSTER = _text("""
    UPDATE cluster SET drain_reason = :reason, drain_deadline_at = :deadline, drain_by = :by, then_remove = :remove,
        version = version + 1
    WHERE id = :cluster""")

_THERE = "node.removed_at IS NULL AND cluster.removed_at IS NULL"
NODE = _text(f"{NODE_ROW} WHERE node.id = :node AND {_THERE}")
NODE_NAMED = _text(f"{NODE_ROW} WHERE node.cluster_id = :cluster AND node.name = :name AND {_THERE}")
ENDED_NODES = _text(f"""{NODE_ROW}
    WHERE node.cordon_until <= :now AND {_THERE} ORDER BY node.cordon_until, node.id LIMIT :limit""")

CORDON_NODE = _text("""
    UPDATE node SET cordoned_by_us = :reason, cordon_until = :until, cordon_by = :by,
        cordon_version = cordon_version + 1
    WHERE id = :node AND removed_at IS NULL""")

_DEVICE = """
    SELECT device.id, device.cluster_id, cluster.name AS cluster_name, cluster.pool_id, device.node_id,
           node.name AS node_name, device.device_key, device.cordon_reason, device.cordon_until, device.cordon_by,
           device.cordon_version
    FROM device JOIN cluster ON cluster.id = device.cluster_id JOIN node ON node.id = device.node_id
    WHERE device.state <> 'removed' AND cluster.removed_at IS NULL"""
DEVICE = _text(f"{_DEVICE} AND device.id = :device")
ENDED_DEVICES = _text(f"""{_DEVICE}
    AND device.cordon_reason <> '' AND device.cordon_until <= :now
    ORDER BY device.cordon_until, device.id LIMIT :limit""")

CORDON_DEVICE = _text("""
    UPDATE device SET cordon_reason = :reason, cordon_until = :until, cordon_by = :by,
        cordon_version = cordon_version + 1
    WHERE id = :device""")

# Also those that are away: one that comes back is counted before its row says that it is there.
CORDONED_DEVICES = _text("""
    SELECT device.device_key FROM node JOIN device ON device.node_id = node.id
    WHERE node.cluster_id = :cluster AND device.cordon_reason <> ''""")

LOCK_COUNTERS = _text("""
    SELECT flavor, resource, allocatable, withheld, foreign_held FROM node_flavor WHERE node_id = :node
    ORDER BY flavor FOR NO KEY UPDATE""")
LOCK_NODE = _text("SELECT resources FROM node WHERE id = :node FOR NO KEY UPDATE")
SET_RESOURCES = _text("UPDATE node SET resources = CAST(:resources AS jsonb) WHERE id = :node")
CARDS = _text("""
    SELECT device_key, flavor, resource, parent_key, slots_total, slots_allocatable, health,
           cordon_reason <> '' AS is_cordoned
    FROM device WHERE node_id = :node AND state <> 'removed' ORDER BY device_key""")

ENDED_CLUSTERS = _text("""
    SELECT id FROM cluster WHERE cordon_until <= :now AND removed_at IS NULL ORDER BY cordon_until, id LIMIT :limit""")
DRAINING = _text("""
    SELECT id FROM cluster WHERE drain_reason <> '' AND removed_at IS NULL ORDER BY id LIMIT :limit""")
LOCK_IF_FREE = _text(f"""{CLUSTER_ROW}
    WHERE id = :cluster AND removed_at IS NULL FOR NO KEY UPDATE SKIP LOCKED""")

LIVE_IN = _text("""
    SELECT CAST(attempt.workload_id AS text) AS workload, attempt.attempt
    FROM placement JOIN attempt USING (workload_id, attempt)
    WHERE placement.cluster_id = :cluster AND placement.state <> 'gone' AND attempt.state = ANY(:states)
    ORDER BY attempt.workload_id, attempt.attempt LIMIT CAST(:limit AS bigint)""")

# An Attempt counts once, wherever its proof is still awaited; its devices as long as their holds live.
LOAD = _text("""
    WITH living AS (
        SELECT workload_id, attempt FROM placement JOIN attempt USING (workload_id, attempt)
        WHERE placement.cluster_id = :cluster AND placement.state <> 'gone' AND attempt.state <> 'ended'),
    held AS (
        SELECT workload_id, sum(amount) AS devices FROM hold JOIN node ON node.id = hold.node_id
        WHERE node.cluster_id = :cluster AND released_at IS NULL GROUP BY workload_id),
    both_of AS (
        SELECT workload_id, 1 AS attempts, 0 AS devices FROM living
        UNION ALL SELECT workload_id, 0, devices FROM held)
    SELECT queue.path, sum(attempts) AS attempts, sum(devices) AS devices
    FROM both_of JOIN workload ON workload.id = both_of.workload_id JOIN queue ON queue.id = workload.queue_id
    GROUP BY queue.path ORDER BY queue.path""")

END_EARMARKS = _text("""
    UPDATE earmark SET ended_at = :now, next_check_at = NULL WHERE cluster_id = :cluster AND ended_at IS NULL""")

NODES_OF = _text("""
    SELECT DISTINCT node_id FROM hold JOIN node ON node.id = hold.node_id
    WHERE node.cluster_id = :cluster AND released_at IS NULL ORDER BY node_id""")

HAS_AGENT = _text("""
    SELECT EXISTS (SELECT FROM agent_key WHERE cluster_id = :cluster AND banned_at IS NULL AND slot <> 'retired')""")

REMOVE = _text("""
    UPDATE cluster SET removed_at = :now, next_check_at = NULL, cordon_reason = '', cordon_until = NULL
    WHERE id = :cluster""")
