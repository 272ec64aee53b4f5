"""Read models: views of Workloads, Queues and the plane itself, as the API shows them. Never writes.

Fulfils `services.ports.queries` together with `queries_fleet`. A view that looks into several tables reads them in
one transaction of READ COMMITTED, so two of its numbers may be a moment apart; the ledger's own never are.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from controlplane.contract.rest.common import ReasonView
from controlplane.contract.rest.fleet import ClusterView, DeviceView, NodeView
from controlplane.contract.rest.ledger import AccountView, TransferView
from controlplane.contract.rest.operations import AuditView, CycleView, PlanView, RebalanceView
from controlplane.contract.rest.tenancy import QueueView, QuotaView
from controlplane.contract.rest.workloads import (
    AttemptView,
    NodeUse,
    PlacementView,
    PodNeedsView,
    PodSetView,
    PodWords,
    WorkloadSummary,
    WorkloadView,
    topology_words,
)
from controlplane.core.facts.queries import (
    AuditFilter,
    FleetFilter,
    Heartbeat,
    LedgerFilter,
    PageOf,
    PodWordsFact,
    Scope,
    WaitingFact,
    WorkloadFilter,
)
from controlplane.core.ids import FlavorName, PoolId, QueueId, WorkloadId
from controlplane.core.lifecycle import WorkloadState
from controlplane.core.nodes import words
from controlplane.core.quota import AccountRow, QuotaTree
from controlplane.core.reasons import Reason, ReasonCode, reason, told_within
from controlplane.core.records import rules_from
from controlplane.db.stores import queries_audit, queries_budgets, queries_fleet, queries_ledger, queries_plan
from controlplane.db.stores import queries_sql as sql
from controlplane.db.stores import queries_workloads as pages
from controlplane.db.stores.queries_logs import logs
from controlplane.db.stores.queries_turns import with_turns

Line = Row[Any]


class QueryStore:
    """`uow.queries`."""

    def __init__(self, session: Session, now: datetime) -> None:
        """Take the transaction's session and its reading of the clock."""
        self._session = session
        self._now = now

    def workloads(
        self, scope: Scope, wanted: WorkloadFilter, after: tuple[datetime, str] | None, limit: int
    ) -> PageOf[WorkloadSummary]:
        """Youngest first."""
        bounds = pages.sight(scope, wanted)
        given = pages.conditions(wanted, after) | {"limit": limit + 1}
        queues = list(self._session.execute(pages.queues_in_sight(bounds), bounds).scalars())
        if len(queues) <= pages.QUEUES_IN_SIGHT_MAX:
            rows = self._session.execute(pages.of_few(given), given | {"queues": queues}).all()
        else:
            rows = self._session.execute(pages.of_many(bounds, given), given | bounds).all()
        last = rows[limit - 1] if len(rows) > limit else None
        key = None if last is None else (last.submitted_at.isoformat(), str(last.id))
        return PageOf([_summary(row, scope) for row in rows[:limit]], key)

    def workload(self, scope: Scope, workload: WorkloadId) -> WorkloadView | None:
        """One, with the history of its Attempts."""
        row = self._session.execute(sql.WORKLOAD, {"id": workload, "paths": _paths(scope)}).one_or_none()
        if row is None:
            return None
        pod_sets = self._session.execute(sql.POD_SETS, {"id": workload})
        return WorkloadView(
            id=str(row.id),
            name=row.name,
            queue=row.queue_path,
            pool=row.pool_name,
            owner=row.owner,
            state=row.state,
            priority=row.priority,
            kind=row.kind,
            labels=row.labels,
            version=row.version,
            pod_sets=[_pod_set(each) for each in pod_sets],
            max_attempts=row.max_attempts,
            program_failures=row.program_failures,
            infrastructure_ends=row.infrastructure_ends,
            submitted_at=row.submitted_at,
            state_changed_at=row.state_changed_at,
            finished_at=row.finished_at,
            not_before=row.not_before,
            reasons=[_reason_view(each) for each in _reasons(row.reasons, scope)],
            attempts=self._attempts(workload, row.attempts_made, scope),
            spec=row.spec,
            logs=[]
            if row.finished_at is not None or not row.attempts_made
            else logs(self._session, workload, row.attempts_made, str(row.spec.get("namespace", ""))),
        )

    def waiting(self, scope: Scope, workload: WorkloadId) -> WaitingFact | None:
        """What `explain` needs to know of it."""
        row = self._session.execute(sql.WORKLOAD, {"id": workload, "paths": _paths(scope)}).one_or_none()
        if row is None:
            return None
        attempt = self._session.execute(sql.ATTEMPTS, {"id": workload}).first()
        number = 0 if attempt is None else attempt.attempt
        placements = self._session.execute(sql.PLACEMENTS, {"id": workload})
        sizes = self._session.execute(sql.POD_SETS, {"id": workload}).all()
        words = self._session.execute(sql.POD_WORDS, {"id": workload, "attempt": number})
        return WaitingFact(
            id=WorkloadId(str(row.id)),
            name=row.name,
            queue_path=row.queue_path,
            pool=PoolId(row.pool_id),
            state=WorkloadState(row.state),
            attempt=number,
            attempt_state=None if attempt is None else attempt.state,
            outcome=None if attempt is None else attempt.outcome,
            verdict=None if attempt is None else attempt.verdict,
            attempt_reason=None if attempt is None or not attempt.reason else _reasons([attempt.reason], scope)[0],
            clusters=tuple((each.cluster, each.cluster_state) for each in placements if each.attempt == number),
            reasons=_reasons(row.reasons, scope),
            submitted_at=row.submitted_at,
            state_changed_at=row.state_changed_at,
            pods=sum(each.replicas for each in sizes),
            devices=sum(each.replicas * each.devices for each in sizes),
            evidence_until=None if attempt is None else attempt.evidence_until,
            words=tuple(
                PodWordsFact(each.rank, each.node, each.state, each.message) for each in words if each.attempt == number
            ),
        )

    def named(self, scope: Scope, name: str) -> Sequence[WorkloadId]:
        """Workloads of this name, live ones first, then the youngest; at most two."""
        rows = self._session.execute(sql.NAMED, {"name": name, "paths": _paths(scope)})
        return [WorkloadId(str(row.id)) for row in rows]

    def queues(self, scope: Scope) -> list[QueueView]:
        """Every Queue of the scope with what is in use, parents first."""
        rows = self._session.execute(sql.QUEUES, {"paths": _paths(scope)}).all()
        parents = {row.id: row.parent_id for row in rows}
        paths = {row.id: row.path for row in rows}
        quotas = {(row.queue_id, row.flavor): row for row in self._session.execute(sql.QUOTAS)}
        accounts = [row for row in self._session.execute(sql.ACCOUNTS) if row.queue_id in parents]
        tree = QuotaTree.from_rows(_account(row, parents[row.queue_id]) for row in accounts)
        budgets = queries_budgets.views(self._session, self._now)
        by_queue: dict[int, list[QuotaView]] = defaultdict(list)
        for row in accounts:
            quota = quotas.get((row.queue_id, row.flavor))
            if quota is not None or row.pending + row.posted or row.subtree:
                by_queue[row.queue_id].append(_quota(row, quota, tree))
        views = [
            QueueView(
                path=row.path,
                parent=paths.get(row.parent_id),
                weight=row.weight,
                namespace=row.namespace,
                labels=row.labels,
                is_leaf=row.id not in set(parents.values()),
                version=row.version,
                quotas=by_queue[row.id],
                budgets=budgets.get(row.id, []),
                most_running=row.most_running,
                waiting=row.waiting,
                running=row.running,
            )
            for row in rows
            if row.visible
        ]
        return with_turns(self._session, tree, rows, views)

    def clusters(self, name: str | None = None) -> list[ClusterView]:
        """Every live Cluster, by name, or the one of this name."""
        return queries_fleet.clusters(self._session, name)

    def nodes(self, wanted: FleetFilter, after: int, limit: int) -> PageOf[NodeView]:
        """By id."""
        return queries_fleet.nodes(self._session, wanted, after, limit)

    def devices(self, wanted: FleetFilter, after: int, limit: int) -> PageOf[DeviceView]:
        """By id."""
        return queries_fleet.devices(self._session, wanted, after, limit)

    def cycles(self, pool: str | None, before: int | None, limit: int) -> PageOf[CycleView]:
        """Youngest first."""
        rows = self._session.execute(sql.CYCLES, {"pool": pool, "before": before, "limit": limit + 1}).mappings().all()
        items = [CycleView(**row) for row in rows[:limit]]
        return PageOf(items, (str(items[-1].id),) if len(rows) > limit else None)

    def cycle(self, number: int) -> CycleView | None:
        """One, while it is kept."""
        return queries_plan.cycle(self._session, number)

    def plan(self, number: int) -> PlanView | None:
        """What a cycle decided, and why others wait, while it is kept."""
        return queries_plan.plan(self._session, number)

    def accounts(
        self, scope: Scope, wanted: LedgerFilter, after: tuple[str, str] | None, limit: int
    ) -> PageOf[AccountView]:
        """By Queue and Flavor."""
        return queries_ledger.accounts(self._session, scope, wanted, after, limit)

    def transfers(self, scope: Scope, wanted: LedgerFilter, before: int | None, limit: int) -> PageOf[TransferView]:
        """Youngest first; of each, the legs on accounts that are asked for and in sight."""
        return queries_ledger.transfers(self._session, scope, wanted, before, limit)

    def rebalance(self, pool: str) -> RebalanceView | None:
        """The latest report of the Pool."""
        row = self._session.execute(sql.REBALANCE, {"pool": pool}).one_or_none()
        return None if row is None else RebalanceView(pool=row.pool, at=row.at, report=row.report)

    def audit(self, scope: Scope, wanted: AuditFilter, before: int | None, limit: int) -> PageOf[AuditView]:
        """Youngest first; of a scope with paths, what belongs to the Queues there."""
        return queries_audit.audit(self._session, scope, wanted, before, limit)

    def heartbeats(self) -> Sequence[Heartbeat]:
        """When each process of the plane last made progress."""
        rows = self._session.execute(sql.HEARTBEATS, {"now": self._now})
        return [Heartbeat(row.name, row.kind, max(0, row.age)) for row in rows]

    def _attempts(self, workload: WorkloadId, last: int, scope: Scope) -> list[AttemptView]:
        uses = self._session.execute(sql.NODE_USE, {"id": workload, "attempt": last}).all()
        placements: dict[int, list[PlacementView]] = defaultdict(list)
        for row in self._session.execute(sql.PLACEMENTS, {"id": workload}):
            mine = [use for use in uses if use.attempt == row.attempt and use.cluster == row.cluster]
            placements[row.attempt].append(
                PlacementView(cluster=row.cluster, state=row.state, message=row.message, nodes=_node_uses(mine))
            )
        words: dict[int, list[PodWords]] = defaultdict(list)
        for row in self._session.execute(sql.POD_WORDS, {"id": workload, "attempt": last}):
            words[row.attempt].append(_pod_words(row))
        attempts = self._session.execute(sql.ATTEMPTS, {"id": workload})
        return [_attempt(row, placements[row.attempt], words[row.attempt], scope) for row in attempts]


