"""The statements of `fleet`: nodes, their counters and devices go in as one JSON document each."""

from sqlalchemy import TextClause, text

_ROWS = "jsonb_to_recordset(CAST(:rows AS jsonb))"
CLUSTER_ROW = """
    SELECT id, pool_id, name, state, fingerprint, spec, levels, namespaces, inventory_digest, inventory_revision,
           inventory_at, last_heard_at, lost_at, version, cordon_reason, cordon_until, cordon_by, drain_reason,
           drain_deadline_at, drain_by, then_remove
    FROM cluster"""
NODE_ROW = """
    SELECT node.id, node.cluster_id, cluster.state AS cluster_state, cluster.pool_id, node.uid, node.name, node.ready,
           node.ready_changed_at, node.lost_at, node.removed_at, node.cordoned_by_us, node.cordon_until, node.cordon_by,
           node.cordon_version
    FROM node JOIN cluster ON cluster.id = node.cluster_id"""


def _text(statement: str) -> TextClause:
    return text(statement)


ENSURE_POOL = _text("INSERT INTO pool (name) VALUES (:name) ON CONFLICT (name) DO UPDATE SET deleted_at = NULL")
POOL_NAMED = _text("SELECT id FROM pool WHERE name = :name AND deleted_at IS NULL")

ADD_CLUSTER = _text("""
    INSERT INTO cluster (pool_id, name, state, labels, spec, created_at)
    VALUES (:pool, :name, 'created', CAST(:labels AS jsonb), CAST(:spec AS jsonb), :now)
    ON CONFLICT (name) WHERE removed_at IS NULL DO NOTHING RETURNING id""")

CLUSTER = _text(f"{CLUSTER_ROW} WHERE id = :cluster AND removed_at IS NULL")
CLUSTER_LOCKED = _text(f"{CLUSTER_ROW} WHERE id = :cluster AND removed_at IS NULL FOR NO KEY UPDATE")
CLUSTER_NAMED = _text(f"{CLUSTER_ROW} WHERE name = :name AND removed_at IS NULL")
CLUSTERS_DUE = _text(f"""{CLUSTER_ROW}
    WHERE next_check_at <= :now AND removed_at IS NULL ORDER BY next_check_at, id LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED""")

FINGERPRINT_TAKEN = _text("""
    SELECT EXISTS (SELECT FROM cluster WHERE fingerprint = :fingerprint AND id <> :cluster AND removed_at IS NULL)""")

SET_IDENTITY = _text("""
    UPDATE cluster SET fingerprint = :fingerprint, agent_version = :agent_version,
        kubernetes_version = :kubernetes_version
    WHERE id = :cluster""")

SET_HELLO = _text("""
    UPDATE cluster SET features = CAST(:features AS jsonb), namespaces = CAST(:namespaces AS jsonb)
    WHERE id = :cluster
      AND (features, namespaces) IS DISTINCT FROM (CAST(:features AS jsonb), CAST(:namespaces AS jsonb))""")

SET_SPEC = _text("""
    UPDATE cluster SET labels = CAST(:labels AS jsonb), spec = CAST(:spec AS jsonb), version = version + 1
    WHERE id = :cluster""")

WRITE_CLUSTERS = _text(f"""
    UPDATE cluster SET state = r.state, lost_at = r.lost_at, next_check_at = r.next_check_at,
        version = cluster.version + 1
    FROM {_ROWS} AS r(id bigint, version bigint, state text, lost_at timestamptz, next_check_at timestamptz)
    WHERE cluster.id = r.id AND cluster.version = r.version""")

MARK_ACCEPTED = _text("UPDATE cluster SET accepted_at = :now WHERE id = :cluster AND accepted_at IS NULL")
HEARD = _text("UPDATE cluster SET last_heard_at = :now, next_check_at = :next_check_at WHERE id = :cluster")

OWNED_BY = _text("""
    SELECT f.flavor, sum(f.owned) AS owned FROM node n JOIN node_flavor f ON f.node_id = n.id
    WHERE n.cluster_id = :cluster AND n.uid = ANY(CAST(:uids AS text[])) AND f.owned > 0
    GROUP BY f.flavor ORDER BY f.flavor""")

