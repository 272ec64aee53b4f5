"""Every statement on Workloads that people cause; what Attempts do to them is in `attempts`.

Fulfils `services.ports.workloads`.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row, bindparam, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from controlplane.core.facts.ledger import AuditEntry
from controlplane.core.facts.workloads import FleetShape, NewWorkload, SubmissionSite, WorkloadChange, WorkloadFact
from controlplane.core.ids import PoolId, QueueId, WorkloadId
from controlplane.core.lifecycle import FINAL_WORKLOAD, WorkloadState
from controlplane.core.records import to_record
from controlplane.db.moment import Moment

_COLUMNS = """
    SELECT workload.id, workload.name, workload.queue_id, queue.path AS queue_path, workload.pool_id, workload.owner,
           workload.priority, workload.state, workload.kind, workload.version, workload.attempts_made,
           workload.program_failures, workload.infrastructure_ends, workload.max_attempts, workload.on_cluster_loss,
           workload.shape, workload.submitted_at
    FROM workload JOIN queue ON queue.id = workload.queue_id"""

# Whoever makes the Queue a parent may have held its row when `_SITE` looked, so this looks again, behind the lock.
# The Pool's row is taken before the note gets its number: whoever deletes the Pool holds it, and stands before this in
# the log.
_ADD = text("""
    WITH added AS (
        INSERT INTO workload (id, name, queue_id, pool_id, owner, priority, state, kind, spec, manifest, labels, shape,
                              max_attempts, on_cluster_loss, submitted_at, state_changed_at, next_check_at)
        SELECT CAST(:id AS uuid), :name, :queue, :pool, :owner, :priority, :state, :kind, CAST(:spec AS jsonb),
               CAST(:manifest AS jsonb), CAST(:labels AS jsonb), :shape, :max_attempts, :on_cluster_loss, :now, :now,
               :now
        FROM (SELECT id FROM pool WHERE id = :pool FOR KEY SHARE) AS kept
        WHERE NOT EXISTS (SELECT FROM queue below WHERE below.parent_id = :queue AND below.deleted_at IS NULL)
        RETURNING id),
    noted AS (
        INSERT INTO audit (at, actor, request_id, action, object_kind, object_id, state_to, facts)
        SELECT :now, :actor, :request_id, :action, :object_kind, :object_id, :state, CAST(:facts AS jsonb) FROM added)
    INSERT INTO pod_set (workload_id, name, position, replicas, devices, flavors, cpu_milli, memory_bytes,
                         topology_mode, topology_level, rdma, hugepages_bytes, local_storage_bytes, rules, min_replicas,
                         slice_size, slice_level, with_pod_set, speeds)
    SELECT added.id, each.name, each.position, each.replicas, each.devices, each.flavors, each.cpu_milli,
           each.memory_bytes, each.topology_mode, each.topology_level, each.rdma, each.hugepages_bytes,
           each.local_storage_bytes, each.rules, each.min_replicas, each.slice_size, each.slice_level,
           each.with_pod_set, each.speeds
    FROM added, jsonb_to_recordset(:pod_sets) AS each (name text, position int, replicas bigint, devices bigint,
         flavors jsonb, cpu_milli bigint, memory_bytes bigint, topology_mode text, topology_level text, rdma bigint,
         hugepages_bytes bigint, local_storage_bytes bigint, rules jsonb, min_replicas bigint, slice_size bigint,
         slice_level text, with_pod_set text, speeds jsonb)""").bindparams(
    bindparam("spec", type_=JSONB),
    bindparam("manifest", type_=JSONB(none_as_null=True)),
    bindparam("labels", type_=JSONB),
    bindparam("pod_sets", type_=JSONB),
    bindparam("facts", type_=JSONB),
)

# The share lock: whoever deletes or moves the Queue takes its row first and then counts what is live.
_SITE = text("""
    SELECT now() AS now, queue.id, queue.path,
           NOT EXISTS (SELECT FROM queue below WHERE below.parent_id = queue.id AND below.deleted_at IS NULL)
               AS is_leaf,
           (SELECT above.namespace FROM queue above
            WHERE above.path = ANY(:upward) AND above.deleted_at IS NULL AND above.namespace <> ''
            ORDER BY length(above.path) DESC LIMIT 1) AS namespace,
           (SELECT pool.id FROM pool WHERE pool.name = :pool AND pool.deleted_at IS NULL) AS pool_id,
           live.id AS live_id, live.state AS live_state
    FROM queue LEFT JOIN workload live
        ON live.queue_id = queue.id AND live.name = :name AND live.state <> ALL(:final)
    WHERE queue.path = :path AND queue.deleted_at IS NULL FOR SHARE OF queue""")

_OWNED = text("""
    SELECT flavor, cluster.name, greatest(coalesce(told.units, 0), coalesce(kept.units, 0)) AS owned
    FROM (
        SELECT node_flavor.cluster_id, node_flavor.flavor, sum(node_flavor.owned) AS units
        FROM node_flavor JOIN node ON node.id = node_flavor.node_id WHERE node.removed_at IS NULL
        GROUP BY node_flavor.cluster_id, node_flavor.flavor
    ) AS told FULL JOIN cluster_owned AS kept USING (cluster_id, flavor) JOIN cluster ON cluster.id = cluster_id
    WHERE cluster.removed_at IS NULL AND cluster.state NOT IN ('created', 'removed')
        AND greatest(coalesce(told.units, 0), coalesce(kept.units, 0)) > 0""")

_WIDEST = text("""
    SELECT node_flavor.flavor, max(node_flavor.owned) AS widest
    FROM node_flavor JOIN node ON node.id = node_flavor.node_id JOIN cluster ON cluster.id = node_flavor.cluster_id
    WHERE node.removed_at IS NULL AND cluster.removed_at IS NULL AND cluster.state NOT IN ('created', 'removed')
    GROUP BY node_flavor.flavor HAVING max(node_flavor.owned) > 0""")
_LEVELS = text("""
    SELECT DISTINCT jsonb_array_elements_text(cluster.levels) FROM cluster
    WHERE cluster.removed_at IS NULL AND cluster.inventory_at IS NOT NULL
      AND cluster.state NOT IN ('created', 'removed')""")

# A final state is due no more.
_CHANGE = text("""
    UPDATE workload SET state = :state, version = version + 1, state_changed_at = :now,
        finished_at = CASE WHEN :is_final THEN CAST(:now AS timestamptz) END,
        next_check_at = CASE WHEN :is_final THEN NULL ELSE next_check_at END
    WHERE id = CAST(:id AS uuid)""")

# The Attempt is touched, because planners read a running Workload's priority together with its row.
_SET_PRIORITY = text("""
    WITH changed AS (
        UPDATE workload SET priority = :priority, version = version + 1,
            spec = (spec - 'priorityClass') || jsonb_build_object('priority', CAST(:priority AS bigint))
        WHERE id = CAST(:id AS uuid) RETURNING id)
    UPDATE attempt SET state = attempt.state FROM changed
    WHERE attempt.workload_id = changed.id AND attempt.state <> 'ended'""")


class WorkloadStore:
    """`uow.workloads`."""

    def __init__(self, session: Session, moment: Moment) -> None:
        """Take the transaction's session and its reading of the clock."""
        self._session = session
        self._moment = moment

    def add(self, new: NewWorkload, noted: AuditEntry) -> bool:
        """Write it and its PodSets as `pending`, due now, with the note of that; False where its Queue is no leaf."""
        pod_sets = [
            {
                "name": each.name, "position": position, "replicas": each.replicas, "devices": each.devices,
                "flavors": list(each.flavors), "cpu_milli": each.needs.cpu_milli,
                "memory_bytes": each.needs.memory_bytes, "topology_mode": each.topology_mode,
                "topology_level": each.topology_level, "rdma": each.needs.rdma,
                "hugepages_bytes": each.needs.hugepages_bytes,
                "local_storage_bytes": each.needs.local_storage_bytes, "rules": to_record(each.rules),
                "min_replicas": each.min_replicas, "slice_size": each.slice_size, "slice_level": each.slice_level,
                "with_pod_set": each.with_pod_set, "speeds": list(each.speeds),
            }
            for position, each in enumerate(new.pod_sets)
        ]  # fmt: skip
        added = self._session.execute(
            _ADD,
            {
                "id": new.id, "name": new.name, "queue": new.queue, "pool": new.pool, "owner": new.owner,
                "priority": new.priority, "state": WorkloadState.PENDING, "kind": new.kind, "spec": dict(new.spec),
                "manifest": None if new.manifest is None else dict(new.manifest), "labels": dict(new.labels),
                "shape": new.shape, "max_attempts": new.max_attempts, "on_cluster_loss": new.on_cluster_loss,
                "now": self._moment.get(), "pod_sets": pod_sets, "actor": noted.actor, "request_id": noted.request_id,
                "action": noted.action, "object_kind": noted.object_kind, "object_id": noted.object_id,
                "facts": dict(noted.facts),
            },
        )  # fmt: skip
        return int(getattr(added, "rowcount", 0)) == len(pod_sets)

    def get(self, workload: WorkloadId) -> WorkloadFact | None:
        """Read it without a lock."""
        return self._one("workload.id = CAST(:id AS uuid)", {"id": workload})

    def lock(self, workload: WorkloadId) -> WorkloadFact | None:
        """Read it and keep its row until this transaction ends."""
        return self._one("workload.id = CAST(:id AS uuid) FOR NO KEY UPDATE OF workload", {"id": workload})

    def site(self, path: str, pool: str, name: str) -> SubmissionSite | None:
        """Where a Workload of this name would stand, its Queue locked for share; None where there is no such Queue."""
        parts = path.split("/")
        given = {
            "path": path, "pool": pool, "name": name, "final": sorted(FINAL_WORKLOAD),
            "upward": ["/".join(parts[:depth]) for depth in range(len(parts), 0, -1)],
        }  # fmt: skip
        row = self._session.execute(_SITE, given).one_or_none()
        if row is None:
            return None
        self._moment.told(row.now)
        live = None if row.live_id is None else (WorkloadId(str(row.live_id)), WorkloadState(row.live_state))
        return SubmissionSite(
            queue=QueueId(row.id),
            path=row.path,
            is_leaf=row.is_leaf,
            namespace=row.namespace or "",
            pool=None if row.pool_id is None else PoolId(row.pool_id),
            live=live,
        )

    def set_priority(self, workload: WorkloadId, priority: int) -> None:
        """Write it, in the spec too; its version rises. Planners see it of a live Attempt as well."""
        self._session.execute(_SET_PRIORITY, {"id": workload, "priority": priority})

    def change(self, change: WorkloadChange) -> None:
        """Write the state of a locked row; its version rises by one."""
        is_final = change.state in FINAL_WORKLOAD
        given = {"id": change.id, "state": change.state, "is_final": is_final, "now": self._moment.get()}
        self._session.execute(_CHANGE, given)

    def fleet_shape(self) -> FleetShape:
        """How wide nodes are and which levels there are, over every enrolled cluster."""
        widest = {row.flavor: int(row.widest) for row in self._session.execute(_WIDEST)}
        return FleetShape(widest, frozenset(self._session.scalars(_LEVELS)))

    def owned_totals(self) -> Mapping[str, Mapping[str, int]]:
        """By Flavor and cluster name: the units that every enrolled cluster owns, unreachable ones included."""
        totals: dict[str, dict[str, int]] = defaultdict(dict)
        for row in self._session.execute(_OWNED):
            totals[row.flavor][row.name] = int(row.owned)
        return totals

    def _one(self, where: str, given: Mapping[str, object]) -> WorkloadFact | None:
        row = self._session.execute(text(f"{_COLUMNS} WHERE {where}"), given).one_or_none()
        return None if row is None else _workload(row)


def _workload(row: Row[Any]) -> WorkloadFact:
    return WorkloadFact(
        id=WorkloadId(str(row.id)),
        name=row.name,
        queue=QueueId(row.queue_id),
        queue_path=row.queue_path,
        pool=PoolId(row.pool_id),
        owner=row.owner,
        priority=row.priority,
        state=WorkloadState(row.state),
        kind=row.kind,
        version=row.version,
        attempts_made=row.attempts_made,
        program_failures=row.program_failures,
        infrastructure_ends=row.infrastructure_ends,
        max_attempts=row.max_attempts,
        on_cluster_loss=row.on_cluster_loss,
        shape=row.shape,
        submitted_at=row.submitted_at,
    )
