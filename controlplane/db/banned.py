"""Whether the agent of a cluster is banned, as an expression over a statement's row `cluster`."""

# Whoever spoke for it was banned, and nobody has enrolled for it since.
AGENT_BANNED = """coalesce(
    (SELECT bool_and(banned_at IS NOT NULL) FROM agent_key WHERE agent_key.cluster_id = cluster.id), false)"""