DIGESTS = _text("SELECT uid, digest FROM node WHERE cluster_id = :cluster AND removed_at IS NULL ORDER BY uid")

RESOURCES = _text("""
    SELECT node_id, flavor, resource FROM node_flavor WHERE node_id = ANY(CAST(:nodes AS bigint[]))""")

BUDGETS = _text("""
    SELECT id, spec -> 'budgets' AS budgets FROM cluster
    WHERE id = ANY(CAST(:clusters AS bigint[])) AND jsonb_typeof(spec -> 'budgets') = 'object'""")

SET_INVENTORY = _text("""
    UPDATE cluster SET inventory_revision = :revision, inventory_digest = :digest, levels = CAST(:levels AS jsonb),
        inventory_at = :now
    WHERE id = :cluster""")

# A planner keeps a node's domains as one list, in order of its cluster's levels: other levels, other lists.
TOUCH_NODES = _text("""
    UPDATE node SET digest = node.digest FROM cluster
    WHERE cluster.id = :cluster AND cluster.levels <> CAST(:levels AS jsonb)
      AND node.cluster_id = cluster.id AND node.removed_at IS NULL""")

LOCK_COUNTERS = _text("""
    SELECT f.node_id FROM node_flavor f JOIN node n ON n.id = f.node_id
    WHERE n.cluster_id = :cluster AND (n.uid = ANY(CAST(:uids AS text[])) OR n.name = ANY(CAST(:names AS text[])))
    ORDER BY f.node_id, f.flavor FOR NO KEY UPDATE OF f""")

LOCK_COUNTERS_OF_REMOVED = _text("""
    SELECT f.node_id FROM node_flavor f JOIN node n ON n.id = f.node_id
    WHERE n.cluster_id = :cluster AND n.removed_at IS NULL AND (n.uid = ANY(CAST(:uids AS text[]))) <> :keep
    ORDER BY f.node_id, f.flavor FOR NO KEY UPDATE OF f""")

NODES_BEFORE = _text("""
    SELECT uid, ready, ready_changed_at, lost_at, cordoned, deleting, domains, cpu_milli, memory_bytes,
        pods, rdma, hugepages_bytes, local_storage_bytes, labels, taints
    FROM node
    WHERE cluster_id = :cluster AND uid = ANY(CAST(:uids AS text[])) ORDER BY id FOR NO KEY UPDATE""")

# A node's name is used again while its old object's end is not told yet: the old one is gone.
NAMES_TAKEN = _text(f"""
    SELECT node.uid FROM node JOIN {_ROWS} AS r(uid text, name text) ON r.name = node.name AND r.uid <> node.uid
    WHERE node.cluster_id = :cluster AND node.removed_at IS NULL""")

WRITE_NODES = _text(f"""
    INSERT INTO node (cluster_id, uid, name, kind, provider_id, instance_type, ready, ready_changed_at, cordoned,
        deleting, taints, domains, labels, driver_versions, cpu_milli, memory_bytes, pods, rdma, hugepages_bytes,
        local_storage_bytes, foreign_pods, discrepancies, digest, resources, first_seen_at, observed_at, next_check_at)
    SELECT :cluster, r.uid, r.name, r.kind, r.provider_id, r.instance_type, r.ready, r.ready_changed_at, r.cordoned,
        r.deleting, r.taints, r.domains, r.labels, r.driver_versions, r.cpu_milli, r.memory_bytes, r.pods,
        r.rdma, r.hugepages_bytes, r.local_storage_bytes, r.foreign_pods, r.discrepancies, r.digest, r.resources, :now,
        :now, CASE WHEN r.ready THEN NULL ELSE :now END
    FROM {_ROWS} AS r(uid text, name text, kind text, provider_id text, instance_type text, ready boolean,
        ready_changed_at timestamptz, cordoned boolean, deleting boolean, taints jsonb, domains jsonb, labels jsonb,
        driver_versions jsonb, cpu_milli bigint, memory_bytes bigint, pods bigint, rdma bigint,
        hugepages_bytes bigint, local_storage_bytes bigint, foreign_pods jsonb, discrepancies jsonb,
        digest text, resources jsonb)
    ORDER BY r.uid
    ON CONFLICT (cluster_id, uid) DO UPDATE SET name = excluded.name, kind = excluded.kind,
        provider_id = excluded.provider_id, instance_type = excluded.instance_type, ready = excluded.ready,
        ready_changed_at = excluded.ready_changed_at, cordoned = excluded.cordoned, deleting = excluded.deleting,
        taints = excluded.taints, domains = excluded.domains, labels = excluded.labels,
        driver_versions = excluded.driver_versions, cpu_milli = excluded.cpu_milli,
        memory_bytes = excluded.memory_bytes, pods = excluded.pods, rdma = excluded.rdma,
        hugepages_bytes = excluded.hugepages_bytes, local_storage_bytes = excluded.local_storage_bytes,
        foreign_pods = excluded.foreign_pods,
        discrepancies = excluded.discrepancies, digest = excluded.digest, resources = excluded.resources,
        observed_at = excluded.observed_at, removed_at = NULL,
        lost_at = CASE WHEN excluded.ready THEN NULL ELSE node.lost_at END,
        next_check_at = CASE WHEN excluded.ready OR node.lost_at IS NOT NULL THEN NULL
                             ELSE coalesce(node.next_check_at, excluded.next_check_at) END
    RETURNING id, uid""")

