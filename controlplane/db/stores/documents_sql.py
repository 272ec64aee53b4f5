"""The statements of `stores.documents`; rows come as one JSON list, so that a statement writes any number of them."""

from sqlalchemy import TextClause, text

# Weight, namespace and Quotas live in columns, which are the truth; the rest of a Queue's spec is as applied, and what
# planners obey of it stands in columns, too.
_QUEUES = """
    SELECT queue.id, queue.path AS name, queue.version, queue.labels,
           queue.spec || jsonb_build_object('weight', queue.weight, 'namespace', queue.namespace,
                                            'quotas', coalesce(listed.quotas, '[]')) AS spec
    FROM queue
    LEFT JOIN (
        SELECT queue_id, jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
                   'flavor', flavor, 'nominal', nominal, 'borrow', borrow_limit, 'lend', lend_limit))) AS quotas
        FROM quota WHERE is_listed GROUP BY queue_id
    ) AS listed ON listed.queue_id = queue.id
    WHERE queue.deleted_at IS NULL AND (CAST(:name AS text) IS NULL OR queue.path = :name)
    ORDER BY queue.path COLLATE "C" """

_POOLS = """
    SELECT id, name, NULL AS version, labels, spec FROM pool
    WHERE deleted_at IS NULL AND (CAST(:name AS text) IS NULL OR name = :name)
    ORDER BY name COLLATE "C" """

# A Policy that says nothing is none: it is what a Pool begins with, and what is left of a deleted one.
_POLICIES = """
    SELECT pool.id, pool.name, pool.policy_version AS version, policy.labels, policy.spec
    FROM pool JOIN policy ON policy.pool_id = pool.id AND policy.version = pool.policy_version
    WHERE pool.deleted_at IS NULL AND (policy.spec <> '{}' OR policy.labels <> '{}')
        AND (CAST(:name AS text) IS NULL OR pool.name = :name)
    ORDER BY pool.name COLLATE "C" """

_CLUSTERS = """
    SELECT cluster.id, cluster.name, NULL AS version, cluster.labels,
           cluster.spec || jsonb_build_object('pool', pool.name) AS spec
    FROM cluster JOIN pool ON pool.id = cluster.pool_id
    WHERE cluster.removed_at IS NULL AND (CAST(:name AS text) IS NULL OR cluster.name = :name)
    ORDER BY cluster.name COLLATE "C" """

STORED: dict[str, TextClause] = {
    "Queue": text(_QUEUES), "Pool": text(_POOLS), "Policy": text(_POLICIES), "Cluster": text(_CLUSTERS),
}  # fmt: skip

PUT_QUEUES = text("""
    INSERT INTO queue (path, parent_id, weight, namespace, labels, spec, created_at, budgets, most_running)
    SELECT sent.path, parent.id, sent.weight, sent.namespace, sent.labels, sent.spec, :now,
           coalesce(sent.spec -> 'budgets', '[]'), CAST(sent.spec ->> 'mostRunning' AS bigint)
    FROM jsonb_to_recordset(CAST(:rows AS jsonb))
         AS sent (path text, parent text, weight bigint, namespace text, labels jsonb, spec jsonb)
    LEFT JOIN queue AS parent ON parent.path = sent.parent AND parent.deleted_at IS NULL
    ORDER BY sent.path
    ON CONFLICT (path) DO UPDATE SET
        parent_id = excluded.parent_id, weight = excluded.weight, namespace = excluded.namespace,
        labels = excluded.labels, spec = excluded.spec, version = queue.version + 1, deleted_at = NULL,
        budgets = excluded.budgets, most_running = excluded.most_running""")

WITHDRAW_QUOTAS = text("""
    UPDATE quota SET is_listed = false FROM queue
    WHERE queue.id = quota.queue_id AND quota.is_listed AND queue.path = ANY(CAST(:paths AS text[]))
        AND NOT EXISTS (
            SELECT FROM unnest(CAST(:of AS text[]), CAST(:flavors AS text[])) AS kept (path, flavor)
            WHERE kept.path = queue.path AND kept.flavor = quota.flavor)""")

