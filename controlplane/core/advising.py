"""Finds what would have to change so that a waiting Workload starts, and tries each before it is told.

A trial is the next cycle on the changed world, up to the Workload's turn, so what is advised here starts it. Trials are
bounded by their number and by the work units of their cycles: with thousands waiting less is tried, and nothing else is
told. Room and limits first, for that is what is missing; then what its owner can do.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from controlplane.core.advice import Advice, Step, StepKind, step
from controlplane.core.cycle import outcome_in, plan_until
from controlplane.core.demand import PodSet, TopologyMode
from controlplane.core.ids import FlavorName, WorkloadId
from controlplane.core.index import FleetIndex
from controlplane.core.mending import FIRST, LAST, Mend, Raise, Room, mended, missing, step_of, together
from controlplane.core.plan import Admit, Plan
from controlplane.core.policy import Policy
from controlplane.core.quota import QuotaTree
from controlplane.core.refusals import Reasons
from controlplane.core.snapshot import Snapshot
from controlplane.core.supposing import (
    ImpossibleSupposition,
    OtherClustersMax,
    OtherFlavors,
    OtherPriority,
    OtherReplicas,
    OtherTopology,
    Supposition,
    is_resubmitted,
    supposing,
    text_of,
)

PRIORITY_MAX = 1_000_000
MENDS_MAX = 6  # rounds: what is mended may go to others who come first
FLAVORS_MAX, CLUSTERS_TRIED_MAX, POD_SETS_MAX = 4, 3, 2
QUEUES_MAX = 20_000  # a changed tree is built anew: not for more


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be tried: work units are looks at who waits, and at nodes where some are added.

    What the world lacks takes half of them at most. `priority_max` is the highest that the asker may give.
    """

    trials_max: int = 32
    work_units_max: int = 100_000
    priority_max: int = PRIORITY_MAX


BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Told:
    """What a cycle would make of a Workload, and what would start it if that would not. `is_all`: nothing was left
    untried for want of work units.
    """

    outcome: Admit | Reasons
    advice: tuple[Advice, ...] = ()
    is_all: bool = True


class _Spent(Exception):
    """No more trials."""


@dataclass(frozen=True, slots=True)
class Question:
    """One waiting Workload of a Snapshot; `index` and `tree`, if given, are warm and come back as they were."""

    snapshot: Snapshot
    policy: Policy
    now: datetime
    workload: WorkloadId
    index: FleetIndex | None = None
    tree: QuotaTree | None = None


def advise(asked: Question, bounds: Bounds = BOUNDS) -> Told:
    """What the next cycle would make of it, and if that is not its start, what would start it."""
    index = asked.index or FleetIndex(asked.snapshot.clusters, asked.snapshot.nodes)
    plan = plan_until(asked.snapshot, asked.policy, asked.now, asked.workload, index, asked.tree)
    found = outcome_in(plan, asked.workload)
    if isinstance(found, Admit) or asked.workload not in asked.snapshot.waiting:
        return Told(found)
    adviser = _Adviser(asked, bounds, index, plan)
    advice: list[Advice] = []
    try:
        for look in adviser.looks():
            for each in look():
                advice.append(each)  # noqa: PERF402 - what was found before the bounds end stays
    except _Spent:
        return Told(found, tuple(advice), is_all=False)
    return Told(found, tuple(advice), is_all=not adviser.is_cut)