FLAVORS_BEFORE = _text("""
    SELECT node_id, flavor, owned, capacity FROM node_flavor WHERE node_id = ANY(CAST(:nodes AS bigint[]))
    ORDER BY node_id, flavor FOR NO KEY UPDATE""")

# Overdraft is what is held beyond the new capacity: it is raised by nothing else, and in the same statement.
WRITE_FLAVORS = _text(f"""
    INSERT INTO node_flavor AS f (node_id, flavor, cluster_id, resource, owned, allocatable, foreign_held, capacity,
        withheld)
    SELECT r.node_id, r.flavor, :cluster, r.resource, r.owned, r.allocatable, r.foreign_held, r.capacity, r.withheld
    FROM {_ROWS} AS r(node_id bigint, flavor text, resource text, owned bigint, allocatable bigint,
        foreign_held bigint, capacity bigint, withheld bigint)
    ORDER BY r.node_id, r.flavor
    ON CONFLICT (node_id, flavor) DO UPDATE SET resource = excluded.resource, owned = excluded.owned,
        allocatable = excluded.allocatable, foreign_held = excluded.foreign_held, capacity = excluded.capacity,
        withheld = excluded.withheld, overdraft = greatest(0, f.held - excluded.capacity)
    WHERE (f.resource, f.owned, f.allocatable, f.foreign_held, f.capacity, f.withheld)
        IS DISTINCT FROM (excluded.resource, excluded.owned, excluded.allocatable, excluded.foreign_held,
                          excluded.capacity, excluded.withheld)""")

EMPTY_FLAVORS = _text(f"""
    UPDATE node_flavor f SET owned = 0, allocatable = 0, foreign_held = 0, capacity = 0, withheld = 0,
        overdraft = f.held
    WHERE f.node_id = ANY(CAST(:nodes AS bigint[])) AND (f.owned > 0 OR f.capacity > 0 OR f.allocatable > 0)
      AND NOT EXISTS (SELECT FROM {_ROWS} AS r(node_id bigint, flavor text)
                      WHERE r.node_id = f.node_id AND r.flavor = f.flavor)""")

ILL_DEVICES = _text("""
    SELECT node_id, device_key FROM device
    WHERE node_id = ANY(CAST(:nodes AS bigint[])) AND health IN ('unhealthy', 'lost')""")

