"""The ledger's statements, each for a whole list at once; lists come as one array per column.

`stores.ledger` gives them their values. Locks are taken in order of (queue_id, flavor).
"""

from sqlalchemy import text

CHARGED = text("""
SELECT DISTINCT r.queue_id, r.flavor
FROM unnest(CAST(:workloads AS uuid[]), CAST(:attempts AS bigint[])) AS asked (workload_id, attempt)
JOIN reservation r USING (workload_id, attempt)
""")

_PATHS = """
WITH RECURSIVE path (queue_id, flavor) AS (
  SELECT DISTINCT * FROM unnest(CAST(:queues AS bigint[]), CAST(:flavors AS text[])) AS asked (queue_id, flavor)
  UNION
  SELECT q.parent_id, p.flavor FROM path p JOIN queue q ON q.id = p.queue_id WHERE q.parent_id IS NOT NULL
)
"""

# A Flavor that a Queue does not list has nominal 0 and no limits: it lives off its ancestors there.
MAKE_PATHS = text(f"""
{_PATHS}
INSERT INTO account (queue_id, flavor, is_root, subtree)
SELECT p.queue_id, p.flavor, q.parent_id IS NULL, 0 FROM path p JOIN queue q ON q.id = p.queue_id
WHERE NOT EXISTS (SELECT FROM account a WHERE a.queue_id = p.queue_id AND a.flavor = p.flavor)
ORDER BY 1, 2 ON CONFLICT DO NOTHING
""")

_ACCOUNT_COLUMNS = """
a.queue_id, a.flavor, q.parent_id, a.subtree, a.kept, a.borrow_limit, a.overdraft, a.pending, a.posted
"""

LOCK_PATHS = text(f"""
{_PATHS}
SELECT {_ACCOUNT_COLUMNS} FROM account a JOIN queue q ON q.id = a.queue_id
WHERE (a.queue_id, a.flavor) IN (SELECT queue_id, flavor FROM path)
ORDER BY a.queue_id, a.flavor FOR NO KEY UPDATE OF a
""")

MAKE_ALL = text("""
INSERT INTO account (queue_id, flavor, is_root, subtree)
SELECT q.id, f.flavor, q.parent_id IS NULL, 0
FROM queue q
CROSS JOIN (SELECT flavor FROM quota WHERE is_listed UNION SELECT flavor FROM node_flavor
            UNION SELECT flavor FROM account) AS f
WHERE q.deleted_at IS NULL
  AND NOT EXISTS (SELECT FROM account a WHERE a.queue_id = q.id AND a.flavor = f.flavor)
ORDER BY 1, 2 ON CONFLICT DO NOTHING
""")

_ALL = f"""
SELECT {_ACCOUNT_COLUMNS} FROM account a JOIN queue q ON q.id = a.queue_id ORDER BY a.queue_id, a.flavor
"""
READ_ALL = text(_ALL)
LOCK_ALL = text(f"{_ALL} FOR NO KEY UPDATE OF a")

OPEN_TRANSFERS = text("""
SELECT t.id, t.workload_id, t.attempt, r.queue_id, r.flavor, r.amount,
       EXISTS (SELECT FROM transfer p WHERE p.pending_id = t.id AND p.kind = 'post') AS is_posted
FROM unnest(CAST(:workloads AS uuid[]), CAST(:attempts AS bigint[])) AS asked (workload_id, attempt)
JOIN transfer t ON t.workload_id = asked.workload_id AND t.attempt = asked.attempt AND t.kind = 'place'
JOIN reservation r ON r.workload_id = t.workload_id AND r.attempt = t.attempt
WHERE NOT EXISTS (SELECT FROM transfer e WHERE e.pending_id = t.id AND e.kind IN ('void', 'expire'))
  AND NOT EXISTS (SELECT FROM transfer e WHERE e.pending_id = t.id AND e.kind = 'reverse')  -- an index for each
ORDER BY t.id, r.flavor
""")

TRANSFER_IDS = text("""
SELECT CAST(json_agg(nextval(pg_get_serial_sequence('transfer', 'id'))) AS text) FROM generate_series(1, :count)
""")

ADD_TRANSFERS = text("""
INSERT INTO transfer (id, kind, workload_id, attempt, pending_id, created_at)
SELECT id, kind, workload_id, attempt, pending_id, :now
FROM unnest(CAST(:ids AS bigint[]), CAST(:kinds AS text[]), CAST(:workloads AS uuid[]), CAST(:attempts AS bigint[]),
            CAST(:pending_ids AS bigint[])) AS listed (id, kind, workload_id, attempt, pending_id)
""")

