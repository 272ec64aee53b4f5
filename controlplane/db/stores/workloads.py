"""Every statement on Workloads that people cause; what Attempts do to them is in `attempts`.

Fulfils `services.ports.workloads`.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Row, bindparam, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from controlplane.core.facts.workloads import NewWorkload, WorkloadChange, WorkloadFact
from controlplane.core.ids import PoolId, QueueId, WorkloadId
from controlplane.core.lifecycle import FINAL_WORKLOAD, WorkloadState

_COLUMNS = """
    SELECT workload.id, workload.name, workload.queue_id, queue.path AS queue_path, workload.pool_id, workload.owner,
           workload.priority, workload.state, workload.kind, workload.version, workload.attempts_made,
           workload.program_failures, workload.infrastructure_ends, workload.max_attempts, workload.on_cluster_loss,
           workload.shape, workload.submitted_at
    FROM workload JOIN queue ON queue.id = workload.queue_id"""

_ADD = text("""
    INSERT INTO workload (id, name, queue_id, pool_id, owner, priority, state, kind, spec, manifest, labels, shape,
                          max_attempts, on_cluster_loss, submitted_at, state_changed_at, next_check_at)
    VALUES (CAST(:id AS uuid), :name, :queue, :pool, :owner, :priority, :state, :kind, :spec, :manifest, :labels,
            :shape, :max_attempts, :on_cluster_loss, :now, :now, :now)""").bindparams(
    bindparam("spec", type_=JSONB),
    bindparam("manifest", type_=JSONB(none_as_null=True)),
    bindparam("labels", type_=JSONB),
)

_ADD_POD_SET = text("""
    INSERT INTO pod_set (workload_id, name, position, replicas, devices, flavors, cpu_milli, memory_bytes,
                         topology_mode, topology_level)
    VALUES (CAST(:workload AS uuid), :name, :position, :replicas, :devices, :flavors, :cpu_milli, :memory_bytes,
            :topology_mode, :topology_level)""").bindparams(bindparam("flavors", type_=JSONB))

_OWNED = text("""
    SELECT node_flavor.flavor, cluster.name, sum(node_flavor.owned) AS owned
    FROM node_flavor JOIN node ON node.id = node_flavor.node_id JOIN cluster ON cluster.id = node_flavor.cluster_id
    WHERE node.removed_at IS NULL AND cluster.removed_at IS NULL AND cluster.state NOT IN ('created', 'removed')
    GROUP BY node_flavor.flavor, cluster.name HAVING sum(node_flavor.owned) > 0""")

# A final state is due no more.
_CHANGE = text("""
    UPDATE workload SET state = :state, version = version + 1, state_changed_at = :now,
        finished_at = CASE WHEN :is_final THEN CAST(:now AS timestamptz) END,
        next_check_at = CASE WHEN :is_final THEN NULL ELSE next_check_at END
    WHERE id = CAST(:id AS uuid)""")


class WorkloadStore:
    """`uow.workloads`."""

    def __init__(self, session: Session, now: datetime) -> None:
        """Take the transaction's session and its reading of the clock."""
        self._session = session
        self._now = now

    def add(self, new: NewWorkload) -> None:
        """Write it and its PodSets as `pending`, due now."""
        self._session.execute(
            _ADD,
            {
                "id": new.id, "name": new.name, "queue": new.queue, "pool": new.pool, "owner": new.owner,
                "priority": new.priority, "state": WorkloadState.PENDING, "kind": new.kind, "spec": dict(new.spec),
                "manifest": None if new.manifest is None else dict(new.manifest), "labels": dict(new.labels),
                "shape": new.shape, "max_attempts": new.max_attempts, "on_cluster_loss": new.on_cluster_loss,
                "now": self._now,
            },
        )  # fmt: skip
        self._session.execute(
            _ADD_POD_SET,
            [
                {
                    "workload": new.id, "name": each.name, "position": position, "replicas": each.replicas,
                    "devices": each.devices, "flavors": list(each.flavors), "cpu_milli": each.needs.cpu_milli,
                    "memory_bytes": each.needs.memory_bytes, "topology_mode": each.topology_mode,
                    "topology_level": each.topology_level,
                }
                for position, each in enumerate(new.pod_sets)
            ],
        )  # fmt: skip

    def get(self, workload: WorkloadId) -> WorkloadFact | None:
        """Read it without a lock."""
        return self._one("workload.id = CAST(:id AS uuid)", {"id": workload})

    def lock(self, workload: WorkloadId) -> WorkloadFact | None:
        """Read it and keep its row until this transaction ends."""
        return self._one("workload.id = CAST(:id AS uuid) FOR NO KEY UPDATE OF workload", {"id": workload})

    def live_named(self, queue: QueueId, name: str) -> WorkloadFact | None:
        """The Workload of this name that is not in a final state, if there is one."""
        where = "workload.queue_id = :queue AND workload.name = :name AND workload.state <> ALL(:final)"
        return self._one(where, {"queue": queue, "name": name, "final": sorted(FINAL_WORKLOAD)})

    def change(self, change: WorkloadChange) -> None:
        """Write the state of a locked row; its version rises by one."""
        is_final = change.state in FINAL_WORKLOAD
        given = {"id": change.id, "state": change.state, "is_final": is_final, "now": self._now}
        self._session.execute(_CHANGE, given)

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
