"""Which decisions of a Plan still hold on fresh values, read under lock just before they are written.

A decision that falls takes those with it that stand on it, and an asker's stops stand or fall together
with what is kept for it: nobody is stopped for the sake of nobody. What falls is planned again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from controlplane.core.demand import PodNeeds
from controlplane.core.ids import AttemptNumber, FlavorName, NodeId, WorkloadId
from controlplane.core.plan import Admit, Decision, Plan, Reclaim, SetEarmark
from controlplane.core.quota import Leg, QuotaTree
from controlplane.core.reasons import Reason, ReasonCode, reason

NOTHING = PodNeeds()
_NEEDS = {
    "cpu_milli": "CPU",
    "memory_bytes": "memory",
    "rdma": "RDMA",
    "hugepages_bytes": "huge pages",
    "local_storage_bytes": "local disk",
}
_CLOSED = "a node that takes no pods now"


@dataclass(frozen=True, slots=True)
class FreshWorld:
    """What a Plan's decisions rest on, as it is now.

    `tree` needs the accounts of the Queues that are charged, up to their roots; `recheck` charges it, so
    afterwards it holds the balances to write. `free` may leave out what the Plan does not touch. `waiting`
    has the next attempt's number of each Workload that is still pending, `live` the number of each live
    Attempt that may still be stopped. `room` is what is left on each node beside devices, `needs` what a pod of each
    PodSet asks for; both may leave out what asks for none. `slots` is how many pods a node still takes, where that
    may be what is short.
    """

    tree: QuotaTree
    free: Mapping[tuple[NodeId, FlavorName], int] = field(default_factory=dict)
    waiting: Mapping[WorkloadId, AttemptNumber] = field(default_factory=dict)
    live: Mapping[WorkloadId, AttemptNumber] = field(default_factory=dict)
    room: Mapping[NodeId, PodNeeds] = field(default_factory=dict)
    needs: Mapping[tuple[WorkloadId, str], PodNeeds] = field(default_factory=dict)
    slots: Mapping[NodeId, int] = field(default_factory=dict)
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
    left = _Left(fresh)
    legs: dict[WorkloadId, tuple[Leg, ...]] = {}
    held: set[WorkloadId] = set()
    kept: list[Decision] = []
    fallen: list[tuple[Decision, Reason]] = []
    for decision in plan.decisions:
        if isinstance(decision, Admit):
            changed = _changed_under(decision, fresh, left, held)
            if changed is None:
                legs[decision.workload] = _charge(decision, fresh.tree)
                left.take(decision)
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
            is_open = all(share.node not in fresh.closed for share in decision.shares)
            _note(changed, decision.workload, None if is_open else _CLOSED)
    return changed


def _note(changed: dict[WorkloadId, str | None], asker: WorkloadId, what: str | None) -> None:
    changed[asker] = changed.get(asker) or what


def _changed_under(
    decision: Admit,
    fresh: FreshWorld,
    left: "_Left",
    held: Collection[WorkloadId],
) -> str | None:
    """What an Admit rested on and no longer can; None if it holds."""
    if fresh.waiting.get(decision.workload) != decision.attempt:
        return "the workload itself"
    if any(workload not in held for workload in decision.stands_on):
        return "a decision that no longer holds"
    for placement in decision.placements:
        if any(pod.node in fresh.closed for pod in placement.pods):
            return _CLOSED
    if (short := left.is_short_of(decision)) is not None:
        return f"free {short} on a node"
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


class _Left:
    """What is free on nodes after the decisions that were kept so far."""

    def __init__(self, fresh: FreshWorld) -> None:
        self._fresh = fresh
        self._units: dict[tuple[NodeId, FlavorName], int] = {}
        self._room: dict[NodeId, PodNeeds] = {}
        self._slots = dict(fresh.slots)

    def is_short_of(self, decision: Admit) -> str | None:
        """What a node has too little of for this decision, if anything."""
        for at, amount in _wanted(decision).items():
            if self._units_at(at) < amount:
                return at[1]
        for node, needs in self._needed(decision).items():
            room = self._room_at(node)
            for name, words in _NEEDS.items():
                if getattr(needs, name) and getattr(room, name) < getattr(needs, name):
                    return words
        if any(pods > self._slots[node] for node, pods in self._pods(decision).items()):
            return "place for pods"
        return None

    def take(self, decision: Admit) -> None:
        """Leave less to those after it."""
        for at, amount in _wanted(decision).items():
            self._units[at] = self._units_at(at) - amount
        for node, needs in self._needed(decision).items():
            self._room[node] = _plus(self._room_at(node), needs, -1)
        for node, pods in self._pods(decision).items():
            self._slots[node] -= pods

    def _units_at(self, at: tuple[NodeId, FlavorName]) -> int:
        return self._units.get(at, self._fresh.free.get(at, 0))

    def _room_at(self, node: NodeId) -> PodNeeds:
        return self._room.get(node) or self._fresh.room.get(node, NOTHING)

    def _needed(self, decision: Admit) -> dict[NodeId, PodNeeds]:
        needed: dict[NodeId, PodNeeds] = {}
        for placement in decision.placements:
            for pod in placement.pods:
                one = self._fresh.needs.get((decision.workload, pod.pod_set))
                if one is not None:
                    needed[pod.node] = _plus(needed.get(pod.node, NOTHING), one, 1)
        return needed

    def _pods(self, decision: Admit) -> dict[NodeId, int]:
        """Pods on each node where slots may be short."""
        pods: dict[NodeId, int] = {}
        for placement in decision.placements if self._slots else ():
            for pod in placement.pods:
                if pod.node in self._slots:
                    pods[pod.node] = pods.get(pod.node, 0) + 1
        return pods


def _plus(left: PodNeeds, right: PodNeeds, sign: int) -> PodNeeds:
    return PodNeeds(
        left.cpu_milli + sign * right.cpu_milli,
        left.memory_bytes + sign * right.memory_bytes,
        left.rdma + sign * right.rdma,
        left.hugepages_bytes + sign * right.hugepages_bytes,
        left.local_storage_bytes + sign * right.local_storage_bytes,
    )


def _charge(decision: Admit, tree: QuotaTree) -> tuple[Leg, ...]:
    return tuple(leg for flavor, amount in decision.charges for leg in tree.charge(decision.queue, flavor, amount))
