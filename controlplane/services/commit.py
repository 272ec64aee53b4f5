"""Commits one cycle as one batch: lock, read fresh, recheck, write; part of a plan, but a Workload whole.

Lock order: the Pool (taken by the caller), accounts, node counters, Workloads. Numbers of directives are given
afterwards, in a transaction of their own, so that no cluster's counter is locked for the length of a batch.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta

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
    EarmarkDraft,
    Horizon,
)
from controlplane.core.ids import AttemptNumber, NodeId, WorkloadId
from controlplane.core.ledger import tree_of_accounts
from controlplane.core.lifecycle import AttemptState, Outcome, WorkloadState
from controlplane.core.plan import Admit, Reclaim, SetEarmark
from controlplane.core.quota import Leg
from controlplane.core.reasons import Reason
from controlplane.core.recheck import NOTHING, FreshWorld, Verdict, recheck
from controlplane.core.snapshot import Snapshot
from controlplane.services import attempts
from controlplane.services.attempt_batch import By
from controlplane.services.cycles import Cycle, Texts, Written, record_of
from controlplane.services.drafts import Fresh, drafts_of
from controlplane.services.ports.unit_of_work import UnitOfWork

ACTOR = "planner"
SLOTS_SPARE = 32  # foreign pods may have come meanwhile, but hardly so many
Observe = Callable[[str, int, int], None]


def commit(uow: UnitOfWork, cycle: Cycle, texts: Texts, observe: Observe, own: int) -> Written:
    """Write what still holds and record the cycle; `own` is the transaction's id.

    `observe(kind, written, dropped)` is told the counts per kind of decision. Dropped decisions are planned
    again in the next cycle, because their Workloads still wait.
    """
    fresh = _read_fresh(uow, cycle)
    drafts, spoilt = drafts_of(uow, cycle, fresh)
    verdict = recheck(cycle.plan, fresh.without(spoilt))
    cycle_id = uow.planning.record_cycle(record_of(uow, cycle, texts, verdict))
    admits = [decision for decision in verdict.kept if isinstance(decision, Admit)]
    _write_admits(uow, cycle, [drafts[admit.workload] for admit in admits], admits, verdict.legs, cycle_id)
    _write_reclaims(uow, cycle, verdict)
    _put_off(uow, cycle, spoilt)
    uow.planning.write_reasons({workload: [_told(one) for one in why] for workload, why in cycle.said.items()})
    if verdict.fallen:
        uow.wake_pool(cycle.lease.pool)
    for kind in (Admit, Reclaim, SetEarmark):
        observe(kind.__name__, _count(verdict.kept, kind), _count([one for one, _ in verdict.fallen], kind))
    return Written(
        len(verdict.kept),
        len(verdict.fallen),
        own,
        tuple(node.id for node in fresh.nodes.values() if _is_news(node.written_by, cycle.horizon)),
        tuple(
            {one.id for one in fresh.workloads.values() if _is_news(one.written_by, cycle.horizon)} | set(cycle.said)
        ),
    )


def _is_news(written_by: int, horizon: Horizon) -> bool:
    """Whether what was locked may be another row than the one that was planned on."""
    return written_by >= horizon.xmin and written_by not in horizon.own


def _read_fresh(uow: UnitOfWork, cycle: Cycle) -> Fresh:
    plan = cycle.plan
    admits = [decision for decision in plan.decisions if isinstance(decision, Admit)]
    stops = [AttemptKey(one.workload, one.attempt) for one in plan.decisions if isinstance(one, Reclaim)]
    leaves = {AccountKey(admit.queue, flavor) for admit in admits for flavor, _ in admit.charges}
    accounts = uow.ledger.lock_accounts(leaves | set(uow.ledger.charged_accounts(stops)))
    pods = Counter(pod.node for admit in admits for placement in admit.placements for pod in placement.pods)
    wanted = pods.keys() | {share.node for one in plan.decisions if isinstance(one, SetEarmark) for share in one.shares}
    nodes = uow.planning.lock_nodes(wanted, _crowded(cycle.snapshot, pods))
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
        room={node.id: node.room for node in nodes.values()},
        needs={
            (admit.workload, pod_set.name): pod_set.needs
            for admit in admits
            for pod_set in cycle.snapshot.waiting[admit.workload].pod_sets
            if pod_set.needs != NOTHING
        },
        slots={node.id: node.pods_free for node in nodes.values() if node.pods_free is not None},
        closed=wanted - {node.id for node in nodes.values() if node.is_schedulable},
    )
    return Fresh(world, nodes, workloads)


def _crowded(snapshot: Snapshot, pods: Mapping[NodeId, int]) -> set[NodeId]:
    """Nodes whose kubelets take few more pods than planned: theirs are counted again under lock.

    Nobody but this Pool's planner adds pods of ours, so on all others there is room whatever has ended since.
    """
    seen = snapshot.nodes
    return {
        node
        for node, planned in pods.items()
        if node in seen and seen[node].pods - seen[node].pods_held - planned < SLOTS_SPARE
    }


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
    cycle: Cycle,
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
    uow.planning.write_attempts(drafts, cycle_id, cycle.now)
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


def _told(why: Reason) -> dict[str, object]:
    return {"code": why.code.value, "facts": dict(why.facts), "sentence": why.sentence()}


def _count(decisions: Iterable[object], kind: type) -> int:
    return sum(isinstance(decision, kind) for decision in decisions)