ADD_LEGS = text("""
INSERT INTO leg (transfer_id, queue_id, flavor, amount, source, target)
SELECT * FROM unnest(CAST(:transfers AS bigint[]), CAST(:queues AS bigint[]), CAST(:flavors AS text[]),
                     CAST(:amounts AS bigint[]), CAST(:sources AS text[]), CAST(:targets AS text[]))
""")

# Overdraft never grows here, and shrinks to what is still in use beyond the limits.
MOVE_BALANCES = text("""
UPDATE account a
SET pending = a.pending + m.pending, posted = a.posted + m.posted,
    overdraft = least(a.overdraft, greatest(0,
      CASE WHEN a.is_root THEN a.pending + m.pending + a.posted + m.posted - a.subtree ELSE 0 END,
      coalesce(a.pending + m.pending + a.posted + m.posted - a.subtree - a.borrow_limit, 0)))
FROM unnest(CAST(:queues AS bigint[]), CAST(:flavors AS text[]), CAST(:pending AS bigint[]), CAST(:posted AS bigint[]))
     AS m (queue_id, flavor, pending, posted)
WHERE a.queue_id = m.queue_id AND a.flavor = m.flavor
""")

WRITE_LIMITS = text("""
UPDATE account a
SET is_root = m.is_root, subtree = m.subtree, kept = m.kept, borrow_limit = m.borrow_limit,
    overdraft = m.overdraft, posted = m.posted
FROM unnest(CAST(:queues AS bigint[]), CAST(:flavors AS text[]), CAST(:roots AS boolean[]),
            CAST(:subtrees AS bigint[]), CAST(:kept AS bigint[]), CAST(:borrow_limits AS bigint[]),
            CAST(:overdrafts AS bigint[]), CAST(:posted AS bigint[]))
     AS m (queue_id, flavor, is_root, subtree, kept, borrow_limit, overdraft, posted)
WHERE a.queue_id = m.queue_id AND a.flavor = m.flavor
""")

RELEASE = text("""
UPDATE reservation r SET state = 'released', released_at = :now, proof = :proof
FROM unnest(CAST(:workloads AS uuid[]), CAST(:attempts AS bigint[])) AS asked (workload_id, attempt)
WHERE r.workload_id = asked.workload_id AND r.attempt = asked.attempt AND r.state = 'held'
""")

# An interval is told again after a lost answer; the exclusion constraints know it by its pod and time.
ADD_USAGE = text("""
INSERT INTO usage_interval (pod_id, workload_id, attempt, queue_id, flavor, amount, device_key, during)
VALUES (:pod_id, CAST(:workload_id AS uuid), :attempt, :queue_id, :flavor, :amount, :device_key,
        tstzrange(:started_at, :ended_at))
ON CONFLICT DO NOTHING
""")

# The whole seconds of an interval in each hour are differences of floors, so that their sum is the interval's.
ROLL_UP = text("""
WITH taken AS (
  UPDATE usage_interval SET is_rolled_up = true
  WHERE id IN (SELECT id FROM usage_interval WHERE NOT is_rolled_up ORDER BY id LIMIT :limit
               FOR NO KEY UPDATE SKIP LOCKED)
  RETURNING queue_id, flavor, amount, during
), spread AS (
  SELECT queue_id, flavor, hour,
         sum(amount * (floor(extract(epoch FROM least(upper(during), hour + interval '1 hour')))
                     - floor(extract(epoch FROM greatest(lower(during), hour)))))::bigint AS seconds
  FROM taken, generate_series(date_trunc('hour', lower(during), 'UTC'), upper(during), interval '1 hour') AS hour
  WHERE hour < upper(during)
  GROUP BY queue_id, flavor, hour
), written AS (
  INSERT INTO usage_hour (queue_id, flavor, hour, device_seconds)
  SELECT queue_id, flavor, hour, seconds FROM spread ORDER BY queue_id, flavor, hour
  ON CONFLICT (queue_id, flavor, hour) DO UPDATE
  SET device_seconds = usage_hour.device_seconds + excluded.device_seconds
)
SELECT count(*) FROM taken
""")

QUEUES = text("""
SELECT id, path, parent_id, weight, namespace FROM queue q
WHERE deleted_at IS NULL OR EXISTS (SELECT FROM reservation r WHERE r.queue_id = q.id AND r.state = 'held')
ORDER BY path
""")

QUOTAS = text("""
SELECT queue_id, flavor, nominal, borrow_limit, lend_limit FROM quota WHERE is_listed ORDER BY queue_id, flavor
""")

LEAF_USAGE = text("""
SELECT queue_id, flavor, sum(amount) AS amount FROM reservation WHERE state = 'held' GROUP BY queue_id, flavor
""")
