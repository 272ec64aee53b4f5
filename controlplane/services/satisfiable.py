"""What could never start; the rule itself is `core.entitlement`'s.

A refusal is always the truth of this transaction; that something might start may come from a memory seconds old.
"""

from collections.abc import Sequence

from controlplane.core import entitlement
from controlplane.core.demand import PodSet
from controlplane.core.ids import QueueId
from controlplane.core.reasons import Reason
from controlplane.services.ports.unit_of_work import UnitOfWork
from controlplane.services.recent import RecentWorld


def never_satisfiable(
    uow: UnitOfWork, recent: RecentWorld, queue: QueueId, pod_sets: Sequence[PodSet], clusters_max: int = 1
) -> Reason | None:
    """Why no cycle could ever admit these PodSets, or None if one might."""
    world = recent.get(uow)
    if queue in world.tree.queues:
        might = entitlement.never_satisfiable(world.tree, queue, pod_sets, world.totals, clusters_max) is None
        if might:
            return None
    world = recent.fresh(uow)
    return entitlement.never_satisfiable(world.tree, queue, pod_sets, world.totals, clusters_max)
