"""What one Workload asks of quota: how much, whether its Queue may use it now, and why not.

`quota` holds the arithmetic; this joins it with PodSets that may choose among Flavors.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from controlplane.core.demand import PodSet, Workload
from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.quota import QuotaTree
from controlplane.core.reasons import Fact, Reason, ReasonCode, reason
from controlplane.core.resources import add, times

Kept = Mapping[tuple[QueueId, FlavorName], int]
_NOTHING: Kept = MappingProxyType({})


def first_choice(workload: Workload) -> tuple[tuple[FlavorName, int], ...]:
    """Units by Flavor if every PodSet gets its first choice, sorted; what the order of turns is judged by."""
    return _amounts(workload, only_sole=False)


def certain(workload: Workload) -> tuple[tuple[FlavorName, int], ...]:
    """Units by Flavor that it needs whatever its other PodSets choose, sorted."""
    return _amounts(workload, only_sole=True)


def room_for(tree: QuotaTree, workload: Workload) -> dict[FlavorName, int]:
    """Units that its Queue may use now, of each Flavor that it names."""
    flavors = dict.fromkeys(flavor for pod_set in workload.pod_sets for flavor in pod_set.flavors)
    return {flavor: tree.available(workload.queue, flavor) for flavor in flavors}


def exceeds_quota(
    tree: QuotaTree, workload: Workload, room: Mapping[FlavorName, int], kept: Kept = _NOTHING
) -> Reason | None:
    """Why quota has no room for it now; None if some choice of Flavors could be charged.

    `kept` is what Earmarks of others make up of the tree's usage: it is told apart from what is in use.
    """
    for flavor, wanted in certain(workload):
        if room[flavor] < wanted:
            return quota_reason(tree, workload.queue, flavor, (room[flavor], wanted), kept)
    for pod_set in workload.pod_sets:
        wanted = times(pod_set.devices, pod_set.least)
        if wanted and pod_set.flavors and all(room[flavor] < wanted for flavor in pod_set.flavors):
            flavor = max(pod_set.flavors, key=lambda name: (room[name], name))
            return quota_reason(tree, workload.queue, flavor, (room[flavor], wanted), kept)
    return None


def quota_reason(
    tree: QuotaTree, queue: QueueId, flavor: FlavorName, available_and_wanted: tuple[int, int], kept: Kept = _NOTHING
) -> Reason:
    """Name the account that stops the request, with its numbers."""
    available, wanted = available_and_wanted
    potential = tree.potential(queue, flavor)
    path = tree.queues[queue].path
    if wanted > potential and not tree.misses(flavor):
        return reason(ReasonCode.QUOTA_BEYOND_POTENTIAL, queue=path, potential=potential, flavor=flavor, wanted=wanted)
    limit = tree.limit(queue, flavor)
    for_others = min(limit.used, kept.get((limit.queue, flavor), 0))
    facts: dict[str, Fact] = {
        "queue": path,
        "available": max(0, available),
        "flavor": flavor,
        "wanted": wanted,
        "used": limit.used - for_others,
        "limit": limit.limit,
        "at": tree.queues[limit.queue].path,
    }
    if for_others:
        return reason(ReasonCode.QUOTA_KEPT, kept=for_others, **facts)
    return reason(ReasonCode.QUOTA_EXCEEDED, **facts)


def never_satisfiable(
    tree: QuotaTree,
    queue: QueueId,
    pod_sets: Sequence[PodSet],
    totals: Mapping[str, Mapping[str, int]],
    clusters_max: int = 1,
) -> Reason | None:
    """Why no cycle could ever admit these PodSets, so that they are refused at submit; None if one might.

    The least of an elastic PodSet counts, and for what may be divided over clusters the largest of them together.

    `totals` is what each enrolled cluster owns, also an unreachable one: by Flavor, then by cluster. Hardware that is
    away or not there yet makes a Workload wait: a Flavor that nobody carries refuses nothing by its total, nor by a
    potential that is derived from what clusters own.
    """
    for flavors, wanted in _wishes(pod_sets):
        refusals = [_refusal(tree, queue, flavor, wanted, totals.get(flavor, {}), clusters_max) for flavor in flavors]
        if refusals and all(refusals):
            return refusals[0]
    return None


def _wishes(pod_sets: Sequence[PodSet]) -> list[tuple[tuple[FlavorName, ...], int]]:
    """Each PodSet by itself, and those together that have no choice of Flavor."""
    wishes = [(each.flavors, times(each.devices, each.least)) for each in pod_sets if each.devices]
    together: dict[tuple[FlavorName, ...], int] = {}
    for flavors, wanted in wishes:
        if len(flavors) == 1:
            together[flavors] = add(together.get(flavors, 0), wanted)
    return [*wishes, *together.items()]


def _refusal(
    tree: QuotaTree, queue: QueueId, flavor: FlavorName, wanted: int, carried: Mapping[str, int], clusters_max: int
) -> Reason | None:
    is_known = bool(carried) or not _is_derived(tree, queue, flavor)
    if is_known and wanted > tree.potential(queue, flavor):
        return quota_reason(tree, queue, flavor, (0, wanted))
    largest = sum(sorted(carried.values())[-clusters_max:])
    if carried and wanted > largest:
        return reason(ReasonCode.NEVER_SATISFIABLE, total=largest, flavor=flavor, wanted=wanted)
    return None


def _is_derived(tree: QuotaTree, queue: QueueId, flavor: FlavorName) -> bool:
    root = tree.queues[tree.path(queue)[-1]]
    return any(quota.flavor == flavor and quota.nominal is None for quota in root.quotas)


def _amounts(workload: Workload, *, only_sole: bool) -> tuple[tuple[FlavorName, int], ...]:
    amounts: dict[FlavorName, int] = {}
    for pod_set in workload.pod_sets:
        if pod_set.devices and pod_set.flavors and not (only_sole and len(pod_set.flavors) > 1):
            flavor = pod_set.flavors[0]
            amounts[flavor] = add(amounts.get(flavor, 0), times(pod_set.devices, pod_set.least))
    return tuple(sorted(amounts.items()))
