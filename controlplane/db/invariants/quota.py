"""The ledger: balances, their limits, what they are made of, and each resolution once (I1 to I5, I8)."""

from controlplane.db.invariants.check import Check

LIMITS = Check(
    "I1",
    "An account's balances are not negative and within its limits, and overdraft is only what is in use beyond them.",
    """
    SELECT queue_id, flavor, pending, posted, subtree, borrow_limit, overdraft FROM account
    WHERE pending < 0 OR posted < 0 OR overdraft < 0
       OR (is_root AND pending + posted > subtree + overdraft)
       OR (borrow_limit IS NOT NULL AND pending + posted > subtree + borrow_limit + overdraft)
       OR overdraft > greatest(0, CASE WHEN is_root THEN pending + posted - subtree ELSE 0 END,
                               coalesce(pending + posted - subtree - borrow_limit, 0))
    """,
)

# An inner account's own usage is Σ max(0, U_c − K_c); with each account checked against its children's stored usage,
# all of them are what a recomputation from the leaves would give.
USAGE = Check(
    "I2",
    "What an account uses is what held reservations charge it, plus what passes its children's kept parts.",
    """
    WITH own AS (
      SELECT queue_id, flavor, sum(amount) AS amount FROM reservation WHERE state = 'held' GROUP BY 1, 2
    ), passed AS (
      SELECT q.parent_id AS queue_id, c.flavor, sum(greatest(0, c.pending + c.posted - c.kept)) AS amount
      FROM account c JOIN queue q ON q.id = c.queue_id WHERE q.parent_id IS NOT NULL GROUP BY 1, 2
    )
    SELECT queue_id, flavor, coalesce(a.pending + a.posted, 0) AS stored,
           coalesce(own.amount, 0) + coalesce(passed.amount, 0) AS recomputed
    FROM account a FULL JOIN own USING (queue_id, flavor) FULL JOIN passed USING (queue_id, flavor)
    WHERE coalesce(a.pending + a.posted, 0) <> coalesce(own.amount, 0) + coalesce(passed.amount, 0)
    """,
)

LEGS = Check(
    "I3",
    "A Transfer has a leg for each account that it changes, once, with an amount above 0.",
    """
    SELECT t.id, t.kind, NULL AS queue_id, NULL AS flavor FROM transfer t
    WHERE NOT EXISTS (SELECT FROM leg l WHERE l.transfer_id = t.id)
    UNION ALL
    SELECT l.transfer_id, t.kind, l.queue_id, l.flavor FROM leg l LEFT JOIN transfer t ON t.id = l.transfer_id
    GROUP BY l.transfer_id, t.kind, l.queue_id, l.flavor
    HAVING count(*) > 1 OR min(l.amount) <= 0 OR t.kind IS NULL
    """,
)

SIDES = Check(
    "I3",
    "A leg moves its amount between two sides of its account, as its Transfer's kind wants it.",
    """
    SELECT t.id, t.kind, l.queue_id, l.flavor, l.source, l.target
    FROM leg l JOIN transfer t ON t.id = l.transfer_id
    WHERE l.source = l.target OR NOT CASE t.kind
      WHEN 'place' THEN l.source = 'free'
      WHEN 'post' THEN l.source = 'pending' AND l.target = 'posted'
      WHEN 'reverse' THEN l.source = 'posted' AND l.target = 'free'
      WHEN 'adjust' THEN 'pending' NOT IN (l.source, l.target)
      ELSE l.target = 'free' END
    """,
)

REPLAY = Check(
    "I4",
    "An account's balances are what a replay of the Transfers gives.",
    """
    WITH replayed AS (
      SELECT queue_id, flavor,
             sum(CASE 'pending' WHEN target THEN amount WHEN source THEN -amount ELSE 0 END) AS pending,
             sum(CASE 'posted' WHEN target THEN amount WHEN source THEN -amount ELSE 0 END) AS posted
      FROM leg GROUP BY 1, 2
    )
    SELECT queue_id, flavor, a.pending, a.posted, r.pending AS replayed_pending, r.posted AS replayed_posted
    FROM account a FULL JOIN replayed r USING (queue_id, flavor)
    WHERE (coalesce(a.pending, 0), coalesce(a.posted, 0)) <> (coalesce(r.pending, 0), coalesce(r.posted, 0))
    """,
)

RESOLVED_ONCE = Check(
    "I5",
    "A placement is posted, voided or expired at most once, and reversed at most once, after it was posted.",
    """
    SELECT p.id, p.workload_id, p.attempt, string_agg(t.kind, ' ' ORDER BY t.id) AS resolutions
    FROM transfer t LEFT JOIN transfer p ON p.id = t.pending_id
    WHERE t.kind IN ('post', 'void', 'expire', 'reverse')
    GROUP BY p.id, p.kind, p.workload_id, p.attempt
    HAVING count(*) FILTER (WHERE t.kind <> 'reverse') > 1 OR count(*) FILTER (WHERE t.kind = 'reverse') > 1
        OR bool_or(t.kind = 'reverse') > bool_or(t.kind = 'post') OR p.kind IS DISTINCT FROM 'place'
        OR bool_or((t.workload_id, t.attempt) IS DISTINCT FROM (p.workload_id, p.attempt))
    """,
)

PENDING = Check(
    "I5",
    "What an account holds pending is what placements without a resolution charge it.",
    """
    WITH open AS (
      SELECT r.queue_id, r.flavor, sum(r.amount) AS amount
      FROM transfer t JOIN reservation r USING (workload_id, attempt)
      WHERE t.kind = 'place' AND r.state = 'held'
        AND NOT EXISTS (SELECT FROM transfer e WHERE e.pending_id = t.id)
      GROUP BY 1, 2
    )
    SELECT queue_id, flavor, a.pending, coalesce(open.amount, 0) AS open
    FROM account a LEFT JOIN open USING (queue_id, flavor) WHERE a.pending <> coalesce(open.amount, 0)
    """,
)

WALL_TIME = Check(
    "I8",
    "Usage intervals of one pod, and of one named device, do not overlap: no device is used twice at one time.",
    """
    SELECT a.id, b.id AS other, a.pod_id, a.device_key, a.during
    FROM usage_interval a JOIN usage_interval b ON a.pod_id = b.pod_id AND a.id < b.id AND a.during && b.during
    UNION ALL
    SELECT a.id, b.id, a.pod_id, a.device_key, a.during
    FROM usage_interval a JOIN usage_interval b
      ON a.device_key = b.device_key AND a.device_key <> '' AND a.id < b.id AND a.during && b.during
    """,
)

BUDGETS = Check(
    "budgets",
    "The limits beside quota that planners obey are those that a Queue's document states.",
    """
    SELECT id, path, budgets, most_running, spec -> 'budgets' AS stated, spec ->> 'mostRunning' AS stated_most_running
    FROM queue WHERE deleted_at IS NULL AND (
        budgets <> coalesce(spec -> 'budgets', '[]')
        OR most_running IS DISTINCT FROM CAST(spec ->> 'mostRunning' AS bigint))
    """,
)

CHECKS = (LIMITS, USAGE, LEGS, SIDES, REPLAY, RESOLVED_ONCE, PENDING, WALL_TIME, BUDGETS)
