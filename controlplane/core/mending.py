"""What is missing in the world around a waiting Workload, read from its Reasons, and the world in which it is there.

Limits are raised, nodes are added; nothing is taken from anybody. Whether that starts it is `advising`'s to try.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controlplane.core.advice import Step, StepKind, step
from controlplane.core.capacity import Node
from controlplane.core.demand import PodSet, Workload
from controlplane.core.ids import ClusterId, FlavorName, NodeId, QueueId
from controlplane.core.nodes import is_eligible
from controlplane.core.reasons import Reason, ReasonCode
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Queue, Quota

FIRST, LAST = "0-new", "~new"  # in the order of the fabric
_QUOTA = frozenset({ReasonCode.QUOTA_EXCEEDED, ReasonCode.QUOTA_KEPT})
_ROOM = frozenset(
    {
        ReasonCode.NOT_ENOUGH_FREE,
        ReasonCode.ELIGIBLE_NODES_FULL,
        ReasonCode.NODES_NOT_ELIGIBLE,
        ReasonCode.CAPACITY_CORDONED,
        ReasonCode.CLUSTER_TOO_SMALL,
    }
)
_LEVEL = frozenset({ReasonCode.TOPOLOGY_TOO_FRAGMENTED, ReasonCode.TOPOLOGY_TOO_SMALL})


@dataclass(frozen=True, slots=True)
class Raise:
    """A Queue's limit that lets `more` through: units of a Flavor, device-hours, or Workloads."""

    queue: QueueId
    kind: StepKind
    more: int
    flavor: FlavorName | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """More free units in a cluster: for `pods` more of a PodSet, in each of `domains` new domains of a level, or in the
    one that `path` names.
    """

    cluster: ClusterId
    flavor: FlavorName
    pod_set: PodSet
    pods: int
    level: str = ""
    path: tuple[str, ...] = ()
    domains: int = 1


Mend = Raise | Room