WRITE_DEVICES = _text(f"""
    INSERT INTO device AS d (cluster_id, node_id, device_key, key_quality, vendor, kind, flavor, resource, parent_key,
        model_raw,
        arch, compute_capability, memory_mib, profile, slots_total, slots_allocatable, sharing, pci_bus_id,
        nvlink_domain, health, health_reasons, health_changed_at, state, sources, first_seen_at, observed_at)
    SELECT :cluster, r.node_id, r.device_key, r.key_quality, r.vendor, r.kind, r.flavor, r.resource, r.parent_key,
        r.model_raw,
        r.arch, r.compute_capability, r.memory_mib, r.profile, r.slots_total, r.slots_allocatable, r.sharing,
        r.pci_bus_id, r.nvlink_domain, r.health, r.health_reasons, :now, 'present', r.sources, :now, :now
    FROM {_ROWS} AS r(node_id bigint, device_key text, key_quality text, vendor text, kind text, flavor text,
        resource text, parent_key text, model_raw text, arch text, compute_capability text, memory_mib bigint,
        profile text, slots_total bigint, slots_allocatable bigint, sharing text, pci_bus_id text, nvlink_domain text,
        health text,
        health_reasons jsonb, sources jsonb)
    ORDER BY r.device_key
    ON CONFLICT (cluster_id, device_key) DO UPDATE SET node_id = excluded.node_id, key_quality = excluded.key_quality,
        vendor = excluded.vendor, kind = excluded.kind, flavor = excluded.flavor, resource = excluded.resource,
        parent_key = excluded.parent_key,
        model_raw = excluded.model_raw, arch = excluded.arch, compute_capability = excluded.compute_capability,
        memory_mib = excluded.memory_mib, profile = excluded.profile, slots_total = excluded.slots_total,
        slots_allocatable = excluded.slots_allocatable, sharing = excluded.sharing,
        pci_bus_id = excluded.pci_bus_id, nvlink_domain = excluded.nvlink_domain, health = excluded.health,
        health_reasons = excluded.health_reasons, state = 'present', sources = excluded.sources,
        health_changed_at = CASE WHEN d.health = excluded.health THEN d.health_changed_at ELSE :now END,
        observed_at = excluded.observed_at""")

REMOVE_DEVICES = _text(f"""
    UPDATE device SET state = 'removed', observed_at = :now
    WHERE node_id = ANY(CAST(:nodes AS bigint[])) AND state <> 'removed'
      AND NOT EXISTS (SELECT FROM {_ROWS} AS r(device_key text) WHERE r.device_key = device.device_key)""")

WRITE_DISCREPANCIES = _text(f"""
    INSERT INTO discrepancy AS d (node_id, code, "values", believed, first_seen_at, last_seen_at)
    SELECT r.node_id, r.code, r."values", r.believed, :now, :now
    FROM {_ROWS} AS r(node_id bigint, code text, "values" jsonb, believed text)
    ON CONFLICT (node_id, code) DO UPDATE SET "values" = excluded."values", believed = excluded.believed,
        last_seen_at = :now, ended_at = NULL,
        first_seen_at = CASE WHEN d.ended_at IS NULL THEN d.first_seen_at ELSE :now END""")

END_DISCREPANCIES = _text(f"""
    UPDATE discrepancy d SET ended_at = :now
    WHERE d.node_id = ANY(CAST(:nodes AS bigint[])) AND d.ended_at IS NULL
      AND NOT EXISTS (SELECT FROM {_ROWS} AS r(node_id bigint, code text)
                      WHERE r.node_id = d.node_id AND r.code = d.code)""")

REMOVE_NODES = _text("""
    UPDATE node SET removed_at = :now, ready = false, next_check_at = NULL
    WHERE cluster_id = :cluster AND removed_at IS NULL AND (uid = ANY(CAST(:uids AS text[]))) <> :keep
    RETURNING id""")

# Not locked: who looks at one twice finds nothing left to do, and counters come before nodes in the order of locks.
DUE_NODES = _text(f"""{NODE_ROW}
    WHERE node.next_check_at <= :now AND node.removed_at IS NULL ORDER BY node.next_check_at, node.id LIMIT :limit""")

CHECK_NODES_AT = _text(f"""
    UPDATE node SET next_check_at = r.at FROM {_ROWS} AS r(id bigint, at timestamptz) WHERE node.id = r.id""")

MARK_LOST = _text("""
    UPDATE node SET lost_at = :now, next_check_at = NULL
    WHERE id = ANY(CAST(:nodes AS bigint[])) AND lost_at IS NULL AND NOT ready""")