def _paths(scope: Scope) -> list[str] | None:
    return None if scope.paths is None else list(scope.paths)


def _reasons(stored: Sequence[Mapping[str, Any]], scope: Scope) -> tuple[Reason, ...]:
    made = (reason(ReasonCode(each["code"]), **each.get("facts", {})) for each in stored)
    return tuple(told_within(each, scope.paths) for each in made)


def _reason_view(why: Reason) -> ReasonView:
    return ReasonView(code=why.code, sentence=why.sentence(), facts=dict(why.facts))


def _summary(row: Line, scope: Scope) -> WorkloadSummary:
    reasons = _reasons(row.reasons, scope) if row.state == WorkloadState.PENDING else ()
    return WorkloadSummary(
        id=str(row.id),
        name=row.name,
        queue=row.queue,
        pool=row.pool,
        owner=row.owner,
        state=row.state,
        priority=row.priority,
        pods=int(row.pods),
        devices=int(row.devices),
        clusters=list(row.clusters),
        attempt=row.attempts_made,
        submitted_at=row.submitted_at,
        state_changed_at=row.state_changed_at,
        finished_at=row.finished_at,
        reason=reasons[0].sentence() if reasons else "",
    )


def _pod_set(row: Line) -> PodSetView:
    slices = int(row.slice_size), row.slice_level
    return PodSetView(
        name=row.name,
        replicas=row.replicas,
        devices=row.devices,
        flavors=list(row.flavors),
        topology=topology_words(row.topology_mode, row.topology_level, slices, row.with_pod_set),
        min_replicas=row.min_replicas,
        speeds=list(row.speeds),
        needs=PodNeedsView(
            cpu_milli=row.cpu_milli,
            memory_bytes=row.memory_bytes,
            rdma=row.rdma,
            hugepages_bytes=row.hugepages_bytes,
            local_storage_bytes=row.local_storage_bytes,
        ),
        nodes=words(rules_from(row.rules)),
    )