def missing(snapshot: Snapshot, workload: Workload, reasons: Sequence[Reason], growth: int = 1) -> list[Mend]:
    """What the first of these Reasons says is missing, and where that is quota also what the nearest cluster lacks.

    `growth` times as much room as that: others may come first and take it.
    """
    found: list[Mend] = []
    to_own = 0
    for why in reasons:
        mend: Mend | None = _raised(snapshot, workload, why) if not found else None
        mend = mend or _more_room(snapshot, workload, why)
        if mend is not None:
            found.append(mend)
        elif why.code in _QUOTA:
            to_own = _short(why)  # a root that counts what clusters own: more of that is what it lacks
        elif "cluster" not in why.facts or why.code is ReasonCode.WAITS_FOR_RECLAIM:
            break  # what stands before all else cannot be mended here; of clusters another may do
        if isinstance(mend, Room):
            pods = -(-to_own // (mend.pod_set.devices * mend.domains))
            found[-1] = replace(mend, pods=max(mend.pods, pods) * growth)
            break
    return found


def mended(snapshot: Snapshot, mends: Sequence[Mend], *, name: str = FIRST) -> Snapshot:
    """The world with all of it; new nodes and domains are called so, which says where in the fabric they stand."""
    queues, nodes = dict(snapshot.queues), dict(snapshot.nodes)
    for mend in mends:
        if isinstance(mend, Raise):
            queues[mend.queue] = _lifted(queues[mend.queue], mend)
        else:
            for node in _new_nodes(snapshot, mend, max(nodes, default=0), name):
                nodes[node.id] = node
    return replace(snapshot, queues=queues, nodes=nodes)


def together(mends: Sequence[Mend]) -> list[Mend]:
    """Those of one limit, or of one place, added up."""
    found: dict[object, Mend] = {}
    for mend in mends:
        key = replace(mend, more=0) if isinstance(mend, Raise) else replace(mend, pods=0)
        before = found.get(key)
        if isinstance(mend, Raise) and isinstance(before, Raise):
            found[key] = replace(mend, more=mend.more + before.more)
        elif isinstance(mend, Room) and isinstance(before, Room):
            found[key] = replace(mend, pods=mend.pods + before.pods)
        else:
            found[key] = mend
    return list(found.values())


def step_of(snapshot: Snapshot, mend: Mend) -> Step:
    """The same as advice."""
    if isinstance(mend, Raise):
        return _raise_step(snapshot.queues[mend.queue], mend)
    nodes, units = _shape(snapshot, mend)
    path = "/".join(mend.path)
    place = "anywhere in" if not mend.level else f"in one {mend.level} ({path}) of" if path else _new(mend)
    return step(
        StepKind.CAPACITY,
        units=nodes * units * mend.domains,
        flavor=mend.flavor,
        cluster=snapshot.clusters[mend.cluster].name,
        level=mend.level,
        path=path,
        domains=mend.domains,
        place=place,
        pod_set=mend.pod_set.name,
        like=_like(snapshot, mend).name,
        nodes=nodes,
        on_a_node=units,
    )


def _new(mend: Room) -> str:
    return f"in a new {mend.level} of" if mend.domains == 1 else f"over {mend.domains} new domains ({mend.level}) of"


def _raised(snapshot: Snapshot, workload: Workload, why: Reason) -> Raise | None:
    if why.code is ReasonCode.MOST_RUNNING:
        queue = _queue(snapshot, str(why.facts["queue"]))
        return Raise(queue.id, StepKind.MOST_RUNNING, int(why.facts["running"]) + 1 - int(why.facts["limit"]))
    if why.code is ReasonCode.BUDGET_SPENT:
        queue = _queue(snapshot, str(why.facts["queue"]))
        flavor = FlavorName("*" if why.facts["flavor"] == "all flavors" else str(why.facts["flavor"]))
        return Raise(queue.id, StepKind.BUDGET, int(why.facts["used"]) + 1 - int(why.facts["limit"]), flavor)
    if why.code is ReasonCode.QUOTA_BEYOND_POTENTIAL:
        return _beyond(snapshot, workload, why)
    if why.code not in _QUOTA:
        return None
    queue, flavor = _queue(snapshot, str(why.facts["at"])), FlavorName(str(why.facts["flavor"]))
    more = _short(why)
    if queue.parent is not None:
        return Raise(queue.id, StepKind.BORROW, more, flavor)
    quota = next((each for each in queue.quotas if each.flavor == flavor), Quota(flavor, 0))
    return None if quota.nominal is None else Raise(queue.id, StepKind.NOMINAL, more, flavor)


def _short(why: Reason) -> int:
    """Units that a limit lacks, with what is in use beyond it already."""
    used = int(why.facts["used"]) + int(why.facts.get("kept", 0))
    beyond = max(0, used - int(why.facts["limit"]))
    return beyond + int(why.facts["wanted"]) - int(why.facts["available"])


def _beyond(snapshot: Snapshot, workload: Workload, why: Reason) -> Raise | None:
    """A Queue that could never use so much: its own nominal is what can be given to it alone."""
    flavor = FlavorName(str(why.facts["flavor"]))
    queue = snapshot.queues[workload.queue]
    quota = next((each for each in queue.quotas if each.flavor == flavor), Quota(flavor, 0))
    if quota.nominal is None:
        return None
    return Raise(queue.id, StepKind.NOMINAL, int(why.facts["wanted"]) - int(why.facts["potential"]), flavor)


def _queue(snapshot: Snapshot, path: str) -> Queue:
    return next(each for each in snapshot.queues.values() if each.path == path)


def _lifted(queue: Queue, mend: Raise) -> Queue:
    if mend.flavor is None:
        return replace(queue, most_running=(queue.most_running or 0) + mend.more)
    if mend.kind is StepKind.BUDGET:
        budgets = tuple(
            replace(each, device_hours=each.device_hours + mend.more)
            if each.flavor == mend.flavor and each.is_hard
            else each
            for each in queue.budgets
        )
        return replace(queue, budgets=budgets)
    quotas = {each.flavor: each for each in queue.quotas}
    quota = quotas.get(mend.flavor, Quota(mend.flavor, 0))
    if mend.kind is StepKind.BORROW:
        quota = replace(quota, borrow=(quota.borrow or 0) + mend.more)
    else:
        quota = replace(quota, nominal=(quota.nominal or 0) + mend.more)
    quotas[mend.flavor] = quota
    return replace(queue, quotas=tuple(quotas[flavor] for flavor in sorted(quotas)))


def _raise_step(queue: Queue, mend: Raise) -> Step:
    if mend.flavor is None:
        most = queue.most_running or 0
        return step(mend.kind, queue=queue.path, most=most + mend.more, instead=most)
    quota = next((each for each in queue.quotas if each.flavor == mend.flavor), Quota(mend.flavor, 0))
    match mend.kind:
        case StepKind.BUDGET:
            budget = next(each for each in queue.budgets if each.flavor == mend.flavor and each.is_hard)
            return step(
                mend.kind, queue=queue.path, flavor=mend.flavor, period=budget.per.value,
                hours=budget.device_hours + mend.more, instead=budget.device_hours,
            )  # fmt: skip
        case StepKind.BORROW:
            now = quota.borrow or 0
            return step(mend.kind, queue=queue.path, flavor=mend.flavor, borrow=now + mend.more, instead=now)
        case _:
            now = quota.nominal or 0
            return step(mend.kind, queue=queue.path, flavor=mend.flavor, nominal=now + mend.more, instead=now)


def _more_room(snapshot: Snapshot, workload: Workload, why: Reason) -> Room | None:
    """What one cluster lacks, if nodes of a kind that it has would do."""
    if why.code not in _ROOM | _LEVEL | {ReasonCode.SLICES_TOO_FRAGMENTED}:
        return None
    facts, flavor = why.facts, FlavorName(str(why.facts["flavor"]))
    cluster = next(each.id for each in snapshot.clusters.values() if each.name == facts["cluster"])
    pod_set = _pod_set(workload, facts, flavor)
    if pod_set is None or _sample(snapshot, cluster, flavor, pod_set) is None:
        return None
    if why.code is ReasonCode.CLUSTER_TOO_SMALL:
        short = int(facts["wanted"]) - int(facts["total"])
        return Room(cluster, flavor, pod_set, -(-short // pod_set.devices))
    if why.code is ReasonCode.SLICES_TOO_FRAGMENTED:
        slices = int(facts["slices"]) - int(facts["fits"])
        return Room(cluster, flavor, pod_set, pod_set.slice_size, pod_set.slice_level, (), slices)
    pods = int(facts["pods"]) - int(facts["fits"])
    if why.code in _ROOM:
        return Room(cluster, flavor, pod_set, pods)
    path = _path_of(snapshot, cluster, pod_set.topology_level, str(facts.get("domain", "")))
    return Room(cluster, flavor, pod_set, pods if path else pod_set.least, pod_set.topology_level, path)


def _pod_set(workload: Workload, facts: Mapping[str, int | str], flavor: FlavorName) -> PodSet | None:
    """The one that a Reason speaks of."""
    asking = [each for each in workload.pod_sets if each.devices and flavor in each.flavors]
    alike = [each for each in asking if each.devices == facts.get("devices") and each.least == facts.get("pods")]
    return next(iter(alike or asking), None)


def _path_of(snapshot: Snapshot, cluster: ClusterId, level: str, label: str) -> tuple[str, ...]:
    """The labels of a domain from the coarsest level on; () where there is none of that name, or it is a node's own."""
    levels = snapshot.clusters[cluster].levels
    if not label or level not in levels[:-1]:
        return ()
    at = levels.index(level)
    paths = {node.domains[: at + 1] for node in snapshot.nodes.values() if node.cluster == cluster}
    found = sorted(path for path in paths if len(path) > at and path[at] == label and all(path))
    return found[0] if found else ()


def _sample(snapshot: Snapshot, cluster: ClusterId, flavor: FlavorName, pod_set: PodSet) -> Node | None:
    """A node as new ones would be: with that Flavor, and allowed by the PodSet's rules."""
    nodes = (each for each in snapshot.nodes.values() if each.cluster == cluster and each.owned.get(flavor, 0))
    fit = (each for each in nodes if is_eligible(each, pod_set.rules, asks_devices=True))
    return min(fit, key=lambda each: each.id, default=None)


def _like(snapshot: Snapshot, mend: Room) -> Node:
    found = _sample(snapshot, mend.cluster, mend.flavor, mend.pod_set)
    assert found is not None, "looked for when it was found to be missing"
    return found


def _shape(snapshot: Snapshot, mend: Room) -> tuple[int, int]:
    """How many nodes in a domain, and how many units on each: a pod each, all of them where they share a host."""
    levels = snapshot.clusters[mend.cluster].levels or ("host",)
    is_host = mend.level == levels[-1]
    devices = mend.pod_set.devices
    return (1, mend.pods * devices) if is_host else (mend.pods, devices)


def _new_nodes(snapshot: Snapshot, mend: Room, last: int, called: str) -> list[Node]:
    sample = _like(snapshot, mend)
    nodes, units = _shape(snapshot, mend)
    levels = snapshot.clusters[mend.cluster].levels or ("host",)
    needs, pods = mend.pod_set.needs, units // mend.pod_set.devices
    made = []
    for number in range(nodes * mend.domains):
        name = f"{called}-{last + number + 1}"
        path = mend.path
        if not path and mend.level in levels[:-1]:
            at = levels.index(mend.level)
            path = (*(f"{called}-{last}" for _ in range(at)), f"{called}-{last}-{number // nodes}")
        domains = (*path, *("" for _ in levels[len(path) : -1]), name)
        made.append(
            replace(
                sample,
                id=NodeId(last + number + 1),
                name=name,
                domains=domains,
                is_schedulable=True,
                owned={mend.flavor: units},
                usable={mend.flavor: units},
                held={},
                cpu_milli=max(sample.cpu_milli, needs.cpu_milli * pods),
                memory_bytes=max(sample.memory_bytes, needs.memory_bytes * pods),
                rdma=max(sample.rdma, needs.rdma * pods),
                hugepages_bytes=max(sample.hugepages_bytes, needs.hugepages_bytes * pods),
                local_storage_bytes=max(sample.local_storage_bytes, needs.local_storage_bytes * pods),
                pods=max(sample.pods, pods),
                cordon="",
                is_cordoned=False,
                withheld={},
                cpu_milli_held=0,
                memory_bytes_held=0,
                pods_held=0,
                rdma_held=0,
                hugepages_bytes_held=0,
                local_storage_bytes_held=0,
            )
        )
    return made
