"""What agents are told and who speaks for a Cluster (I20, I22 to I25)."""

from controlplane.db.invariants.check import Check

GENERATIONS = Check(
    "I20",
    "Directives of an object count their generations from 1 without a gap, and nothing but a tombstone follows one.",
    """
    SELECT cluster_id, object_id, count(*) AS directives, max(gen) AS last FROM directive
    GROUP BY cluster_id, object_id
    HAVING count(*) <> max(gen)
        OR max(gen) FILTER (WHERE kind <> 'tombstone') > min(gen) FILTER (WHERE kind = 'tombstone')
    """,
)

APPLIED = Check(
    "I20",
    "An agent applies what it was told: never beyond the generation that is wanted, which is the last directive's.",
    """
    SELECT p.workload_id, p.attempt, p.cluster_id, p.applied_gen, p.wanted_gen, max(d.gen) AS last
    FROM placement p LEFT JOIN directive d
      ON d.cluster_id = p.cluster_id AND d.object_id = p.workload_id || '.' || p.attempt
    GROUP BY p.workload_id, p.attempt, p.cluster_id, p.applied_gen, p.wanted_gen
    HAVING p.applied_gen > p.wanted_gen OR p.wanted_gen <> coalesce(max(d.gen), 0)
    """,
)

ONE_SESSION = Check(
    "I22",
    "A Cluster has at most one active Session, the one of the highest epoch.",
    """
    SELECT s.cluster_id, count(*) FILTER (WHERE ended_at IS NULL) AS active, max(epoch) AS last FROM agent_session s
    GROUP BY s.cluster_id
    HAVING count(*) FILTER (WHERE ended_at IS NULL) > 1 OR max(epoch) FILTER (WHERE ended_at IS NULL) < max(epoch)
    """,
)

SEQUENCE = Check(
    "I23",
    "A Session's requests are numbered upwards, and its cursor never passes what was sent.",
    """
    SELECT s.cluster_id, s.epoch, s.seq, s.acked_number, c.value AS sent
    FROM agent_session s LEFT JOIN cluster_counter c ON c.cluster_id = s.cluster_id AND c.direction = 'down'
    WHERE s.seq < 0 OR s.acked_number > coalesce(c.value, 0)
    """,
)

NUMBERED = Check(
    "I23",
    "A directive's number is one that its cluster's counter has given, and names a directive that there is.",
    """
    SELECT n.cluster_id, n.number, n.object_id, n.gen, c.value AS given
    FROM directive_number n LEFT JOIN cluster_counter c ON c.cluster_id = n.cluster_id AND c.direction = 'down'
    LEFT JOIN directive d ON (d.cluster_id, d.object_id, d.gen) = (n.cluster_id, n.object_id, n.gen)
    WHERE n.number > coalesce(c.value, 0) OR n.number < 1 OR d.gen IS NULL
    """,
)

ONE_FINGERPRINT = Check(
    "I24",
    "A Kubernetes cluster is enrolled as one Cluster only, or its devices would count twice.",
    """
    SELECT fingerprint, count(*) AS clusters FROM cluster
    WHERE fingerprint IS NOT NULL AND removed_at IS NULL GROUP BY fingerprint HAVING count(*) > 1
    """,
)

TOKENS = Check(
    "I25",
    "An enrolment token is used as often as it allows, in its time, for its own Cluster.",
    """
    SELECT t.id, t.cluster_id, t.uses, t.uses_max, t.last_used_at, t.expires_at, t.revoked_at
    FROM enrolment_token t LEFT JOIN agent_key k ON k.thumbprint = t.used_by_thumbprint
    WHERE t.uses > t.uses_max OR t.uses < 0 OR t.last_used_at > t.expires_at OR t.last_used_at > t.revoked_at
       OR (t.uses > 0) <> (t.last_used_at IS NOT NULL) OR k.cluster_id <> t.cluster_id
    """,
)

CHECKS = (GENERATIONS, APPLIED, ONE_SESSION, SEQUENCE, NUMBERED, ONE_FINGERPRINT, TOKENS)
