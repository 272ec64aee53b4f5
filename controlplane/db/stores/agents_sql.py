"""The statements of `agents`: tokens, keys, sessions, and the numbered stream of directives per cluster."""

from sqlalchemy import TextClause, text


def _text(statement: str) -> TextClause:
    return text(statement)


ADD_TOKEN = _text("""
    INSERT INTO enrolment_token (cluster_id, token_sha256, auto_accept, created_at, created_by, expires_at)
    VALUES (:cluster, :digest, :auto_accept, :now, :created_by, :expires_at) RETURNING id""")

TOKEN = _text("""
    SELECT id, cluster_id, uses, uses_max, used_by_thumbprint, auto_accept, expires_at, last_used_at, revoked_at
    FROM enrolment_token WHERE token_sha256 = :digest""")

USE_TOKEN = _text("""
    UPDATE enrolment_token SET uses = uses + 1, used_by_thumbprint = :thumbprint, last_used_at = :now
    WHERE id = :token AND uses < uses_max AND revoked_at IS NULL AND expires_at >= :now RETURNING id""")

REVOKE_TOKENS = _text("""
    UPDATE enrolment_token SET revoked_at = :now
    WHERE cluster_id = :cluster AND revoked_at IS NULL AND uses < uses_max RETURNING id""")

_KEY = """
    SELECT k.thumbprint, k.cluster_id, c.name AS cluster_name, c.state AS cluster_state, k.algorithm, k.jwk, k.slot,
           k.created_at, k.banned_at
    FROM agent_key k JOIN cluster c ON c.id = k.cluster_id"""
KEY = _text(f"{_KEY} WHERE k.thumbprint = :thumbprint")

RETIRE_SLOT = _text("""
    UPDATE agent_key SET slot = 'retired'
    WHERE cluster_id = :cluster AND slot = :slot AND thumbprint <> :thumbprint""")

ADD_KEY = _text("""
    INSERT INTO agent_key AS k (thumbprint, cluster_id, algorithm, jwk, slot, created_at)
    VALUES (:thumbprint, :cluster, :algorithm, CAST(:jwk AS jsonb), :slot, :now)
    ON CONFLICT (thumbprint) DO UPDATE SET slot = CASE WHEN k.slot = 'current' THEN 'current' ELSE excluded.slot END
    WHERE k.cluster_id = excluded.cluster_id AND k.banned_at IS NULL
    RETURNING thumbprint""")

# The old key goes first: two rows may never stand in one slot.
RETIRE_FOR = _text("""
    UPDATE agent_key old SET slot = 'retired' FROM agent_key new
    WHERE new.thumbprint = :thumbprint AND new.slot = 'next' AND old.cluster_id = new.cluster_id
      AND old.slot = 'current'""")
PROMOTE = _text("""
    UPDATE agent_key SET slot = 'current' WHERE thumbprint = :thumbprint AND slot = 'next' RETURNING thumbprint""")

TAKE_HELLO = _text("""
    UPDATE agent_key SET hello_iat = :iat
    WHERE thumbprint = :thumbprint AND (hello_iat IS NULL OR hello_iat < :iat) RETURNING thumbprint""")

BAN_KEYS = _text("""
    UPDATE agent_key SET banned_at = :now WHERE cluster_id = :cluster AND banned_at IS NULL RETURNING thumbprint""")

# Planners read whose agent is banned together with the cluster's row, so it is written for them to see.
TOUCH_CLUSTER = _text("UPDATE cluster SET version = version + 1 WHERE id = :cluster")

END_SESSIONS = _text("""
    UPDATE agent_session SET ended_at = :now WHERE cluster_id = :cluster AND ended_at IS NULL""")

OPEN_SESSION = _text("""
    INSERT INTO agent_session (cluster_id, epoch, instance_id, thumbprint, acked_number, lease_until, started_at,
        last_heard_at)
    SELECT :cluster, coalesce(max(epoch), 0) + 1, :instance_id, :thumbprint, :acked_number, :lease_until, :now, :now
    FROM agent_session WHERE cluster_id = :cluster RETURNING epoch""")

