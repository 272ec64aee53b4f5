"""What a cycle decides: Decisions with what they rest on, Reasons for everyone left waiting."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.core.demand import NodeShare
from controlplane.core.ids import AttemptNumber, ClusterId, FlavorName, NodeId, QueueId, WorkloadId
from controlplane.core.reasons import Reason, ReasonCode


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Where one pod goes. `index` counts within its PodSet, ranks in domain order; `amount` in units."""

    pod_set: str
    index: int
    node: NodeId
    flavor: FlavorName
    amount: int


@dataclass(frozen=True, slots=True)
class Placement:
    """One cluster's part of an Attempt."""

    cluster: ClusterId
    pods: tuple[PodPlacement, ...]


@dataclass(frozen=True, slots=True)
class Admit:
    """Start an Attempt: all its pods, on these nodes, charged to this Queue.

    `stands_on` names Workloads whose Reclaim or Admit in the same Plan must hold for this one to hold.
    """

    workload: WorkloadId
    attempt: AttemptNumber
    queue: QueueId
    placements: tuple[Placement, ...]
    charges: tuple[tuple[FlavorName, int], ...]
    stands_on: tuple[WorkloadId, ...] = ()


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Stop a borrower whole, for the sake of `asker`; what it frees is earmarked."""

    workload: WorkloadId
    attempt: AttemptNumber
    asker: WorkloadId
    reason: Reason


@dataclass(frozen=True, slots=True)
class SetEarmark:
    """Keep these shares for `workload` until it starts or `until`."""

    workload: WorkloadId
    cluster: ClusterId
    shares: tuple[NodeShare, ...]
    until: datetime
    stands_on: tuple[WorkloadId, ...]


Decision = Admit | Reclaim | SetEarmark


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes of one cycle, in the order in which they were decided.

    `reasons` says for each Workload that waits why it does. `left_over` counts those that the cycle did not
    reach; where work units ended it, the next cycle begins with them.
    """

    decisions: tuple[Decision, ...] = ()
    reasons: Mapping[WorkloadId, tuple[Reason, ...]] = field(default_factory=dict)
    work_units: int = 0
    left_over: int = 0


def left_over(plan: Plan, work_units_max: int, before: Collection[WorkloadId] = ()) -> frozenset[WorkloadId]:
    """What a cycle did not reach because its work units ended: it is first in the next one.

    As long as there are some that the cycle `before` had left over, only they are: else those that were looked at long
    ago would come again before those that never were.
    """
    left = _not_reached(plan, work_units_max)
    return left.intersection(before) or left


def goes_on(plan: Plan, work_units_max: int, before: Collection[WorkloadId] = ()) -> bool:
    """Whether the next cycle is due at once: there are some that no cycle has looked at since one looked at all."""
    left = _not_reached(plan, work_units_max)
    return bool(left.intersection(before) if before else left)


def _not_reached(plan: Plan, work_units_max: int) -> frozenset[WorkloadId]:
    if plan.work_units < work_units_max:
        return frozenset()
    return frozenset(name for name, why in plan.reasons.items() if why[0].code is ReasonCode.BEHIND_OTHERS)
