"""Commits one cycle as one batch: lock, read fresh, recheck, write; part of a plan, but a Workload whole.

Lock order: the Pool (taken by the caller), accounts, node counters, Workloads. Numbers of directives are given
afterwards, in a transaction of their own, so that no cluster's counter is locked for the length of a batch.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from controlplane.core.demand import PodNeeds
from controlplane.core.facts.attempts import PodPin, WorkloadOrder
from controlplane.core.facts.fleet import Document
from controlplane.core.facts.ledger import (
    AccountKey,
    AttemptKey,
    AuditEntry,
    Side,
    TransferDraft,
    TransferKind,
    TransferLeg,
)
from controlplane.core.facts.planning import (
    AttemptDraft,
    Change,
    CycleRecord,
    EarmarkDraft,
    FreshNode,
    FreshWorkload,
    PlannerLease,
    PodDraft,
)
from controlplane.core.ids import AttemptNumber, ClusterId, FlavorName, NodeId, WorkloadId
from controlplane.core.ledger import tree_of_accounts
from controlplane.core.lifecycle import AttemptState, Outcome, WorkloadState
from controlplane.core.placement.clusters import namespace_of
from controlplane.core.plan import Admit, Plan, PodPlacement, Reclaim, SetEarmark
from controlplane.core.policy import Policy
from controlplane.core.quota import Leg
from controlplane.core.reasons import Reason
from controlplane.core.recheck import NOTHING, FreshWorld, Verdict, recheck
from controlplane.core.records import canonical, changes_text, running_hash, to_record
from controlplane.core.snapshot import Snapshot
from controlplane.services import attempts, wire
from controlplane.services.attempt_batch import By
from controlplane.services.ports.unit_of_work import UnitOfWork

ACTOR = "planner"
DEFAULT_NAMESPACE = "default"

log = structlog.get_logger(__name__)

Observe = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Cycle:
    """One planned cycle, to be committed. `said` are the Reasons that differ from what was stored."""

    lease: PlannerLease
    snapshot: Snapshot
    plan: Plan
    policy: Policy
    now: datetime
    changes: tuple[Change, ...]
    is_base: bool
    said: Mapping[WorkloadId, tuple[Reason, ...]]


def commit(uow: UnitOfWork, cycle: Cycle, observe: Observe) -> int:
    """Write what still holds and record the cycle; returns how many decisions were written.

    `observe(kind, written, dropped)` is told the counts per kind of decision. Dropped decisions are planned
    again in the next cycle, because their Workloads still wait.
    """
    fresh = _read_fresh(uow, cycle)
    drafts, spoilt = _drafts(uow, cycle, fresh)
    verdict = recheck(cycle.plan, fresh.without(spoilt))
    cycle_id = uow.planning.record_cycle(_record(uow, cycle, verdict))
    admits = [decision for decision in verdict.kept if isinstance(decision, Admit)]
    _write_admits(uow, [drafts[admit.workload] for admit in admits], admits, verdict.legs, cycle_id)
    _write_reclaims(uow, cycle, verdict)
    _put_off(uow, cycle, spoilt)
    uow.planning.write_reasons({workload: [_told(one) for one in why] for workload, why in cycle.said.items()})
    if verdict.fallen:
        uow.wake_pool(cycle.lease.pool)
    for kind in (Admit, Reclaim, SetEarmark):
        observe(kind.__name__, _count(verdict.kept, kind), _count([one for one, _ in verdict.fallen], kind))
    return len(verdict.kept)


@dataclass(frozen=True, slots=True)
class _Fresh:
    """What the commit has locked and read."""

    world: FreshWorld
    nodes: Mapping[NodeId, FreshNode]
    workloads: Mapping[WorkloadId, FreshWorkload]

    def without(self, spoilt: Mapping[WorkloadId, str]) -> FreshWorld:
        """The world for the recheck; what cannot be ordered counts as not waiting, so what stands on it falls, too."""
        if not spoilt:
            return self.world
        waiting = {one: attempt for one, attempt in self.world.waiting.items() if one not in spoilt}
        return replace(self.world, waiting=waiting)


def _read_fresh(uow: UnitOfWork, cycle: Cycle) -> _Fresh:
    plan = cycle.plan
    admits = [decision for decision in plan.decisions if isinstance(decision, Admit)]
    stops = [AttemptKey(one.workload, one.attempt) for one in plan.decisions if isinstance(one, Reclaim)]
    leaves = {AccountKey(admit.queue, flavor) for admit in admits for flavor, _ in admit.charges}
    accounts = uow.ledger.lock_accounts(leaves | set(uow.ledger.charged_accounts(stops)))
    wanted = _nodes_of(admits) | {
        share.node for one in plan.decisions if isinstance(one, SetEarmark) for share in one.shares
    }
    nodes = uow.planning.lock_nodes(wanted)
    workloads = uow.planning.lock_workloads({decision.workload for decision in plan.decisions})
    world = FreshWorld(
        tree=tree_of_accounts(accounts),
        free={(node.id, flavor): units for node in nodes.values() for flavor, units in node.free.items()},
        waiting={
            one.id: AttemptNumber(one.attempts_made + 1)
            for one in workloads.values()
            if one.state is WorkloadState.PENDING
        },
        live={
            one.id: one.live_attempt
            for one in workloads.values()
            if one.live_attempt is not None and one.state in {WorkloadState.RESERVED, WorkloadState.RUNNING}
        },
        room={node.id: PodNeeds(node.cpu_milli_free, node.memory_bytes_free) for node in nodes.values()},
        needs={
            (admit.workload, pod_set.name): pod_set.needs
            for admit in admits
            for pod_set in cycle.snapshot.waiting[admit.workload].pod_sets
            if pod_set.needs != NOTHING
        },
        closed=wanted - {node.id for node in nodes.values() if node.is_schedulable},
    )
    return _Fresh(world, nodes, workloads)


def _nodes_of(admits: Iterable[Admit]) -> set[NodeId]:
    return {pod.node for admit in admits for placement in admit.placements for pod in placement.pods}


def _drafts(
    uow: UnitOfWork, cycle: Cycle, fresh: _Fresh
) -> tuple[Mapping[WorkloadId, AttemptDraft], Mapping[WorkloadId, str]]:
    """The Attempts as they would be written, and of which Workloads no order can be made, with what was raised.

    Made before the recheck, because what the ledger is to be charged rests on which decisions there are.
    """
    admits = [one for one in cycle.plan.decisions if isinstance(one, Admit) and one.workload in fresh.world.waiting]
    resources = uow.fleet.resources(_nodes_of(admits))
    budgets = uow.fleet.budgets({placement.cluster for admit in admits for placement in admit.placements})
    drafts: dict[WorkloadId, AttemptDraft] = {}
    spoilt: dict[WorkloadId, str] = {}
    for admit in admits:
        if not fresh.nodes.keys() >= _nodes_of([admit]):
            continue  # a node is gone: the recheck says so
        try:
            drafts[admit.workload] = _draft(cycle, admit, fresh, _Known(resources, budgets))
        except Exception as error:  # whatever one Workload's body does, the others of its Pool must start
            log.exception("no_order", workload=admit.workload, attempt=admit.attempt)
            spoilt[admit.workload] = type(error).__name__
    return drafts, spoilt


def _put_off(uow: UnitOfWork, cycle: Cycle, spoilt: Mapping[WorkloadId, str]) -> None:
    """Not to be tried again at once: its next try will likely end the same way."""
    if not spoilt:
        return
    uow.planning.put_off(spoilt, uow.now + timedelta(seconds=cycle.policy.backoff_seconds))
    uow.audit.record_many(
        [AuditEntry(ACTOR, "no-order", "workload", one, facts={"error": error}) for one, error in spoilt.items()]
    )


def _write_admits(
    uow: UnitOfWork,
    drafts: Sequence[AttemptDraft],
    admits: Sequence[Admit],
    legs: Mapping[WorkloadId, Sequence[Leg]],
    cycle_id: int,
) -> None:
    uow.ledger.write_transfers(
        [
            TransferDraft(
                TransferKind.PLACE, _legs(admit, legs[admit.workload]), AttemptKey(admit.workload, admit.attempt)
            )
            for admit in admits
        ]
    )
    uow.planning.write_attempts(drafts, cycle_id)
    uow.audit.record_many([entry for admit in admits for entry in _audit(admit, cycle_id)])


def _legs(admit: Admit, legs: Sequence[Leg]) -> tuple[TransferLeg, ...]:
    """The account that is charged holds it pending; the accounts above hold one sum (decision record 0001)."""
    return tuple(
        TransferLeg(
            AccountKey(leg.queue, leg.flavor),
            leg.amount,
            Side.FREE,
            Side.PENDING if leg.queue == admit.queue else Side.POSTED,
        )
        for leg in legs
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """What an agent is told beside the Workload: the resource of each Flavor on each node, budgets of clusters."""

    resources: Mapping[tuple[NodeId, FlavorName], str]
    budgets: Mapping[ClusterId, Document]


def _draft(cycle: Cycle, admit: Admit, fresh: _Fresh, known: _Known) -> AttemptDraft:
    planned = cycle.snapshot.waiting[admit.workload]
    needs = {pod_set.name: pod_set.needs for pod_set in planned.pod_sets}
    order = {pod_set.name: position for position, pod_set in enumerate(planned.pod_sets)}
    placed = sorted(
        ((placement.cluster, pod) for placement in admit.placements for pod in placement.pods),
        key=lambda at: (order[at[1].pod_set], at[1].index),
    )
    pods = tuple(_pod(cluster, rank, needs[pod.pod_set], pod) for rank, (cluster, pod) in enumerate(placed))
    stored = fresh.workloads[admit.workload]
    told = WorkloadOrder(
        key=AttemptKey(admit.workload, admit.attempt),
        name=stored.name,
        namespace=planned.namespace or namespace_of(cycle.snapshot.queues, admit.queue) or DEFAULT_NAMESPACE,
        world_size=len(pods),
        spec=stored.spec,
        manifest=stored.manifest,
        on_cluster_loss=stored.on_cluster_loss,
    )
    return AttemptDraft(
        workload=admit.workload,
        attempt=admit.attempt,
        queue=admit.queue,
        charges=admit.charges,
        pods=pods,
        bodies={
            placement.cluster: wire.apply_body(
                told, _pins(pods, placement.cluster, fresh, known.resources), known.budgets.get(placement.cluster)
            )
            for placement in admit.placements
        },
    )


def _pod(cluster: ClusterId, rank: int, needs: PodNeeds, pod: PodPlacement) -> PodDraft:
    return PodDraft(
        cluster=cluster,
        pod_set=pod.pod_set,
        index=pod.index,
        rank=rank,
        node=pod.node,
        flavor=pod.flavor,
        amount=pod.amount,
        cpu_milli=needs.cpu_milli,
        memory_bytes=needs.memory_bytes,
    )


def _pins(
    pods: Iterable[PodDraft],
    cluster: ClusterId,
    fresh: _Fresh,
    resources: Mapping[tuple[NodeId, FlavorName], str],
) -> list[PodPin]:
    return [
        PodPin(
            pod_set=pod.pod_set,
            index=pod.index,
            rank=pod.rank,
            node=fresh.nodes[pod.node].name,
            resource=resources.get((pod.node, pod.flavor), ""),
            amount=pod.amount,
        )
        for pod in pods
        if pod.cluster == cluster
    ]


def _write_reclaims(uow: UnitOfWork, cycle: Cycle, verdict: Verdict) -> None:
    earmarks = [
        EarmarkDraft(one.workload, one.cluster, one.shares, one.until)
        for one in verdict.kept
        if isinstance(one, SetEarmark)
    ]
    stops = [one for one in verdict.kept if isinstance(one, Reclaim)]
    if earmarks:
        uow.planning.write_earmarks(cycle.lease.pool, earmarks)
    for stop in stops:  # a handful per cycle, each with a Reason of its own
        key = AttemptKey(stop.workload, stop.attempt)
        attempts.stop_unnumbered(uow, [key], Outcome.PREEMPTED, stop.reason, By(ACTOR))


def _audit(admit: Admit, cycle_id: int) -> Iterable[AuditEntry]:
    facts = {"attempt": admit.attempt, "cycle": cycle_id}
    yield AuditEntry(ACTOR, "admit", "workload", admit.workload, WorkloadState.PENDING, WorkloadState.RESERVED, facts)
    yield AuditEntry(
        ACTOR, "place", "attempt", f"{admit.workload}.{admit.attempt}", None, AttemptState.PLACED, {"cycle": cycle_id}
    )


def _record(uow: UnitOfWork, cycle: Cycle, verdict: Verdict) -> CycleRecord:
    """What replay needs: the row changes since the cycle before (or a base), the time, the Policy, the Plan."""
    base, running = uow.planning.last_link(cycle.lease.pool) or (None, b"")
    changes, plan = changes_text(cycle.changes), canonical(to_record(cycle.plan))
    return CycleRecord(
        pool=cycle.lease.pool,
        epoch=cycle.lease.epoch,
        base=None if cycle.is_base else base,
        policy_version=cycle.policy.version,
        now=cycle.now,
        changes=_packed(changes),
        plan=_packed(plan),
        plan_sha256=hashlib.sha256(plan.encode()).digest(),
        running_sha256=bytes.fromhex(running_hash(running.hex(), changes, hashlib.sha256(plan.encode()).hexdigest())),
        decisions=len(verdict.kept),
        dropped=len(verdict.fallen),
        work_units=cycle.plan.work_units,
        left_over=cycle.plan.left_over,
        started_at=cycle.now,
    )


def _packed(text: str) -> bytes:
    return zlib.compress(text.encode(), level=1)


def _told(why: Reason) -> dict[str, object]:
    return {"code": why.code.value, "facts": dict(why.facts), "sentence": why.sentence()}


def _count(decisions: Iterable[object], kind: type) -> int:
    return sum(isinstance(decision, kind) for decision in decisions)