def _pod_words(row: Line) -> PodWords:
    return PodWords(
        pod_set=row.pod_set,
        index=row.pod_index,
        rank=row.rank,
        node=row.node,
        state=row.state,
        exit_code=row.exit_code,
        text=row.message,
    )


def _attempt(row: Line, placements: list[PlacementView], words: list[PodWords], scope: Scope) -> AttemptView:
    return AttemptView(
        attempt=row.attempt,
        state=row.state,
        outcome=row.outcome,
        verdict=row.verdict,
        reason=_reason_view(_reasons([row.reason], scope)[0]) if row.reason else None,
        placed_at=row.placed_at,
        prepared_at=row.prepared_at,
        start_ordered_at=row.start_ordered_at,
        running_at=row.running_at,
        stop_ordered_at=row.stop_ordered_at,
        failed_at=row.failed_at,
        ended_at=row.ended_at,
        placements=placements,
        words=words,
    )


def _node_uses(rows: Sequence[Line]) -> list[NodeUse]:
    """One per node and Flavor; the rows differ in the pods' state too."""
    grouped: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for row in rows:
        grouped[row.node or "", row.flavor].append(row)
    return [
        NodeUse(
            node=node,
            flavor=flavor,
            pods=sum(row.pods for row in mine),
            devices=sum(int(row.devices) for row in mine),
            states={row.state: row.pods for row in mine},
        )
        for (node, flavor), mine in grouped.items()
    ]


def _account(row: Line, parent: int | None) -> AccountRow:
    return AccountRow(
        queue=QueueId(row.queue_id),
        flavor=FlavorName(row.flavor),
        parent=None if parent is None else QueueId(parent),
        s=row.subtree,
        k=row.kept,
        b=row.borrow_limit,
        u=row.pending + row.posted,
    )


def _quota(row: Line, quota: Line | None, tree: QuotaTree) -> QuotaView:
    queue, flavor = QueueId(row.queue_id), FlavorName(row.flavor)
    used = row.pending + row.posted
    return QuotaView(
        flavor=flavor,
        nominal=None if quota is None else quota.nominal,
        borrow=None if quota is None else quota.borrow_limit,
        lend=None if quota is None else quota.lend_limit,
        subtree=row.subtree,
        potential=tree.potential(queue, flavor),
        available=tree.available(queue, flavor),
        used=used,
        pending=row.pending,
        running=row.posted,
        borrowed=max(0, used - row.subtree),
    )
