"""What is only appended to, and that every change of a state is written there once (I7, I28, I31)."""

from controlplane.db.invariants.check import Check

CHAIN = Check(
    "I7",
    "The audit log is as it was when it was sealed: each row is there, unchanged, in its place of the chain.",
    """
    SELECT s.position, s.audit_id FROM (
      SELECT position, audit_id, chain, row_number() OVER (ORDER BY position) AS expected,
             lag(chain, 1, decode(repeat('00', 32), 'hex')) OVER (ORDER BY position) AS before
      FROM audit_seal
    ) AS s LEFT JOIN audit a ON a.id = s.audit_id
    WHERE a.id IS NULL OR s.position <> s.expected OR s.chain <> sha256(s.before || audit_bytes(a))
    """,
)

APPEND_ONLY = Check(
    "I7",
    "Nobody but the owner could change history: the trigger is there and the plane's role has no grant.",
    """
    SELECT listed.name FROM unnest(ARRAY['transfer', 'leg', 'audit', 'audit_seal', 'directive']) AS listed (name)
    WHERE NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = to_regclass(listed.name)
                      AND t.tgname = 'append_only' AND t.tgenabled <> 'D')
       OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'muster_app'
                  AND has_table_privilege(r.oid, to_regclass(listed.name)::oid, 'UPDATE, DELETE, TRUNCATE'))
    """,
)

ONE_ANSWER = Check(
    "I28",
    "An idempotency key of a Principal stands for one request, answered once.",
    """
    SELECT principal_id, key, count(*) AS times FROM idempotency_key GROUP BY principal_id, key
    HAVING count(*) > 1 OR bool_or((status IS NULL) <> (response IS NULL))
    """,
)

# Creations need no row; after that each row begins where the one before ended, and the last one is where things stand.
AUDITED = Check(
    "I31",
    "Each change of a state has one audit row, so the rows of an object lead from its first state to the one it has.",
    """
    WITH object AS (
      SELECT 'workload' AS kind, id::text AS id, state FROM workload
      UNION ALL SELECT 'attempt', workload_id || '.' || attempt, state FROM attempt
      UNION ALL SELECT 'cluster', id::text, state FROM cluster
    ), first AS (
      SELECT entity AS kind, to_state AS state FROM state_transition WHERE from_state = ''
    ), step AS (
      SELECT object_kind AS kind, object_id AS id, id AS row_id, coalesce(state_from, '') AS state_from, state_to,
             lag(state_to) OVER steps AS before, lead(id) OVER steps IS NULL AS is_last
      FROM audit WHERE state_to IS NOT NULL AND object_kind IN ('workload', 'attempt', 'cluster')
      WINDOW steps AS (PARTITION BY object_kind, object_id ORDER BY id)
    )
    SELECT kind, o.id, o.state, s.row_id, s.state_from, s.state_to
    FROM object o JOIN first f USING (kind) LEFT JOIN step s USING (kind, id)
    WHERE (s.row_id IS NULL AND o.state <> f.state)
       OR (s.before IS NULL AND s.state_from NOT IN ('', f.state))
       OR (s.before IS NOT NULL AND s.state_from <> s.before)
       OR (s.is_last AND s.state_to <> o.state)
    """,
)

CHECKS = (CHAIN, APPEND_ONLY, ONE_ANSWER, AUDITED)
