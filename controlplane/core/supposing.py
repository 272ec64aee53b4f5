"""What if it asked otherwise: one waiting Workload changed in thought, and what the next cycle would make of it.

A live Workload can be given another priority; everything else is asked for by submitting it again. So that is what is
supposed: a new Workload, the last of those that are alike, without the old one's earmark, back-off and old place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from controlplane.core.cycle import outcome
from controlplane.core.demand import PodSet, TopologyMode, Workload
from controlplane.core.ids import AttemptNumber, FlavorName, QueueId, WorkloadId
from controlplane.core.index import FleetIndex
from controlplane.core.plan import Admit
from controlplane.core.policy import Policy
from controlplane.core.quota import QuotaTree
from controlplane.core.refusals import Reasons
from controlplane.core.snapshot import Snapshot


class ImpossibleSupposition(ValueError):
    """No Workload could be submitted like that; the words say why."""


@dataclass(frozen=True, slots=True)
class OtherPriority:
    """It is worth more, or less; the only thing that leaves it the Workload that it is."""

    priority: int


@dataclass(frozen=True, slots=True)
class OtherQueue:
    """It waits elsewhere. `path` is for words only."""

    queue: QueueId
    path: str


@dataclass(frozen=True, slots=True)
class OtherFlavors:
    """These Flavors in this order; `pod_set` "" is every one that asks for devices."""

    flavors: tuple[FlavorName, ...]
    pod_set: str = ""


@dataclass(frozen=True, slots=True)
class OtherReplicas:
    """So many pods; `pod_set` "" is the only one there is. What is elastic starts with no more than that."""

    replicas: int
    pod_set: str = ""


@dataclass(frozen=True, slots=True)
class OtherTopology:
    """How strongly its pods want to sit together, and at which level; slices stay. `pod_set` "" is every one."""

    mode: TopologyMode
    level: str = ""
    pod_set: str = ""


@dataclass(frozen=True, slots=True)
class OtherClustersMax:
    """Over how many clusters it may be divided."""

    most: int


Supposition = OtherPriority | OtherQueue | OtherFlavors | OtherReplicas | OtherTopology | OtherClustersMax


def text_of(each: Supposition) -> str:
    """As people write it: "flavor=nvidia-a100-80gb", "replicas=trainer/4"."""
    match each:
        case OtherPriority(priority):
            return f"priority={priority}"
        case OtherQueue(_, path):
            return f"queue={path}"
        case OtherFlavors(flavors, pod_set):
            return f"flavor={_prefix(pod_set)}{','.join(flavors)}"
        case OtherReplicas(replicas, pod_set):
            return f"replicas={_prefix(pod_set)}{replicas}"
        case OtherTopology(mode, level, pod_set):
            return f"topology={_prefix(pod_set)}{mode.value}{':' if level else ''}{level}"
        case OtherClustersMax(most):
            return f"clusters.max={most}"


def supposed(workload: Workload, suppositions: Sequence[Supposition], now: datetime) -> Workload:
    """The Workload as it would be; raises ImpossibleSupposition."""
    changed = workload
    for each in suppositions:
        changed = _with(changed, each)
    if not is_resubmitted(suppositions):
        return changed
    return replace(
        changed,
        submitted_at=now,
        next_attempt=AttemptNumber(1),
        not_before=None,
        is_repair=False,
        preferred_nodes=(),
        disturbances=0,
    )


def is_resubmitted(suppositions: Sequence[Supposition]) -> bool:
    """Whether it takes a new Workload: everything but another priority does."""
    return any(not isinstance(each, OtherPriority) for each in suppositions)


def what_if(
    snapshot: Snapshot,
    policy: Policy,
    now: datetime,
    workload: WorkloadId,
    suppositions: Sequence[Supposition],
    index: FleetIndex | None = None,
    tree: QuotaTree | None = None,
) -> Admit | Reasons:
    """Its start in the next cycle, or every Reason that remains; raises ImpossibleSupposition.

    `index` and `tree`, if given, are warm ones of this Snapshot, and come back as they were.
    """
    changed = supposing(snapshot, workload, suppositions, now)
    return outcome(changed, policy, now, workload, index, tree)


def supposing(snapshot: Snapshot, workload: WorkloadId, suppositions: Sequence[Supposition], now: datetime) -> Snapshot:
    """The same world with this one otherwise."""
    other = supposed(snapshot.waiting[workload], suppositions, now)
    changed = replace(snapshot, waiting={**snapshot.waiting, workload: other})
    if not is_resubmitted(suppositions):
        return changed
    earmarks = {asker: kept for asker, kept in snapshot.earmarks.items() if asker != workload}
    left_over = tuple(each for each in snapshot.left_over if each != workload)
    return replace(changed, earmarks=earmarks, left_over=left_over)


def _with(workload: Workload, each: Supposition) -> Workload:
    match each:
        case OtherPriority(priority):
            return replace(workload, priority=priority)
        case OtherQueue(queue, _):
            return replace(workload, queue=queue, namespace="")  # the Queue's own is asked for
        case OtherClustersMax(most):
            return replace(workload, clusters_max=most)
        case OtherFlavors(flavors, pod_set):
            names = _named(workload, pod_set, [at.name for at in workload.pod_sets if at.devices])
            return _changed(workload, names, lambda at: _flavored(at, flavors))
        case OtherReplicas(replicas, pod_set):
            names = _named(workload, pod_set, [at.name for at in workload.pod_sets])
            if len(names) > 1:
                raise ImpossibleSupposition(f"it has several PodSets; say which: replicas={names[0]}/{replicas}")
            return _changed(workload, names, lambda at: _sized(at, replicas))
        case OtherTopology(mode, level, pod_set):
            free = [at.name for at in workload.pod_sets if not at.with_pod_set]
            names = _named(workload, pod_set, free)
            beside = next((at for at in workload.pod_sets if at.name in names and at.with_pod_set), None)
            if beside is not None:
                words = f"{beside.name} sits with {beside.with_pod_set}, at the level of that one"
                raise ImpossibleSupposition(words)
            return _changed(workload, names, lambda at: replace(at, topology_mode=mode, topology_level=level))


def _named(workload: Workload, pod_set: str, every: list[str]) -> list[str]:
    if not pod_set:
        if not every:
            raise ImpossibleSupposition("none of its PodSets asks for that")
        return every
    known = [at.name for at in workload.pod_sets]
    if pod_set not in known:
        raise ImpossibleSupposition(f"it has no PodSet {pod_set}; there are {', '.join(known)}")
    return [pod_set]


def _changed(workload: Workload, names: list[str], change: Callable[[PodSet], PodSet]) -> Workload:
    sets = tuple(change(at) if at.name in names else at for at in workload.pod_sets)
    return replace(workload, pod_sets=sets)


def _flavored(pod_set: PodSet, flavors: tuple[FlavorName, ...]) -> PodSet:
    if not pod_set.devices:
        raise ImpossibleSupposition(f"{pod_set.name} asks for no devices")
    vendors = {flavor.partition("-")[0] for flavor in (*pod_set.flavors, *flavors)}
    if len(vendors) > 1:  # an image runs on one vendor's devices
        raise ImpossibleSupposition(
            f"{pod_set.name} asks for devices of one vendor, not of {' and '.join(sorted(vendors))}"
        )
    return replace(pod_set, flavors=flavors, speeds=())


def _sized(pod_set: PodSet, replicas: int) -> PodSet:
    if pod_set.slice_size and replicas % pod_set.slice_size:
        words = f"{pod_set.name} comes in slices of {pod_set.slice_size} pods, and {replicas} is no multiple of that"
        raise ImpossibleSupposition(words)
    least = None if pod_set.min_replicas is None else min(pod_set.min_replicas, replicas)
    return replace(pod_set, replicas=replicas, min_replicas=least)


def _prefix(pod_set: str) -> str:
    return f"{pod_set}/" if pod_set else ""
