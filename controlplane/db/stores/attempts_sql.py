"""The statements of `attempts`: each reads or writes whole sets of rows. Keys come as two arrays, rows as one JSON."""

from sqlalchemy import TextClause, text

_KEYS = "(SELECT * FROM unnest(CAST(:workloads AS uuid[]), CAST(:attempts AS bigint[])))"
_ROWS = "jsonb_to_recordset(CAST(:rows AS jsonb))"


def _text(statement: str) -> TextClause:
    return text(statement)


LOCK_WORKLOADS = _text("""
    SELECT id FROM workload WHERE id = ANY(CAST(:workloads AS uuid[])) ORDER BY id FOR NO KEY UPDATE""")

ATTEMPTS = _text(f"""
    SELECT CAST(a.workload_id AS text) AS workload, a.attempt, a.state, a.outcome, a.outcome_wanted, a.verdict,
           a.reason, a.placed_at, a.prepared_at, a.start_ordered_at, a.running_at, a.stop_ordered_at, a.failed_at,
           a.evidence_until, a.ended_at, a.next_check_at, w.name AS workload_name, w.state AS workload_state,
           w.version AS workload_version, w.queue_id, w.pool_id, w.shape, w.attempts_made, w.max_attempts,
           w.program_failures, w.infrastructure_ends
    FROM attempt a JOIN workload w ON w.id = a.workload_id
    WHERE (a.workload_id, a.attempt) IN {_KEYS} ORDER BY a.workload_id, a.attempt""")

PLACEMENTS = _text(f"""
    SELECT CAST(p.workload_id AS text) AS workload, p.attempt, p.cluster_id, p.state, p.wanted_gen, p.applied_gen,
           p.message, c.name AS cluster_name, c.state AS cluster_state,
           coalesce(c.spec -> 'budgets', CAST('{{}}' AS jsonb)) AS budgets
    FROM placement p JOIN cluster c ON c.id = p.cluster_id
    WHERE (p.workload_id, p.attempt) IN {_KEYS} ORDER BY p.workload_id, p.attempt, p.cluster_id""")

# A card counts as the pod's own where the cluster has told which it got; else a card of its Flavor on its node that
# fell ill while the Attempt was there. A node that is ready again may have been away while the Attempt ran.
PODS = _text(f"""
    SELECT p.id, CAST(p.workload_id AS text) AS workload, p.attempt, p.cluster_id, p.pod_set, p.index AS place,
           p.rank, p.node_id, coalesce(n.name, '') AS node_name, p.flavor, p.amount, p.state, p.uid, p.replacement_of,
           p.exit_code, p.disrupted, p.message, p.device_keys, p.started_at, p.finished_at, p.changed_at,
           EXISTS (SELECT FROM hold h WHERE h.pod_id = p.id AND h.released_at IS NULL) AS is_held,
           n.id IS NULL OR n.lost_at IS NOT NULL OR n.removed_at IS NOT NULL AS node_is_lost,
           CASE WHEN n.id IS NULL THEN p.changed_at
                WHEN NOT n.ready THEN coalesce(least(n.ready_changed_at, n.removed_at), n.observed_at)
                WHEN n.ready_changed_at > a.start_ordered_at THEN n.ready_changed_at END AS node_trouble_at,
           ill.health_changed_at AS device_trouble_at, coalesce(ill.words, '') AS device_words
    FROM pod p JOIN attempt a ON a.workload_id = p.workload_id AND a.attempt = p.attempt
    LEFT JOIN node n ON n.id = p.node_id
    LEFT JOIN LATERAL (
        SELECT d.health_changed_at, coalesce(d.health_reasons -> 0 ->> 'code', d.health) AS words
        FROM device d
        WHERE d.node_id = p.node_id AND d.flavor = p.flavor AND d.health IN ('unhealthy', 'lost')
          AND d.health_changed_at >= a.placed_at
          AND (p.device_keys = '[]' OR p.device_keys @> to_jsonb(d.device_key))
        ORDER BY d.health_changed_at LIMIT 1) ill ON true
    WHERE (p.workload_id, p.attempt) IN {_KEYS} ORDER BY p.workload_id, p.attempt, p.rank""")

