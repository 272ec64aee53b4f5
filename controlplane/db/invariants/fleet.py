"""Clusters that were removed, and what cordons of devices keep from use."""

from controlplane.db.invariants.check import Check

REMOVED = Check(
    "removed clusters",
    "Nothing of ours lives in a Cluster that was removed, nothing is kept there, and nobody speaks for it.",
    """
    SELECT c.id, c.name, c.state, living.what FROM cluster c CROSS JOIN LATERAL (
      SELECT 'an attempt' AS what FROM placement p JOIN attempt a USING (workload_id, attempt)
      WHERE p.cluster_id = c.id AND a.state <> 'ended'
      UNION ALL SELECT 'a hold' FROM hold h JOIN node n ON n.id = h.node_id
        WHERE n.cluster_id = c.id AND h.released_at IS NULL
      UNION ALL SELECT 'an earmark' FROM earmark WHERE cluster_id = c.id AND ended_at IS NULL
      UNION ALL SELECT 'a node' FROM node WHERE cluster_id = c.id AND removed_at IS NULL
      UNION ALL SELECT 'a session' FROM agent_session WHERE cluster_id = c.id AND ended_at IS NULL
      UNION ALL SELECT 'a key' FROM agent_key WHERE cluster_id = c.id AND banned_at IS NULL
      UNION ALL SELECT 'its state' WHERE c.state <> 'removed'
    ) AS living
    WHERE c.removed_at IS NOT NULL
    """,
)

# A card that is cut into partitions is counted by those; of a node that went, nothing is counted.
CORDONED = Check(
    "cordons",
    "Per node and Flavor, what cordons keep from use is what the cordoned devices would give.",
    """
    WITH kept AS (
      SELECT d.node_id, d.flavor, sum(d.slots_allocatable) AS units FROM device d
      WHERE d.cordon_reason <> '' AND d.state <> 'removed' AND d.health NOT IN ('unhealthy', 'lost')
        AND NOT EXISTS (SELECT FROM device part WHERE part.cluster_id = d.cluster_id
                        AND part.parent_key = d.device_key AND part.state <> 'removed')
      GROUP BY 1, 2
    )
    SELECT node_id, flavor, f.withheld, kept.units FROM node_flavor f FULL JOIN kept USING (node_id, flavor)
    WHERE coalesce(f.withheld, 0) <> coalesce(kept.units, 0)
    """,
)

CHECKS = (REMOVED, CORDONED)
