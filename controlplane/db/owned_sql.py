"""The statements behind what counts of what clusters own: see `core.owned`.

Of an accepted Cluster counts what `cluster_owned` says, or what its nodes have where that is more. So a row that is old
or not there yet never hides what is there; one of a Cluster that was removed counts for nothing.
"""

from sqlalchemy import text

_COUNTED = """
    SELECT cluster.id AS cluster_id, cluster.pool_id, flavor, coalesce(told.units, 0) AS told,
           greatest(coalesce(told.units, 0), coalesce(kept.units, 0)) AS counted, kept.units, kept.peak, kept.since
    FROM (
        SELECT node_flavor.cluster_id, node_flavor.flavor, sum(node_flavor.owned) AS units
        FROM node_flavor JOIN node ON node.id = node_flavor.node_id WHERE node.removed_at IS NULL
        GROUP BY node_flavor.cluster_id, node_flavor.flavor
    ) AS told FULL JOIN cluster_owned AS kept USING (cluster_id, flavor)
    JOIN cluster ON cluster.id = cluster_id
    WHERE cluster.accepted_at IS NOT NULL AND cluster.removed_at IS NULL"""

OWNED = text(f"SELECT flavor, sum(counted) AS owned FROM ({_COUNTED}) AS each GROUP BY flavor")

# What clusters of other Pools own: a root without a nominal counts it too. A handful of rows, read each time. Rows of
# nodes stay when devices go, so a Flavor that none of them has any more is told as nothing, and forgotten.
OWNED_ELSEWHERE = text("""
    SELECT flavor, coalesce(sum(greatest(coalesce(told.units, 0), coalesce(kept.units, 0))) FILTER (WHERE counts), 0)
           AS amount
    FROM (
        SELECT cluster.id AS cluster_id, node_flavor.flavor,
               cluster.accepted_at IS NOT NULL AND cluster.removed_at IS NULL AS counts,
               sum(node_flavor.owned) FILTER (WHERE node.removed_at IS NULL) AS units
        FROM cluster JOIN node ON node.cluster_id = cluster.id JOIN node_flavor ON node_flavor.node_id = node.id
        WHERE cluster.pool_id <> :pool GROUP BY cluster.id, node_flavor.flavor
    ) AS told LEFT JOIN cluster_owned AS kept USING (cluster_id, flavor)
    GROUP BY flavor ORDER BY flavor""")

COUNTED = text("""
    SELECT cluster_id, flavor, units FROM cluster_owned JOIN cluster ON cluster.id = cluster_id
    WHERE cluster.pool_id = :pool ORDER BY cluster_id, flavor""")

# Taken before what counts is worked out anew, so that a node that goes meanwhile (`LET_GO`) is not counted again.
LOCK = text("SELECT FROM cluster_owned ORDER BY cluster_id, flavor FOR NO KEY UPDATE")

TOLD = text(f"{_COUNTED} ORDER BY cluster_id, flavor")

PUT = text("""
    INSERT INTO cluster_owned (cluster_id, flavor, units, peak, since)
    SELECT * FROM unnest(CAST(:clusters AS bigint[]), CAST(:flavors AS text[]), CAST(:units AS bigint[]),
                         CAST(:peaks AS bigint[]), CAST(:sinces AS timestamptz[]))
    ON CONFLICT (cluster_id, flavor) DO UPDATE
    SET units = excluded.units, peak = excluded.peak, since = excluded.since""")

# Nodes that are told to be gone count no more at once; what vanishes from one that is there falls damped.
LET_GO = text("""
    UPDATE cluster_owned AS kept SET units = greatest(0, kept.units - gone.units),
        peak = greatest(0, kept.units - gone.units, kept.peak - gone.units)
    FROM (
        SELECT cluster_id, flavor, sum(owned) AS units FROM node_flavor
        WHERE node_id = ANY(CAST(:nodes AS bigint[])) AND owned > 0 GROUP BY cluster_id, flavor
    ) AS gone WHERE kept.cluster_id = gone.cluster_id AND kept.flavor = gone.flavor""")
