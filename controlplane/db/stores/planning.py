"""Leases, fresh readings and records of planners: everything of `ports.planning` but the batch itself.

The batch of a commit is in `db.plan_writer`; this class hands it on.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.orm import Session

from controlplane.core.demand import PodNeeds
from controlplane.core.facts.planning import (
    AttemptDraft,
    CycleRecord,
    EarmarkDraft,
    FreshNode,
    FreshWorkload,
    PlannerLease,
    StoredCycle,
)
from controlplane.core.ids import AttemptNumber, ClusterId, FlavorName, NodeId, PoolId, WorkloadId
from controlplane.core.lifecycle import WorkloadState
from controlplane.db import plan_writer
from controlplane.db.arrays import plain, texts
from controlplane.db.banned import AGENT_BANNED
from controlplane.db.node_reader import told
from controlplane.db.planning_sql import HELD_PODS

POOL_LOCK_CLASS = 7_301  # first key of the two-key advisory lock; the second is the Pool's id

_STORED = """
    SELECT cycle.id, coalesce(cycle.base_id, cycle.id) AS base, cycle.policy_version, cycle.now, cycle.changes,
           cycle.plan, cycle.plan_sha256, cycle.running_sha256, coalesce(policy.spec, CAST('{}' AS jsonb)) AS policy
    FROM cycle LEFT JOIN policy ON policy.pool_id = cycle.pool_id AND policy.version = cycle.policy_version """


class PlanningStore:
    """Fulfils `services.ports.planning.PlanningStore`."""

    def __init__(self, session: Session, now: datetime) -> None:
        """One transaction's session and its reading of the clock."""
        self._session = session
        self._now = now

    def _all(self, statement: str, **bound: object) -> Sequence[Row[Any]]:
        return self._session.execute(text(statement), bound).all()

    def _do(self, statement: str, **bound: object) -> int:
        return int(self._session.execute(text(statement), bound).rowcount)  # type: ignore[attr-defined]  # a CursorResult

    def pools(self) -> Sequence[tuple[PoolId, str]]:
        """All Pools, by id."""
        return [(PoolId(row.id), row.name) for row in self._all("SELECT id, name FROM pool ORDER BY id")]

    def take_lease(self, pool: PoolId, owner: str, seconds: int) -> PlannerLease | None:
        """Take or renew the planner lease; None if another owner holds it. A new owner gets a new epoch.

        An owner that renews late keeps its epoch: the epoch says that nobody else has committed in between.
        """
        until = self._now + timedelta(seconds=seconds)
        rows = self._all(
            """UPDATE pool SET planner_until = :until, planner_owner = :owner,
                   planner_epoch = planner_epoch + CASE WHEN planner_owner = :owner THEN 0 ELSE 1 END
               WHERE id = :pool AND (planner_owner = :owner OR planner_until IS NULL OR planner_until < :now)
               RETURNING planner_epoch""",
            pool=pool, owner=owner, until=until, now=self._now,
        )  # fmt: skip
        return PlannerLease(pool, owner, rows[0].planner_epoch, until) if rows else None

    def drop_lease(self, pool: PoolId, owner: str) -> None:
        """Let the next planner take over at once."""
        self._do("UPDATE pool SET planner_until = NULL WHERE id = :pool AND planner_owner = :owner",
                 pool=pool, owner=owner)  # fmt: skip

    def due_pools(self, limit: int) -> Sequence[PoolId]:
        """Pools whose next check is due."""
        rows = self._all("SELECT id FROM pool WHERE next_check_at <= :now ORDER BY next_check_at LIMIT :limit",
                         now=self._now, limit=limit)  # fmt: skip
        return [PoolId(row.id) for row in rows]

    def is_due(self, pool: PoolId) -> tuple[int, bool]:
        """The Pool's dirty version, and whether its next check is due."""
        [row] = self._all(
            "SELECT dirty_version, coalesce(next_check_at <= :now, false) AS due FROM pool WHERE id = :pool",
            pool=pool, now=self._now,
        )  # fmt: skip
        return row.dirty_version, row.due

    def settle_pool(self, pool: PoolId, version: int, next_check: datetime | None) -> bool:
        """Note that work up to `version` is planned; False (and nothing noted) if there is newer work."""
        return self._do(
            "UPDATE pool SET next_check_at = :next WHERE id = :pool AND dirty_version = :version",
            pool=pool, version=version, next=next_check,
        ) == 1  # fmt: skip

    def lock_pool(self, pool: PoolId, epoch: int) -> bool:
        """Take the Pool's advisory lock for this transaction; False if the epoch is over."""
        self._do("SELECT pg_advisory_xact_lock(:class, :pool)", **{"class": POOL_LOCK_CLASS, "pool": pool})
        return bool(self._all("SELECT FROM pool WHERE id = :pool AND planner_epoch = :epoch", pool=pool, epoch=epoch))

    def lock_nodes(self, nodes: Collection[NodeId], crowded: Collection[NodeId] = ()) -> Mapping[NodeId, FreshNode]:
        """Lock these nodes and their counters, and read them. Counters first: that is everybody's order.

        Of the `crowded` ones their pods are counted, too.
        """
        listed = plain(sorted(nodes))
        free: dict[int, dict[FlavorName, int]] = defaultdict(dict)
        written_by: dict[int, int] = {}
        for row in self._all(
            """SELECT node_id, flavor, capacity - held AS free, CAST(CAST(changed_xid AS text) AS bigint) AS xid
               FROM node_flavor WHERE node_id = ANY(CAST(:nodes AS bigint[]))
               ORDER BY node_id, flavor FOR NO KEY UPDATE""",
            nodes=listed,
        ):
            free[row.node_id][FlavorName(row.flavor)] = max(0, row.free)
            written_by[row.node_id] = max(row.xid, written_by.get(row.node_id, 0))
        rows = self._all(
            f"""SELECT node.id, node.name, node.cluster_id, cpu_milli - cpu_milli_held AS cpu,
                   memory_bytes - memory_bytes_held AS memory, node.pods, rdma - rdma_held AS rdma,
                   hugepages_bytes - hugepages_bytes_held AS hugepages,
                   local_storage_bytes - local_storage_bytes_held AS local_storage,
                   CAST(CAST(node.changed_xid AS text) AS bigint) AS xid,
                   ready AND NOT cordoned AND NOT deleting AND cordoned_by_us = '' AND node.lost_at IS NULL
                       AND node.removed_at IS NULL AND cluster.state = 'ready' AND cluster.cordon_reason = ''
                       AND cluster.drain_reason = '' AND NOT {AGENT_BANNED} AS schedulable
               FROM node JOIN cluster ON cluster.id = node.cluster_id
               WHERE node.id = ANY(CAST(:nodes AS bigint[])) ORDER BY node.id FOR NO KEY UPDATE OF node""",
            nodes=listed,
        )
        counted = self._session.execute(HELD_PODS, {"nodes": plain(sorted(crowded))}) if crowded else ()
        pods = {row.node_id: row.pods for row in counted}
        return {
            NodeId(row.id): FreshNode(
                id=NodeId(row.id),
                name=row.name,
                cluster=ClusterId(row.cluster_id),
                is_schedulable=row.schedulable,
                free=free[row.id],
                room=PodNeeds(row.cpu, row.memory, told(row.rdma), told(row.hugepages), told(row.local_storage)),
                pods_free=row.pods - pods.get(row.id, 0) if row.id in crowded else None,
                written_by=max(row.xid, written_by.get(row.id, 0)),
            )
            for row in rows
        }

    def lock_workloads(self, workloads: Collection[WorkloadId]) -> Mapping[WorkloadId, FreshWorkload]:
        """Lock these Workloads and read them with their live Attempts."""
        rows = self._all(
            """SELECT workload.id, workload.name, workload.state,
                   greatest(attempts_made, attempts_seen) AS attempts_made, kind, queue.path, workload.spec,
                   manifest, workload.labels, on_cluster_loss,
                   CAST(CAST(workload.changed_xid AS text) AS bigint) AS xid,
                   (SELECT attempt FROM attempt WHERE workload_id = workload.id AND state <> 'ended') AS live
               FROM workload JOIN queue ON queue.id = workload.queue_id
               WHERE workload.id = ANY(CAST(:ids AS uuid[])) ORDER BY workload.id FOR NO KEY UPDATE OF workload""",
            ids=plain(sorted(workloads)),
        )
        return {
            WorkloadId(str(row.id)): FreshWorkload(
                id=WorkloadId(str(row.id)),
                name=row.name,
                state=WorkloadState(row.state),
                attempts_made=row.attempts_made,
                live_attempt=None if row.live is None else AttemptNumber(row.live),
                kind=row.kind,
                queue_path=row.path,
                spec=row.spec,
                manifest=row.manifest,
                labels=row.labels,
                on_cluster_loss=row.on_cluster_loss,
                written_by=row.xid,
            )
            for row in rows
        }

    def write_attempts(self, drafts: Sequence[AttemptDraft], cycle: int, placed_at: datetime) -> None:
        """Write Attempts, placements, pods, holds, counters, reservations and apply directives as one batch."""
        plan_writer.write_attempts(self._session, drafts, cycle, placed_at, self._now)

    def transaction(self) -> int:
        """The id that this transaction's rows carry."""
        return int(
            self._session.execute(text("SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint)")).scalar_one()
        )

    def put_off(self, workloads: Collection[WorkloadId], until: datetime) -> None:
        """Let these Workloads, if they still wait, not be tried before `until`."""
        self._do(
            """UPDATE workload SET not_before = :until
               WHERE id = ANY(CAST(:ids AS uuid[])) AND state = 'pending'""",
            ids=sorted(workloads), until=until,
        )  # fmt: skip

    def write_earmarks(self, pool: PoolId, drafts: Sequence[EarmarkDraft]) -> None:
        """Keep freed shares for their askers; an earmark that a Workload had is replaced."""
        for draft in drafts:  # a handful per cycle at most
            shares = [asdict(share) for share in draft.shares]
            self._do(
                """INSERT INTO earmark (workload_id, cluster_id, pool_id, shares, created_at, until, next_check_at)
                   VALUES (CAST(:workload AS uuid), :cluster, :pool, CAST(:shares AS jsonb), :now, :until, :until)
                   ON CONFLICT (workload_id) DO UPDATE SET cluster_id = excluded.cluster_id, shares = excluded.shares,
                       created_at = excluded.created_at, until = excluded.until, ended_at = NULL,
                       next_check_at = excluded.next_check_at""",
                workload=draft.workload, cluster=draft.cluster, pool=pool, shares=json.dumps(shares),
                now=self._now, until=draft.until,
            )  # fmt: skip

    def expire_earmarks(self, limit: int) -> Sequence[PoolId]:
        """End earmarks whose time has passed, or whose Workload is final; returns their Pools."""
        rows = self._all(
            """UPDATE earmark SET ended_at = :now, next_check_at = NULL WHERE workload_id IN (
                   SELECT earmark.workload_id FROM earmark JOIN workload ON workload.id = earmark.workload_id
                   WHERE earmark.ended_at IS NULL AND (earmark.until <= :now
                       OR workload.state IN ('succeeded', 'failed', 'cancelled', 'cancelling'))
                   ORDER BY earmark.workload_id LIMIT :limit FOR NO KEY UPDATE OF earmark SKIP LOCKED)
               RETURNING pool_id""",
            now=self._now, limit=limit,
        )  # fmt: skip
        return sorted({PoolId(row.pool_id) for row in rows})

    def write_reasons(self, reasons: Mapping[WorkloadId, Sequence[Mapping[str, object]]]) -> None:
        """Store why Workloads wait. Only those that still wait: a Reason must not outlive its state."""
        if not reasons:
            return
        ids = sorted(reasons)
        self._do(
            """UPDATE workload SET reasons = CAST(given.reasons AS jsonb)
               FROM (SELECT * FROM unnest(CAST(:ids AS uuid[]), CAST(:reasons AS text[])) AS t(id, reasons)
                     ORDER BY id) AS given
               WHERE workload.id = given.id AND workload.state = 'pending'""",
            ids=plain(ids), reasons=texts(json.dumps(list(reasons[one])) for one in ids),
        )  # fmt: skip

    def record_cycle(self, record: CycleRecord) -> int:
        """Store what replay needs; returns the cycle's id."""
        [row] = self._all(
            """INSERT INTO cycle (pool_id, planner_epoch, base_id, policy_version, now, changes, plan, plan_sha256,
                   running_sha256, decisions, dropped, work_units, left_over, started_at, finished_at)
               VALUES (:pool, :epoch, :base, :policy, :at, :changes, :plan, :plan_sha, :running_sha, :decisions,
                   :dropped, :work_units, :left_over, :started, :now) RETURNING id""",
            pool=record.pool, epoch=record.epoch, base=record.base, policy=record.policy_version, at=record.now,
            changes=record.changes, plan=record.plan, plan_sha=record.plan_sha256,
            running_sha=record.running_sha256, decisions=record.decisions, dropped=record.dropped,
            work_units=record.work_units, left_over=record.left_over, started=record.started_at, now=self._now,
        )  # fmt: skip
        return int(row.id)

    def last_link(self, pool: PoolId) -> tuple[int, bytes] | None:
        """Base and running hash of the newest stored cycle; its contents may be large, and are not read."""
        rows = self._all(
            """SELECT coalesce(base_id, id) AS base, running_sha256 FROM cycle
               WHERE pool_id = :pool ORDER BY id DESC LIMIT 1""",
            pool=pool,
        )  # fmt: skip
        return (rows[0].base, bytes(rows[0].running_sha256)) if rows else None

    def chain(self, cycle: int) -> Sequence[StoredCycle]:
        """The cycle's base, and every cycle after it up to this one, in order."""
        rows = self._all(
            _STORED
            + """WHERE cycle.pool_id = (SELECT pool_id FROM cycle WHERE id = :id) AND cycle.id <= :id
                 AND coalesce(cycle.base_id, cycle.id) = (SELECT coalesce(base_id, id) FROM cycle WHERE id = :id)
                 ORDER BY cycle.id""",
            id=cycle,
        )
        return [_stored(row) for row in rows]

    def drop_cycles_before(self, moment: datetime, limit: int) -> int:
        """Delete cycles older than `moment` whose base no younger cycle needs, nor the next one; returns how many.

        The end of a chain goes before its beginning, so that what is left can always be replayed.
        """
        return self._do(
            """DELETE FROM cycle WHERE id IN (
                   SELECT id FROM cycle WHERE coalesce(base_id, id) NOT IN (
                       SELECT coalesce(base_id, id) FROM cycle WHERE finished_at >= :moment
                       UNION SELECT coalesce(last.base_id, last.id) FROM pool CROSS JOIN LATERAL (
                           SELECT id, base_id FROM cycle WHERE pool_id = pool.id ORDER BY id DESC LIMIT 1) AS last)
                   ORDER BY coalesce(base_id, id), id DESC LIMIT :limit)""",
            moment=moment, limit=limit,
        )  # fmt: skip

    def drop_traces_before(self, moment: datetime, limit: int) -> int:
        """Delete old reports, exclusions that are long over, and heartbeats of processes that are; returns how many."""
        return sum(
            self._do(
                f"DELETE FROM {table} WHERE ctid IN (SELECT ctid FROM {table} WHERE {past} < :moment LIMIT :limit)",
                moment=moment, limit=limit,
            )
            for table, past in (("rebalance_report", "at"), ("exclusion", "until"), ("process_heartbeat", "at"))
        )  # fmt: skip

    def store_report(self, pool: PoolId, report: Mapping[str, object]) -> None:
        """Keep one report-only rebalancing pass."""
        self._do("INSERT INTO rebalance_report (pool_id, at, report) VALUES (:pool, :now, CAST(:report AS jsonb))",
                 pool=pool, now=self._now, report=json.dumps(report))  # fmt: skip

    def claim_periodic(self, jobs: Mapping[str, int]) -> Sequence[str]:
        """Of these jobs (name, seconds between runs), the ones whose time has come; each is claimed once."""
        rows = self._all(
            """INSERT INTO periodic_run (name, last_at)
               SELECT name, :now FROM unnest(CAST(:names AS text[]), CAST(:seconds AS bigint[])) AS job(name, seconds)
               WHERE NOT EXISTS (SELECT FROM periodic_run AS past WHERE past.name = job.name
                                 AND past.last_at > :now - make_interval(secs => job.seconds * 0.9))
               ON CONFLICT (name) DO UPDATE SET last_at = excluded.last_at
               WHERE periodic_run.last_at <= :now - make_interval(secs => 0.9 * (
                   SELECT seconds FROM unnest(CAST(:names AS text[]), CAST(:seconds AS bigint[])) AS job(name, seconds)
                   WHERE job.name = periodic_run.name))
               RETURNING name""",
            names=list(jobs), seconds=list(jobs.values()), now=self._now,
        )  # fmt: skip
        return [row.name for row in rows]

    def heartbeat(self, name: str, kind: str) -> None:
        """Note that this process made progress."""
        self._do(
            """INSERT INTO process_heartbeat (name, kind, at) VALUES (:name, :kind, :now)
               ON CONFLICT (name) DO UPDATE SET at = excluded.at""",
            name=name, kind=kind, now=self._now,
        )  # fmt: skip


def _stored(row: Row[Any]) -> StoredCycle:
    return StoredCycle(
        id=row.id,
        base=row.base,
        policy_version=row.policy_version,
        policy=row.policy,
        now=row.now,
        changes=bytes(row.changes),
        plan=bytes(row.plan),
        plan_sha256=bytes(row.plan_sha256),
        running_sha256=bytes(row.running_sha256),
    )
