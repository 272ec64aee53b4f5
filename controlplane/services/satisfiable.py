"""What could never start, asked of the truth as it is now; the rule itself is `core.entitlement`'s."""

from collections.abc import Sequence

from controlplane.core import entitlement
from controlplane.core.demand import PodSet
from controlplane.core.ids import QueueId
from controlplane.core.quota import QuotaTree
from controlplane.core.reasons import Reason
from controlplane.services.ports.unit_of_work import UnitOfWork


def never_satisfiable(uow: UnitOfWork, queue: QueueId, pod_sets: Sequence[PodSet]) -> Reason | None:
    """Why no cycle could ever admit these PodSets, or None if one might."""
    tree = QuotaTree(uow.tenancy.tree(), owned=uow.ledger.owned())
    return entitlement.never_satisfiable(tree, queue, pod_sets, uow.workloads.owned_totals())
