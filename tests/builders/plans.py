"""Readings of a Plan by name, so that a test can say where something went and why something waits."""

from controlplane.core.cycle import plan_cycle
from controlplane.core.ids import WorkloadId
from controlplane.core.plan import Admit, Plan, Reclaim, SetEarmark
from controlplane.core.policy import Policy
from controlplane.core.reasons import ReasonCode
from tests.builders.core import NOW, AWorld


def planned(world: AWorld, policy: Policy | None = None) -> Plan:
    """The Plan of one cycle at NOW."""
    return plan_cycle(world.build(), policy or Policy(), NOW)


def admitted(plan: Plan) -> list[str]:
    """Workloads in the order of their turns."""
    return [decision.workload for decision in plan.decisions if isinstance(decision, Admit)]


def stopped(plan: Plan) -> dict[str, str]:
    """Victims and for whose sake."""
    return {each.workload: each.asker for each in plan.decisions if isinstance(each, Reclaim)}


def kept(plan: Plan) -> dict[str, int]:
    """Units kept for each asker."""
    marks = [each for each in plan.decisions if isinstance(each, SetEarmark)]
    return {mark.workload: sum(share.amount for share in mark.shares) for mark in marks}


def where(world: AWorld, plan: Plan, workload: str) -> list[str]:
    """Nodes by rank."""
    decision = next(each for each in plan.decisions if isinstance(each, Admit) and each.workload == workload)
    return [world.nodes[pod.node].name for placement in decision.placements for pod in placement.pods]


def codes(plan: Plan, workload: str) -> list[ReasonCode]:
    """Why it waits."""
    return [reason.code for reason in plan.reasons.get(WorkloadId(workload), ())]


def sentences(plan: Plan, workload: str) -> list[str]:
    """Why it waits, in words."""
    return [reason.sentence() for reason in plan.reasons.get(WorkloadId(workload), ())]
