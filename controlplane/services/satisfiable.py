"""What could never start: more than the Queue's potential, or than any enrolled cluster owns in all.

Unreachable clusters count with what they own, and a Flavor that no cluster carries yet refuses nothing: hardware
that is away, or not there yet, makes a Workload wait, it does not make it impossible.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from controlplane.core.demand import PodSet
from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.quota import QuotaTree
from controlplane.core.reasons import Reason, ReasonCode, reason
from controlplane.services.ports.unit_of_work import UnitOfWork

Totals = Mapping[str, Mapping[str, int]]


def never_satisfiable(uow: UnitOfWork, queue: QueueId, pod_sets: Sequence[PodSet]) -> Reason | None:
    """Why no cycle could ever admit these PodSets, or None if one might."""
    totals = uow.workloads.owned_totals()
    tree = QuotaTree(uow.tenancy.tree(), owned=uow.ledger.owned())
    for flavors, wanted in _wishes(pod_sets):
        refusals = [_refusal(tree, totals, queue, flavor, wanted) for flavor in flavors]
        if refusals and all(refusals):
            return refusals[0]
    return None


def _wishes(pod_sets: Sequence[PodSet]) -> list[tuple[tuple[FlavorName, ...], int]]:
    """Each PodSet by itself, and those together that have no choice of Flavor."""
    wishes = [(each.flavors, each.replicas * each.devices) for each in pod_sets if each.devices]
    fixed: dict[tuple[FlavorName, ...], int] = defaultdict(int)
    for flavors, wanted in wishes:
        if len(flavors) == 1:
            fixed[flavors] += wanted
    return [*wishes, *fixed.items()]


def _refusal(tree: QuotaTree, totals: Totals, queue: QueueId, flavor: FlavorName, wanted: int) -> Reason | None:
    carried = totals.get(flavor, {})
    potential = tree.potential(queue, flavor)
    if wanted > potential and (carried or not _counts_what_is_owned(tree, queue, flavor)):
        path = tree.queues[queue].path
        return reason(ReasonCode.QUOTA_BEYOND_POTENTIAL, queue=path, potential=potential, flavor=flavor, wanted=wanted)
    largest = max(carried.values(), default=0)
    if carried and wanted > largest:
        return reason(ReasonCode.NEVER_SATISFIABLE, total=largest, flavor=flavor, wanted=wanted)
    return None


def _counts_what_is_owned(tree: QuotaTree, queue: QueueId, flavor: FlavorName) -> bool:
    root = tree.queues[tree.path(queue)[-1]]
    return any(quota.flavor == flavor and quota.nominal is None for quota in root.quotas)