_SESSION = """
    SELECT cluster_id, epoch, instance_id, thumbprint, seq, answer, acked_number, lease_until, started_at, ended_at,
           full_asked_at, (SELECT recovering FROM cluster WHERE cluster.id = cluster_id) AS is_recovering
    FROM agent_session WHERE cluster_id = :cluster AND ended_at IS NULL"""
SESSION = _text(_SESSION)
SESSION_LOCKED = _text(f"{_SESSION} FOR NO KEY UPDATE")

TAKE_SEQ = _text("""
    UPDATE agent_session SET seq = :seq, answer = NULL, acked_number = greatest(acked_number, :acked_number),
        lease_until = :lease_until, last_heard_at = :now
    WHERE cluster_id = :cluster AND epoch = :epoch AND ended_at IS NULL AND seq < :seq RETURNING epoch""")

# Whoever comes second with the same number gets the first one's answer.
STORE_ANSWER = _text("""
    UPDATE agent_session SET answer = coalesce(answer, CAST(:answer AS jsonb))
    WHERE cluster_id = :cluster AND epoch = :epoch AND ended_at IS NULL AND seq = :seq RETURNING answer""")

FULL_ASKED = _text("UPDATE agent_session SET full_asked_at = :now WHERE cluster_id = :cluster AND epoch = :epoch")

ENSURE_COUNTERS = _text("""
    INSERT INTO cluster_counter (cluster_id, direction)
    SELECT id, 'down' FROM unnest(CAST(:clusters AS bigint[])) AS id ORDER BY id
    ON CONFLICT (cluster_id, direction) DO NOTHING""")

LOCK_COUNTERS = _text("""
    SELECT cluster_id FROM cluster_counter
    WHERE cluster_id = ANY(CAST(:clusters AS bigint[])) AND direction = 'down' ORDER BY cluster_id FOR NO KEY UPDATE""")

# Only a live Placement whose agent is behind can have a directive without a number.
_BEHIND = """
    FROM placement p
    JOIN directive d ON d.cluster_id = p.cluster_id AND d.object_id = p.workload_id || '.' || p.attempt
        AND d.gen > p.applied_gen
    WHERE p.state <> 'gone' AND p.applied_gen < p.wanted_gen
      AND NOT EXISTS (SELECT FROM directive_number n
                      WHERE n.cluster_id = d.cluster_id AND n.object_id = d.object_id AND n.gen = d.gen)"""

NUMBER = _text(f"""
    WITH waiting AS (
        SELECT d.cluster_id, d.object_id, d.gen, row_number() OVER (
            PARTITION BY d.cluster_id ORDER BY d.created_at, d.object_id, d.gen) AS place
        {_BEHIND} AND p.cluster_id = ANY(CAST(:clusters AS bigint[]))),
    numbered AS (
        INSERT INTO directive_number (cluster_id, number, object_id, gen)
        SELECT w.cluster_id, c.value + w.place, w.object_id, w.gen
        FROM waiting w JOIN cluster_counter c ON c.cluster_id = w.cluster_id AND c.direction = 'down'
        RETURNING cluster_id, number),
    tops AS (SELECT cluster_id, max(number) AS top FROM numbered GROUP BY cluster_id)
    UPDATE cluster_counter SET value = tops.top FROM tops
    WHERE cluster_counter.cluster_id = tops.cluster_id AND cluster_counter.direction = 'down'
    RETURNING cluster_counter.cluster_id""")

UNNUMBERED = _text(f"SELECT DISTINCT d.cluster_id {_BEHIND} ORDER BY d.cluster_id LIMIT :limit")

LAST_NUMBER = _text("SELECT value FROM cluster_counter WHERE cluster_id = :cluster AND direction = 'down'")