PUT_QUOTAS = text("""
    INSERT INTO quota (queue_id, flavor, nominal, borrow_limit, lend_limit, is_listed)
    SELECT queue.id, sent.flavor, sent.nominal, sent.borrow, sent.lend, true
    FROM unnest(CAST(:of AS text[]), CAST(:flavors AS text[]), CAST(:nominals AS bigint[]),
                CAST(:borrows AS bigint[]), CAST(:lends AS bigint[])) AS sent (path, flavor, nominal, borrow, lend)
    JOIN queue ON queue.path = sent.path AND queue.deleted_at IS NULL
    ORDER BY queue.id, sent.flavor
    ON CONFLICT (queue_id, flavor) DO UPDATE SET
        nominal = excluded.nominal, borrow_limit = excluded.borrow_limit, lend_limit = excluded.lend_limit,
        is_listed = true""")

# Who writes a row that points to a Queue takes FOR KEY SHARE on it, which this excludes.
HOLD_QUEUES = text("SELECT id FROM queue WHERE id = ANY(CAST(:queues AS bigint[])) ORDER BY id FOR UPDATE")

QUEUE_USES = text("""
    SELECT asked.id,
           (SELECT count(*) FROM workload
            WHERE queue_id = asked.id AND state NOT IN ('succeeded', 'failed', 'cancelled')) AS workloads,
           (SELECT coalesce(sum(amount), 0) FROM reservation WHERE queue_id = asked.id AND state = 'held') AS held
    FROM unnest(CAST(:queues AS bigint[])) AS asked (id)""")

# '~' is in no name, so what a deleted Queue is called now stands in nobody's way.
GIVE_UP_PATHS = text("""
    UPDATE queue SET path = path || '~' || id
    WHERE deleted_at IS NOT NULL AND (path = :path OR starts_with(path, :path || '/'))""")
SET_PARENT = text("UPDATE queue SET parent_id = :parent, version = version + 1 WHERE id = :queue RETURNING path")
MOVE_PATHS = text("""
    UPDATE queue SET path = :path || substr(path, length(:old) + 1)
    WHERE deleted_at IS NULL AND (path = :old OR starts_with(path, :old || '/'))""")

DELETE_QUEUES = text("""
    UPDATE queue SET deleted_at = :now, version = version + 1 WHERE id = ANY(CAST(:queues AS bigint[]))""")
WITHDRAW_ALL = text("""
    UPDATE quota SET is_listed = false WHERE queue_id = ANY(CAST(:queues AS bigint[])) AND is_listed""")
UNBIND = text("DELETE FROM role_binding WHERE queue_id = ANY(CAST(:queues AS bigint[])) RETURNING id")
REVOKE_WITHIN = text("""
    UPDATE api_token SET revoked_at = :now
    WHERE within_queue_id = ANY(CAST(:queues AS bigint[])) AND revoked_at IS NULL""")

PUT_POOL = text("""
    INSERT INTO pool (name, labels, spec) VALUES (:name, CAST(:labels AS jsonb), CAST(:spec AS jsonb))
    ON CONFLICT (name) DO UPDATE SET labels = excluded.labels, spec = excluded.spec, deleted_at = NULL
    RETURNING id""")
HOLD_POOL = text("SELECT id FROM pool WHERE id = :pool FOR UPDATE")
POOL_USE = text("""
    SELECT (SELECT coalesce(jsonb_agg(name ORDER BY name), '[]') FROM cluster
            WHERE pool_id = :pool AND removed_at IS NULL) AS clusters,
           (SELECT count(*) FROM workload
            WHERE pool_id = :pool AND state NOT IN ('succeeded', 'failed', 'cancelled')) AS workloads""")
DELETE_POOL = text("UPDATE pool SET deleted_at = :now WHERE id = :pool")

NEXT_POLICY = text("UPDATE pool SET policy_version = policy_version + 1 WHERE id = :pool RETURNING policy_version")
ADD_POLICY = text("""
    INSERT INTO policy (pool_id, version, labels, spec, created_at, created_by)
    VALUES (:pool, :version, CAST(:labels AS jsonb), CAST(:spec AS jsonb), :now, :by)""")