# An Attempt may have outlived several Clusters of the same machines: the last one knew most.
TAKE_OVER = _text(f"""
    WITH left_over AS (
        SELECT DISTINCT ON (p.workload_id, p.attempt) p.workload_id, p.attempt, p.cluster_id, p.wanted_gen
        FROM placement p JOIN attempt a USING (workload_id, attempt)
        JOIN cluster gone ON gone.id = p.cluster_id JOIN cluster here ON here.id = :cluster
        WHERE (p.workload_id, p.attempt) IN {_KEYS} AND a.state = 'ended'
          AND gone.removed_at IS NOT NULL AND gone.fingerprint = here.fingerprint
        ORDER BY p.workload_id, p.attempt, p.cluster_id DESC),
    placed AS (
        INSERT INTO placement (workload_id, attempt, cluster_id, state, wanted_gen, applied_gen, message)
        SELECT workload_id, attempt, :cluster, 'stopping', wanted_gen + 1, wanted_gen, 'left over by a removed cluster'
        FROM left_over ORDER BY workload_id, attempt
        ON CONFLICT (workload_id, attempt, cluster_id) DO NOTHING
        RETURNING workload_id, attempt, wanted_gen)
    SELECT CAST(placed.workload_id AS text) AS workload, placed.attempt, placed.wanted_gen, left_over.cluster_id AS old
    FROM placed JOIN left_over USING (workload_id, attempt)
    ORDER BY placed.workload_id, placed.attempt""")

COPY_DIRECTIVES = _text(f"""
    INSERT INTO directive (cluster_id, object_id, gen, workload_id, attempt, kind, body, created_at)
    SELECT :cluster, d.object_id, d.gen, d.workload_id, d.attempt, d.kind, d.body, d.created_at
    FROM {_ROWS} AS r(workload uuid, attempt bigint, old bigint)
    JOIN directive d ON d.cluster_id = r.old AND d.object_id = r.workload || '.' || r.attempt
    ORDER BY d.object_id, d.gen""")

LIVE_OF = _text("""
    SELECT CAST(workload_id AS text) AS workload, attempt FROM attempt
    WHERE workload_id = ANY(CAST(:workloads AS uuid[])) AND state <> 'ended' ORDER BY workload_id""")

LIVE_IN = _text("""
    SELECT CAST(a.workload_id AS text) AS workload, a.attempt
    FROM placement p JOIN attempt a ON a.workload_id = p.workload_id AND a.attempt = p.attempt
    WHERE p.cluster_id = :cluster AND p.state <> 'gone' AND a.state <> 'ended' ORDER BY a.workload_id""")

LIVE_ON = _text("""
    SELECT CAST(p.workload_id AS text) AS workload, p.attempt
    FROM pod p JOIN attempt a ON a.workload_id = p.workload_id AND a.attempt = p.attempt
    WHERE p.node_id = ANY(CAST(:nodes AS bigint[])) AND p.state NOT IN ('succeeded', 'failed', 'gone')
      AND a.state <> 'ended'
    UNION
    SELECT CAST(a.workload_id AS text), a.attempt
    FROM attempt a JOIN pod p ON p.workload_id = a.workload_id AND p.attempt = a.attempt
    WHERE a.next_check_at IS NOT NULL AND a.failed_at IS NOT NULL AND a.verdict IS NULL
      AND p.node_id = ANY(CAST(:nodes AS bigint[]))
    ORDER BY 1, 2""")

HELD_ON = _text("""
    SELECT h.pod_id FROM hold h JOIN pod p ON p.id = h.pod_id
    WHERE h.node_id = ANY(CAST(:nodes AS bigint[])) AND h.released_at IS NULL AND p.state = 'lost'
    ORDER BY h.pod_id""")