# `told`: numbered directives of objects that are not gone. Where a tombstone is out, it alone is still to be done.
DIRECTIVES_AFTER = _text("""
    WITH told AS (
        SELECT n.number, d.object_id, d.gen, d.kind, d.workload_id, d.attempt, d.body,
               max(d.gen) FILTER (WHERE d.kind = 'tombstone') OVER (PARTITION BY d.object_id) AS last_tombstone
        FROM placement p
        JOIN directive d ON d.cluster_id = p.cluster_id AND d.object_id = p.workload_id || '.' || p.attempt
        JOIN directive_number n ON n.cluster_id = d.cluster_id AND n.object_id = d.object_id AND n.gen = d.gen
        WHERE p.cluster_id = :cluster AND p.state <> 'gone' AND n.number <= :upto)
    SELECT number, object_id, gen, kind, CAST(workload_id AS text) AS workload, attempt, body
    FROM told WHERE number > :after AND (last_tombstone IS NULL OR gen = last_tombstone)
    ORDER BY number LIMIT :limit""")

KNOWN_OBJECTS = _text("""
    SELECT n.object_id, max(n.gen) AS gen
    FROM placement p
    JOIN directive_number n ON n.cluster_id = p.cluster_id AND n.object_id = p.workload_id || '.' || p.attempt
    WHERE p.cluster_id = :cluster AND p.state <> 'gone' AND n.number <= :upto
    GROUP BY n.object_id ORDER BY n.object_id""")

MAKE_PLANE = _text("""
    INSERT INTO plane (id, incarnation) VALUES (1, CAST(gen_random_uuid() AS text)) ON CONFLICT (id) DO NOTHING""")
PLANE = _text("SELECT incarnation, epoch, listened_at, listening_since, recovering_since FROM plane WHERE id = 1")
# An epoch that no life of the data before has had, not even one that the backup knows nothing of: the clock's seconds.
BEGIN_RECOVERY = _text("""
    UPDATE plane SET incarnation = CAST(gen_random_uuid() AS text), recovering_since = :now,
        epoch = greatest(epoch + 1, CAST(extract(epoch FROM CAST(:now AS timestamptz)) AS bigint))
    WHERE id = 1 RETURNING epoch""")
RECOVER_CLUSTERS = _text("UPDATE cluster SET recovering = true WHERE removed_at IS NULL")
END_ALL_SESSIONS = _text("UPDATE agent_session SET ended_at = :now WHERE ended_at IS NULL RETURNING cluster_id")
END_RECOVERY = _text("UPDATE plane SET recovering_since = NULL WHERE id = 1")
RECOVERED = _text("UPDATE cluster SET recovering = false WHERE id = :cluster")
RECOVERING = _text("""
    SELECT name FROM cluster
    WHERE recovering AND removed_at IS NULL AND state NOT IN ('created', 'enrolled') ORDER BY name""")
# A backup is behind by so few numbers; more would be somebody's who wants to do harm, or a fault.
NUMBERS_LOST_MAX = 1_000
NOTE_UNKNOWN = _text(f"""
    UPDATE workload SET attempts_seen = greatest(attempts_seen, told.attempt),
        not_before = greatest(coalesce(not_before, :until), :until)
    FROM (SELECT id, max(attempt) AS attempt
          FROM unnest(CAST(:workloads AS uuid[]), CAST(:attempts AS bigint[])) AS one (id, attempt) GROUP BY id) AS told
    WHERE workload.id = told.id AND workload.pool_id = :pool AND state NOT IN ('succeeded', 'failed', 'cancelled')
        AND told.attempt <= attempts_made + {NUMBERS_LOST_MAX}""")
SESSIONS_BEFORE = _text("""
    SELECT name FROM cluster
    WHERE removed_at IS NULL AND state NOT IN ('created', 'enrolled')
      AND NOT EXISTS (SELECT FROM agent_session s WHERE s.cluster_id = cluster.id AND s.started_at >= :since)
    ORDER BY name""")
NOTE_LISTENING = _text("""
    UPDATE plane SET listened_at = :now,
        listening_since = CASE WHEN listened_at >= :gap_start THEN listening_since ELSE :now END
    WHERE id = 1""")