class _Adviser:
    """The trials of one question."""

    def __init__(self, asked: Question, bounds: Bounds, index: FleetIndex, plan: Plan) -> None:
        """`plan` is the cycle on the world as it is, up to the Workload's turn."""
        self.snapshot, self.policy, self.now, self.id = asked.snapshot, asked.policy, asked.now, asked.workload
        self.bounds, self.index, self.tree, self.plan = bounds, index, asked.tree, plan
        self.workload = self.snapshot.waiting[self.id]
        self.reasons = plan.reasons.get(self.id, ())
        self.trials, self.work, self.is_cut = 0, 0, False

    def looks(self) -> Sequence[Callable[[], Iterator[Advice]]]:
        return self.mends, self.flavors, self.topologies, self.replicas, self.clusters, self.priorities

    def mends(self) -> Iterator[Advice]:
        """What the world lacks, added up until nothing is missing."""
        done: list[Mend] = []
        reasons: Reasons = self.reasons
        for already in range(MENDS_MAX):
            more = missing(self.snapshot, self.workload, reasons, max(1, 2 ** (already - 1)))
            self.is_cut = 2 * self.work > self.bounds.work_units_max
            if not more or self.is_cut or not self._goes_on(done, more):
                return
            done = together([*done, *more])
            found = self._mended(done)
            if isinstance(found, Admit):
                yield Advice(tuple(step_of(self.snapshot, each) for each in done))
                return
            reasons = found

    def _mended(self, mends: Sequence[Mend]) -> Admit | Reasons:
        """Nobody knows what new nodes will be called, and so which of equal ones others take: both ends must do."""
        if not any(isinstance(each, Room) for each in mends):
            return self._try(mended(self.snapshot, mends), self.index, None)
        found = self._try(mended(self.snapshot, mends, name=FIRST), None, None)
        return self._try(mended(self.snapshot, mends, name=LAST), None, None) if isinstance(found, Admit) else found

    def flavors(self) -> Iterator[Advice]:
        """Each other Flavor of its vendor that somebody here owns."""
        known = {flavor for each in self.workload.pod_sets for flavor in each.flavors}
        vendors = {flavor.partition("-")[0] for flavor in known}
        free: dict[FlavorName, int] = {}
        for units in self.index.open_units.values():
            for flavor, amount in units.items():
                free[flavor] = free.get(flavor, 0) + amount
        others = [flavor for flavor in free if flavor not in known and flavor.partition("-")[0] in vendors]
        least = min((each.devices * each.least for each in self.workload.pod_sets if each.devices), default=0)
        likely = [flavor for flavor in others if free[flavor] >= least]
        for flavor in sorted(likely, key=lambda name: (-free[name], name))[:FLAVORS_MAX]:
            told = step(StepKind.FLAVOR, flavor=flavor, instead=" or ".join(sorted(known)))
            yield from self._supposing(told, OtherFlavors((flavor,)))

    def topologies(self) -> Iterator[Advice]:
        """Every required level only preferred."""
        required = [each for each in self.workload.pod_sets if each.topology_mode is TopologyMode.REQUIRED]
        if required:
            levels = " and ".join(sorted({each.topology_level for each in required}))
            others = [OtherTopology(TopologyMode.PREFERRED, at.topology_level, self._named(at)) for at in required]
            yield from self._supposing(step(StepKind.TOPOLOGY, level=levels), *others)

    def replicas(self) -> Iterator[Advice]:
        """The most pods, fewer than it must start with, that would."""
        sets = sorted(self.workload.pod_sets, key=lambda each: (-each.devices * each.least, each.name))
        for each in sets[:POD_SETS_MAX]:
            unit = max(1, each.slice_size)
            most = min(each.least - unit, self._fitting(each) // unit * unit)
            name = self._named(each)
            found = self._largest(range(unit, most + 1, unit), partial(_fewer, name))
            if found is not None:
                told = step(StepKind.REPLICAS, pod_set=each.name, replicas=found, instead=each.least)
                yield self._advice(told, OtherReplicas(found, name))

    def clusters(self) -> Iterator[Advice]:
        """Divided over one cluster more, or some more, where several share a network."""
        shared: dict[str, int] = {}
        for each in self.snapshot.clusters.values():
            if each.network_domain:
                shared[each.network_domain] = shared.get(each.network_domain, 0) + 1
        now, most = self.workload.clusters_max, max(shared.values(), default=0)
        is_divisible = len(self.workload.pod_sets) > 1 or any(each.slice_size for each in self.workload.pod_sets)
        for count in range(now + 1, min(most, now + CLUSTERS_TRIED_MAX) + 1) if is_divisible else ():
            made = list(self._supposing(step(StepKind.CLUSTERS, most=count, instead=now), OtherClustersMax(count)))
            if made:
                yield from made
                return

    def priorities(self) -> Iterator[Advice]:
        """The lowest priority at which it would start; asked for only where others came before it."""
        if not any(isinstance(each, Admit) for each in self.plan.decisions) and self.id in self._reached():
            return
        own, most = self.workload.priority, self.bounds.priority_max
        others = {each.priority for each in self.snapshot.waiting.values() if each.id != self.id}
        ahead = {level for other in others if other >= own for level in (other, other + 1) if own < level <= most}
        found = self._largest(sorted(ahead, reverse=True), lambda level: (OtherPriority(level),))
        if found is not None:
            yield self._advice(step(StepKind.PRIORITY, priority=found, instead=own), OtherPriority(found))

    def _reached(self) -> frozenset[WorkloadId]:
        """Those that had their turn: the work units did not end before."""
        return frozenset() if self.plan.work_units >= self.policy.work_units_max else frozenset({self.id})

    def _largest(self, rising: Sequence[int], otherwise: Callable[[int], Sequence[Supposition]]) -> int | None:
        """The last of these with which it starts, if it starts with all before; found by halving, and tried."""
        if not rising or not self._starts(otherwise(rising[0])):
            return None
        low, high = 0, len(rising)
        if self._starts(otherwise(rising[-1])):
            return rising[-1]
        high -= 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._starts(otherwise(rising[middle])) else (low, middle)
        return rising[low]

    def _fitting(self, pod_set: PodSet) -> int:
        """How many pods of it might have room, by the numbers of its Reasons; all of them where they say nothing."""
        told = [int(each.facts["fits"]) for each in self.reasons if "fits" in each.facts and "slices" not in each.facts]
        is_alone = len(self.workload.pod_sets) == 1 and len(told) == len(self.reasons)
        return max(told) if told and is_alone else pod_set.least

    def _goes_on(self, done: Sequence[Mend], more: Sequence[Mend]) -> bool:
        """Room is added in one cluster only, and limits only where the tree is small enough to be built anew."""
        clusters = {each.cluster for each in (*done, *more) if isinstance(each, Room)}
        is_raised = any(isinstance(each, Raise) for each in more)
        return len(clusters) < 2 and not (is_raised and len(self.snapshot.queues) > QUEUES_MAX)

    def _named(self, pod_set: PodSet) -> str:
        return pod_set.name if len(self.workload.pod_sets) > 1 else ""

    def _supposing(self, told: Step, *suppositions: Supposition) -> Iterator[Advice]:
        if self._starts(suppositions):
            yield self._advice(told, *suppositions)

    def _advice(self, told: Step, *suppositions: Supposition) -> Advice:
        return Advice((told,), tuple(text_of(each) for each in suppositions), is_resubmitted(suppositions))

    def _starts(self, suppositions: Sequence[Supposition]) -> bool:
        try:
            changed = supposing(self.snapshot, self.id, suppositions, self.now)
        except ImpossibleSupposition:
            return False
        return isinstance(self._try(changed, self.index, self.tree), Admit)

    def _try(self, changed: Snapshot, index: FleetIndex | None, tree: QuotaTree | None) -> Admit | Reasons:
        if self.trials >= self.bounds.trials_max or self.work >= self.bounds.work_units_max:
            raise _Spent
        plan = plan_until(changed, self.policy, self.now, self.id, index, tree)
        looks = max(plan.work_units, len(changed.waiting)) + (len(changed.nodes) if index is None else 0)
        self.trials, self.work = self.trials + 1, self.work + looks
        return outcome_in(plan, self.id)


def _fewer(pod_set: str, count: int) -> Sequence[Supposition]:
    return (OtherReplicas(count, pod_set),)