# Locks nothing: accounts and counters come before Workloads, and who looks at the rows again does it under their lock.
DUE = _text("""
    SELECT CAST(workload_id AS text) AS workload, attempt FROM attempt
    WHERE next_check_at <= :now ORDER BY next_check_at LIMIT :limit""")

POLICIES = _text("""
    SELECT pool.id, pool.policy_version AS version, coalesce(policy.spec, CAST('{}' AS jsonb)) AS spec
    FROM pool LEFT JOIN policy ON policy.pool_id = pool.id AND policy.version = pool.policy_version
    WHERE pool.id = ANY(CAST(:pools AS bigint[]))""")

WRITE_ATTEMPTS = _text(f"""
    UPDATE attempt SET state = r.state, outcome = r.outcome, outcome_wanted = r.outcome_wanted, verdict = r.verdict,
        reason = nullif(r.reason, CAST('null' AS jsonb)), prepared_at = r.prepared_at,
        start_ordered_at = r.start_ordered_at, running_at = r.running_at, stop_ordered_at = r.stop_ordered_at,
        failed_at = r.failed_at, evidence_until = r.evidence_until, ended_at = r.ended_at,
        next_check_at = r.next_check_at
    FROM {_ROWS} AS r(workload_id uuid, attempt bigint, state text, outcome text, outcome_wanted text, verdict text,
        reason jsonb, prepared_at timestamptz, start_ordered_at timestamptz, running_at timestamptz,
        stop_ordered_at timestamptz, failed_at timestamptz, evidence_until timestamptz, ended_at timestamptz,
        next_check_at timestamptz)
    WHERE attempt.workload_id = r.workload_id AND attempt.attempt = r.attempt""")

WRITE_WORKLOADS = _text(f"""
    UPDATE workload SET state = r.state, version = workload.version + 1, program_failures = r.program_failures,
        infrastructure_ends = r.infrastructure_ends, next_check_at = CASE WHEN r.is_final THEN NULL
            ELSE r.next_check_at END,
        not_before = coalesce(r.not_before, workload.not_before),
        old_place = coalesce(nullif(r.old_place, CAST('null' AS jsonb)), workload.old_place),
        reasons = coalesce(nullif(r.reasons, CAST('null' AS jsonb)), workload.reasons),
        state_changed_at = CASE WHEN r.state = workload.state THEN workload.state_changed_at ELSE :now END,
        finished_at = CASE WHEN r.is_final THEN CAST(:now AS timestamptz) END
    FROM {_ROWS} AS r(id uuid, state text, is_final boolean, program_failures bigint, infrastructure_ends bigint,
        next_check_at timestamptz, not_before timestamptz, old_place jsonb, reasons jsonb)
    WHERE workload.id = r.id""")

WRITE_PLACEMENTS = _text(f"""
    UPDATE placement SET state = r.state, wanted_gen = r.wanted_gen,
        applied_gen = greatest(placement.applied_gen, r.applied_gen), message = r.message
    FROM {_ROWS} AS r(workload_id uuid, attempt bigint, cluster_id bigint, state text, wanted_gen bigint,
        applied_gen bigint, message text)
    WHERE placement.workload_id = r.workload_id AND placement.attempt = r.attempt
      AND placement.cluster_id = r.cluster_id""")

WRITE_PODS = _text(f"""
    UPDATE pod SET state = r.state, uid = r.uid, replacement_of = r.replacement_of, exit_code = r.exit_code,
        disrupted = r.disrupted, message = r.message, device_keys = r.device_keys, started_at = r.started_at,
        finished_at = r.finished_at, changed_at = r.changed_at
    FROM {_ROWS} AS r(id bigint, state text, uid text, replacement_of text, exit_code bigint, disrupted boolean,
        message text, device_keys jsonb, started_at timestamptz, finished_at timestamptz, changed_at timestamptz)
    WHERE pod.id = r.id""")

