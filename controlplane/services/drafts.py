"""Attempts as they would be written: pods by rank, charges, and for each cluster the body of its apply directive."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from controlplane.core.demand import PodNeeds
from controlplane.core.facts.attempts import PodPin, WorkloadOrder
from controlplane.core.facts.fleet import Document
from controlplane.core.facts.ledger import AttemptKey
from controlplane.core.facts.planning import AttemptDraft, FreshNode, FreshWorkload, PodDraft
from controlplane.core.ids import ClusterId, FlavorName, NodeId, WorkloadId
from controlplane.core.placement.clusters import namespace_of
from controlplane.core.plan import Admit, PodPlacement
from controlplane.core.recheck import FreshWorld
from controlplane.services import wire
from controlplane.services.cycles import Cycle
from controlplane.services.ports.unit_of_work import UnitOfWork

DEFAULT_NAMESPACE = "default"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Fresh:
    """What the commit has locked and read."""

    world: FreshWorld
    nodes: Mapping[NodeId, FreshNode]
    workloads: Mapping[WorkloadId, FreshWorkload]

    def without(self, spoilt: Mapping[WorkloadId, str]) -> FreshWorld:
        """The world for the recheck; what cannot be ordered counts as not waiting, so what stands on it falls, too."""
        if not spoilt:
            return self.world
        waiting = {one: attempt for one, attempt in self.world.waiting.items() if one not in spoilt}
        return replace(self.world, waiting=waiting)


def nodes_of(admits: Iterable[Admit]) -> set[NodeId]:
    """The nodes that they go to."""
    return {pod.node for admit in admits for placement in admit.placements for pod in placement.pods}


def drafts_of(
    uow: UnitOfWork, cycle: Cycle, fresh: Fresh
) -> tuple[Mapping[WorkloadId, AttemptDraft], Mapping[WorkloadId, str]]:
    """The Attempts as they would be written, and of which Workloads no order can be made, with what was raised.

    Made before the recheck, because what the ledger is to be charged rests on which decisions there are.
    """
    admits = [one for one in cycle.plan.decisions if isinstance(one, Admit) and one.workload in fresh.world.waiting]
    resources = uow.fleet.resources(nodes_of(admits))
    budgets = uow.fleet.budgets({placement.cluster for admit in admits for placement in admit.placements})
    drafts: dict[WorkloadId, AttemptDraft] = {}
    spoilt: dict[WorkloadId, str] = {}
    for admit in admits:
        if not fresh.nodes.keys() >= nodes_of([admit]):
            continue  # a node is gone: the recheck says so
        try:
            drafts[admit.workload] = _draft(cycle, admit, fresh, _Known(resources, budgets))
        except Exception as error:  # whatever one Workload's body does, the others of its Pool must start
            log.exception("no_order", workload=admit.workload, attempt=admit.attempt)
            spoilt[admit.workload] = type(error).__name__
    return drafts, spoilt


@dataclass(frozen=True, slots=True)
class _Known:
    """What an agent is told beside the Workload: the resource of each Flavor on each node, budgets of clusters."""

    resources: Mapping[tuple[NodeId, FlavorName], str]
    budgets: Mapping[ClusterId, Document]


def _draft(cycle: Cycle, admit: Admit, fresh: Fresh, known: _Known) -> AttemptDraft:
    planned = cycle.snapshot.waiting[admit.workload]
    needs = {pod_set.name: pod_set.needs for pod_set in planned.pod_sets}
    order = {pod_set.name: position for position, pod_set in enumerate(planned.pod_sets)}
    placed = sorted(
        ((placement.cluster, pod) for placement in admit.placements for pod in placement.pods),
        key=lambda at: (order[at[1].pod_set], at[1].index),
    )
    pods = tuple(_pod(cluster, rank, needs[pod.pod_set], pod) for rank, (cluster, pod) in enumerate(placed))
    stored = fresh.workloads[admit.workload]
    told = WorkloadOrder(
        key=AttemptKey(admit.workload, admit.attempt),
        name=stored.name,
        namespace=planned.namespace or namespace_of(cycle.snapshot.queues, admit.queue) or DEFAULT_NAMESPACE,
        world_size=len(pods),
        spec=stored.spec,
        manifest=stored.manifest,
        on_cluster_loss=stored.on_cluster_loss,
    )
    bodies = {
        placement.cluster: wire.apply_body(
            told, _pins(pods, placement.cluster, fresh, known.resources), known.budgets.get(placement.cluster)
        )
        for placement in admit.placements
    }
    if len(bodies) > 1:
        clusters = cycle.snapshot.clusters
        wire.tell_of_rank_zero(told.key, bodies, {at: clusters[at].member_address for at in bodies if at in clusters})
    return AttemptDraft(
        workload=admit.workload,
        attempt=admit.attempt,
        queue=admit.queue,
        charges=admit.charges,
        pods=pods,
        bodies=bodies,
    )


def _pod(cluster: ClusterId, rank: int, needs: PodNeeds, pod: PodPlacement) -> PodDraft:
    return PodDraft(
        cluster=cluster,
        pod_set=pod.pod_set,
        index=pod.index,
        rank=rank,
        node=pod.node,
        flavor=pod.flavor,
        amount=pod.amount,
        needs=needs,
    )


def _pins(
    pods: Iterable[PodDraft],
    cluster: ClusterId,
    fresh: Fresh,
    resources: Mapping[tuple[NodeId, FlavorName], str],
) -> list[PodPin]:
    return [
        PodPin(
            pod_set=pod.pod_set,
            index=pod.index,
            rank=pod.rank,
            node=fresh.nodes[pod.node].name,
            resource=resources.get((pod.node, pod.flavor), ""),
            amount=pod.amount,
        )
        for pod in pods
        if pod.cluster == cluster
    ]
