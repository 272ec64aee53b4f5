"""Workloads and their Attempts: whole, one at a time, numbered upwards, over when they are over (I12-I15, I19)."""

from controlplane.db.invariants.check import Check

WHOLE = Check(
    "I12",
    "No Workload runs in part for longer than its budgets allow, where its clusters can be heard.",
    """
    SELECT a.workload_id, a.attempt, count(*) AS pods, count(*) FILTER (WHERE p.state = 'running') AS running
    FROM attempt a JOIN pod p USING (workload_id, attempt) JOIN cluster c ON c.id = p.cluster_id
    WHERE a.state = 'starting' AND a.start_ordered_at < :now - make_interval(secs => :partial_seconds)
    GROUP BY a.workload_id, a.attempt, a.start_ordered_at
    HAVING count(*) FILTER (WHERE p.state = 'running') BETWEEN 1 AND count(*) - 1 AND bool_and(c.state = 'ready')
       AND a.start_ordered_at < :now - make_interval(secs => :partial_seconds + greatest(0, max(coalesce(
           CAST(c.spec -> 'budgets' -> 'bindSeconds' AS bigint) + CAST(c.spec -> 'budgets' -> 'pullSeconds' AS bigint)
           + CAST(c.spec -> 'budgets' -> 'readySeconds' AS bigint), 0)) - :usual_seconds))
    """,
)

ONE_LIVE = Check(
    "I13",
    "A Workload has at most one live Attempt: one while it is reserved or running, none while it waits or is over.",
    """
    SELECT w.id, w.state, count(a.attempt) AS live
    FROM workload w LEFT JOIN attempt a ON a.workload_id = w.id AND a.state <> 'ended'
    GROUP BY w.id, w.state
    HAVING count(a.attempt) > 1
        OR (w.state IN ('reserved', 'running') AND count(a.attempt) <> 1)
        OR (w.state IN ('pending', 'succeeded', 'failed', 'cancelled') AND count(a.attempt) <> 0)
    """,
)

NUMBERS = Check(
    "I14",
    "Attempts of a Workload are numbered upwards, and it knows the last number.",
    """
    SELECT w.id, w.attempts_made, max(a.attempt) AS last
    FROM workload w LEFT JOIN attempt a ON a.workload_id = w.id
    GROUP BY w.id, w.attempts_made HAVING w.attempts_made <> coalesce(max(a.attempt), 0)
    UNION ALL
    SELECT a.workload_id, a.attempt, b.attempt FROM attempt a JOIN attempt b USING (workload_id)
    WHERE a.attempt < b.attempt AND a.placed_at > b.placed_at
    """,
)

CARRIED = Check(
    "I14",
    "Whatever is done for a Workload carries the number of an Attempt that there is.",
    """
    SELECT what, workload_id, attempt FROM (
      SELECT 'transfer' AS what, workload_id, attempt FROM transfer WHERE workload_id IS NOT NULL
      UNION ALL SELECT 'reservation', workload_id, attempt FROM reservation
      UNION ALL SELECT 'placement', workload_id, attempt FROM placement
      UNION ALL SELECT 'directive', workload_id, attempt FROM directive
      UNION ALL SELECT 'pod', workload_id, attempt FROM pod
      UNION ALL SELECT 'hold', workload_id, attempt FROM hold WHERE released_at IS NULL
    ) AS carried
    WHERE NOT EXISTS (SELECT FROM attempt a
                      WHERE a.workload_id = carried.workload_id AND a.attempt = carried.attempt)
    """,
)

RELEASED_WITH_PROOF = Check(
    "I15",
    "A reservation lasts as long as its Attempt lives and ends with the proof of its end, not before and not without.",
    """
    SELECT r.workload_id, r.attempt, r.flavor, r.state, r.proof, a.state AS attempt_state
    FROM reservation r JOIN attempt a USING (workload_id, attempt)
    WHERE (r.state = 'released') <> (a.state = 'ended')
       OR (r.state = 'released' AND (r.proof = '' OR r.released_at < a.ended_at))
    """,
)

FINAL = Check(
    "I19",
    "A Workload that has finished stays finished.",
    """
    SELECT w.id::text, w.state, w.finished_at::text FROM workload w
    WHERE (w.finished_at IS NOT NULL) <> (w.state IN ('succeeded', 'failed', 'cancelled'))
    UNION ALL
    SELECT object_id, state_to, at::text FROM audit
    WHERE object_kind = 'workload' AND state_from IN ('succeeded', 'failed', 'cancelled') AND state_to <> state_from
    """,
)

CHECKS = (WHOLE, ONE_LIVE, NUMBERS, CARRIED, RELEASED_WITH_PROOF, FINAL)