ADD_DIRECTIVES = _text(f"""
    INSERT INTO directive (cluster_id, object_id, gen, workload_id, attempt, kind, body, created_at)
    SELECT r.cluster_id, r.object_id, r.gen, r.workload_id, r.attempt, r.kind, r.body, :now
    FROM {_ROWS} AS r(cluster_id bigint, object_id text, gen bigint, workload_id uuid, attempt bigint, kind text,
        body jsonb)
    ORDER BY r.cluster_id, r.object_id, r.gen""")

ADD_EXCLUSIONS = _text(f"""
    INSERT INTO exclusion (shape, node_id, pool_id, words, until, created_at)
    SELECT r.shape, n.id, r.pool_id, r.words, r.until, :now
    FROM {_ROWS} AS r(shape text, cluster_id bigint, node_name text, pool_id bigint, words text, until timestamptz)
    JOIN node n ON n.cluster_id = r.cluster_id AND n.name = r.node_name AND n.removed_at IS NULL
    ORDER BY r.shape, n.id
    ON CONFLICT (shape, node_id) DO UPDATE
    SET words = excluded.words, until = excluded.until, times = exclusion.times + 1""")

_LIVE_HOLDS = "SELECT {columns} FROM hold WHERE pod_id = ANY(CAST(:pods AS bigint[])) AND released_at IS NULL"

LOCK_COUNTERS = _text(f"""
    SELECT node_id FROM node_flavor WHERE (node_id, flavor) IN ({_LIVE_HOLDS.format(columns="node_id, flavor")})
    ORDER BY node_id, flavor FOR NO KEY UPDATE""")

LOCK_NODES = _text(f"""
    SELECT id FROM node WHERE id IN ({_LIVE_HOLDS.format(columns="node_id")}) ORDER BY id FOR NO KEY UPDATE""")

# What a cut of capacity left over shrinks with what is given back, in the same statement.
RELEASE_HOLDS = _text("""
    WITH released AS (
        UPDATE hold SET released_at = :now
        WHERE pod_id = ANY(CAST(:pods AS bigint[])) AND released_at IS NULL
        RETURNING id, node_id, flavor, amount, cpu_milli, memory_bytes, rdma, hugepages_bytes, local_storage_bytes),
    named AS (
        UPDATE hold_device SET released_at = :now
        WHERE hold_id IN (SELECT id FROM released) AND released_at IS NULL),
    units AS (SELECT node_id, flavor, sum(amount) AS amount FROM released GROUP BY node_id, flavor),
    needs AS (
        SELECT node_id, sum(cpu_milli) AS cpu, sum(memory_bytes) AS memory, sum(rdma) AS rdma,
            sum(hugepages_bytes) AS hugepages, sum(local_storage_bytes) AS storage
        FROM released
        WHERE amount = 0 OR cpu_milli > 0 OR memory_bytes > 0 OR rdma > 0 OR hugepages_bytes > 0
            OR local_storage_bytes > 0
        GROUP BY node_id),
    counted AS (
        UPDATE node_flavor f SET held = f.held - u.amount,
            overdraft = greatest(0, f.held - u.amount - f.capacity)
        FROM units u WHERE f.node_id = u.node_id AND f.flavor = u.flavor)
    UPDATE node SET cpu_milli_held = greatest(0, node.cpu_milli_held - needs.cpu),
        memory_bytes_held = greatest(0, node.memory_bytes_held - needs.memory),
        rdma_held = greatest(0, node.rdma_held - needs.rdma),
        hugepages_bytes_held = greatest(0, node.hugepages_bytes_held - needs.hugepages),
        local_storage_bytes_held = greatest(0, node.local_storage_bytes_held - needs.storage)
    FROM needs WHERE node.id = needs.node_id""")

END_EARMARKS = _text("""
    UPDATE earmark SET ended_at = :now, next_check_at = NULL
    WHERE workload_id = ANY(CAST(:workloads AS uuid[])) AND ended_at IS NULL""")
