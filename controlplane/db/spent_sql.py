"""The statements behind limits beside quota: device-seconds used in a period, and live Attempts by leaf.

What Queues used is added up from the ledger: days of what was rolled up, intervals that were not yet, and the pods of
reservations that are still held, whose usage is written when they end. A Queue's sums are of it and all below it, also
of what was deleted there. Every period begins with a day.
"""

from sqlalchemy import text

BUDGETS = text("SELECT id, budgets FROM queue WHERE budgets <> '[]' AND deleted_at IS NULL ORDER BY id")

# Whole seconds as the roll-up counts them, so that an interval is as long before it as afterwards.
SPENT = text("""
WITH RECURSIVE asked (top, per, began) AS (
  SELECT * FROM unnest(CAST(:queues AS bigint[]), CAST(:pers AS text[]), CAST(:began AS timestamptz[]))
), below (top, id) AS (
  SELECT DISTINCT top, top FROM asked
  UNION ALL
  SELECT below.top, queue.id FROM below JOIN queue ON queue.parent_id = below.id
), used AS (
  SELECT asked.top, asked.per, days.flavor, days.seconds, 0 AS units, 0 AS late
  FROM asked JOIN below USING (top)
  CROSS JOIN LATERAL (
    SELECT flavor, sum(device_seconds) AS seconds FROM usage_day
    WHERE queue_id = below.id AND day >= asked.began GROUP BY flavor) AS days  -- so that both bound the index
  UNION ALL
  SELECT asked.top, asked.per, told.flavor,
         sum(told.amount * (floor(extract(epoch FROM upper(told.during)))
                          - floor(extract(epoch FROM greatest(lower(told.during), asked.began))))), 0, 0
  FROM usage_interval AS told JOIN below ON below.id = told.queue_id JOIN asked USING (top)
  WHERE NOT told.is_rolled_up AND upper(told.during) > asked.began
  GROUP BY asked.top, asked.per, told.flavor
  UNION ALL
  SELECT asked.top, asked.per, pod.flavor,
         coalesce(sum(pod.amount * greatest(0, ended.at - started.at)) FILTER (WHERE ended.at IS NOT NULL), 0),
         coalesce(sum(pod.amount) FILTER (WHERE ended.at IS NULL), 0),
         coalesce(sum(pod.amount * (started.at - extract(epoch FROM asked.began))) FILTER (WHERE ended.at IS NULL), 0)
  FROM below JOIN asked USING (top)
  JOIN reservation AS held ON held.queue_id = below.id AND held.state = 'held'
  JOIN attempt USING (workload_id, attempt)
  JOIN pod ON pod.workload_id = held.workload_id AND pod.attempt = held.attempt AND pod.flavor = held.flavor
  CROSS JOIN LATERAL (SELECT floor(extract(epoch FROM greatest(pod.started_at, attempt.placed_at, asked.began))) AS at)
      AS started
  CROSS JOIN LATERAL (SELECT floor(extract(epoch FROM pod.finished_at)) AS at) AS ended
  WHERE pod.started_at IS NOT NULL AND pod.amount > 0
  GROUP BY asked.top, asked.per, pod.flavor
)
SELECT top AS queue_id, per, flavor, CAST(sum(seconds) AS bigint) AS seconds, CAST(sum(units) AS bigint) AS units,
       CAST(sum(late) AS bigint) AS late
FROM used GROUP BY top, per, flavor ORDER BY top, per, flavor""")

COUNTS_RUNNING = text("SELECT EXISTS (SELECT FROM queue WHERE most_running IS NOT NULL AND deleted_at IS NULL)")

RUNNING_ELSEWHERE = text("""
SELECT workload.queue_id, count(*) AS live
FROM workload JOIN attempt ON attempt.workload_id = workload.id AND attempt.state <> 'ended'
WHERE workload.pool_id <> :pool AND workload.state IN ('reserved', 'running', 'stopping', 'cancelling')
GROUP BY workload.queue_id ORDER BY workload.queue_id""")
