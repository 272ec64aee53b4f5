"""Which decisions of a Plan still hold on fresh values, read under lock just before they are written.

A decision that falls takes those with it that stand on it, and an asker's stops stand or fall together
with what is kept for it: nobody is stopped for the sake of nobody. What falls is planned again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from controlplane.core.ids import AttemptNumber, FlavorName, NodeId, WorkloadId
from controlplane.core.plan import Admit, Decision, Plan, Reclaim, SetEarmark
from controlplane.core.quota import Leg, QuotaTree
from controlplane.core.reasons import Reason, ReasonCode, reason


@dataclass(frozen=True, slots=True)
class FreshWorld:
    """What a Plan's decisions rest on, as it is now.

    `tree` needs the accounts of the Queues that are charged, up to their roots; `recheck` charges it, so
    afterwards it holds the balances to write. `free` may leave out what the Plan does not touch. `waiting`
    has the next attempt's number of each Workload that is still pending, `live` the number of each live
    Attempt that may still be stopped.
    """

    tree: QuotaTree
    free: Mapping[tuple[NodeId, FlavorName], int] = field(default_factory=dict)
    waiting: Mapping[WorkloadId, AttemptNumber] = field(default_factory=dict)
    live: Mapping[WorkloadId, AttemptNumber] = field(default_factory=dict)
    closed: Collection[NodeId] = frozenset()  # nodes that take no new pods any more


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may be written, in the Plan's order, with the legs of each Admit; and what fell, with its Reason."""

    kept: tuple[Decision, ...]
    fallen: tuple[tuple[Decision, Reason], ...]
    legs: Mapping[WorkloadId, tuple[Leg, ...]]


def recheck(plan: Plan, fresh: FreshWorld) -> Verdict:
    """Judge every decision, in order, each on what the kept ones before it leave."""
    stops = _stops_that_hold(plan, fresh)
    left: dict[tuple[NodeId, FlavorName], int] = {}
    legs: dict[WorkloadId, tuple[Leg, ...]] = {}
    held: set[WorkloadId] = set()
    kept: list[Decision] = []
    fallen: list[tuple[Decision, Reason]] = []
    for decision in plan.decisions:
        if isinstance(decision, Admit):
            changed = _changed_under(decision, fresh, left, held)
            if changed is None:
                legs[decision.workload] = _charge(decision, fresh.tree)
                _take(decision, fresh, left)
        else:
            asker = decision.asker if isinstance(decision, Reclaim) else decision.workload
            changed = stops[asker]
        if changed is None:
            kept.append(decision)
            held.add(decision.workload)
        else:
            fallen.append((decision, reason(ReasonCode.STALE_DECISION, what=changed)))
    return Verdict(tuple(kept), tuple(fallen), legs)


def _stops_that_hold(plan: Plan, fresh: FreshWorld) -> dict[WorkloadId, str | None]:
    """For each asker, what has changed under the stops and the Earmark for its sake; None if nothing has."""
    changed: dict[WorkloadId, str | None] = {}
    for decision in plan.decisions:
        if isinstance(decision, Reclaim):
            is_live = fresh.live.get(decision.workload) == decision.attempt
            _note(changed, decision.asker, None if is_live else f"the running attempt of {decision.workload}")
        elif isinstance(decision, SetEarmark):
            is_waiting = decision.workload in fresh.waiting
            _note(changed, decision.workload, None if is_waiting else "the workload itself")
    return changed


def _note(changed: dict[WorkloadId, str | None], asker: WorkloadId, what: str | None) -> None:
    changed[asker] = changed.get(asker) or what


def _changed_under(
    decision: Admit,
    fresh: FreshWorld,
    left: Mapping[tuple[NodeId, FlavorName], int],
    held: Collection[WorkloadId],
) -> str | None:
    """What an Admit rested on and no longer can; None if it holds."""
    if fresh.waiting.get(decision.workload) != decision.attempt:
        return "the workload itself"
    if any(workload not in held for workload in decision.stands_on):
        return "a decision that no longer holds"
    for placement in decision.placements:
        if any(pod.node in fresh.closed for pod in placement.pods):
            return "a node that takes no pods now"
    for at, amount in _wanted(decision).items():
        if left.get(at, fresh.free.get(at, 0)) < amount:
            return f"free {at[1]} on a node"
    for flavor, amount in decision.charges:
        if decision.queue not in fresh.tree:
            return "a queue that is gone"
        if fresh.tree.available(decision.queue, flavor) < amount:
            return f"free quota of {flavor}"
    return None


def _wanted(decision: Admit) -> dict[tuple[NodeId, FlavorName], int]:
    wanted: dict[tuple[NodeId, FlavorName], int] = {}
    for placement in decision.placements:
        for pod in placement.pods:
            if pod.amount:
                wanted[pod.node, pod.flavor] = wanted.get((pod.node, pod.flavor), 0) + pod.amount
    return wanted


def _take(decision: Admit, fresh: FreshWorld, left: dict[tuple[NodeId, FlavorName], int]) -> None:
    for at, amount in _wanted(decision).items():
        left[at] = left.get(at, fresh.free.get(at, 0)) - amount


def _charge(decision: Admit, tree: QuotaTree) -> tuple[Leg, ...]:
    return tuple(leg for flavor, amount in decision.charges for leg in tree.charge(decision.queue, flavor, amount))
