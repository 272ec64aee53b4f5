"""Documents as the values that a planner plans on. Pure: what a database would have made of them, without one.

What is planned before it is stored (described worlds, dry runs) comes through here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.contract.rest.tenancy import PolicySpec, QueueSpec
from controlplane.contract.rest.workloads import Requires, WorkloadDocument
from controlplane.core.demand import PodSet, StrategyName, Workload
from controlplane.core.ids import AttemptNumber, FlavorName, QueueId, WorkloadId
from controlplane.core.policy import Policy, policy_from
from controlplane.core.tenancy import Budget, Period, Queue, Quota
from controlplane.services.pod_sets import shape_of


@dataclass(frozen=True, slots=True)
class Asked:
    """What is true of a submitted Workload beside its document."""

    id: WorkloadId
    queue: QueueId
    owner: str
    submitted_at: datetime
    not_before: datetime | None = None
    attempts: int = 0


def queue_of(number: QueueId, parent: QueueId | None, path: str, spec: QueueSpec, namespace: str = "") -> Queue:
    """A Queue's value; `namespace` is what it inherits. Below a root no nominal is 0."""
    return Queue(
        id=number,
        path=path,
        parent=parent,
        weight=spec.weight,
        quotas=tuple(
            Quota(
                FlavorName(each.flavor),
                0 if each.nominal is None and parent is not None else each.nominal,
                each.borrow,
                each.lend,
            )
            for each in sorted(spec.quotas, key=lambda quota: quota.flavor)
        ),
        namespace=spec.namespace or namespace,
        budgets=budgets_of(spec),
        most_running=spec.most_running,
    )


def budgets_of(spec: QueueSpec) -> tuple[Budget, ...]:
    """A Queue's budgets, in the order of its document."""
    return tuple(Budget(each.flavor, each.device_hours, Period(each.per), each.hard) for each in spec.budgets)


def policy_of(version: int, spec: PolicySpec) -> Policy:
    """A Pool's knobs; what the document does not name keeps its default."""
    return policy_from(version, spec.model_dump(mode="json", exclude_none=True))


def workload_of(document: WorkloadDocument, pod_sets: Sequence[PodSet], asked: Asked) -> Workload:
    """A waiting Workload's value; `pod_sets` as `pod_sets.pod_sets_of` read them."""
    spec = document.spec
    return Workload(
        id=asked.id,
        name=document.metadata.name,
        queue=asked.queue,
        owner=asked.owner,
        priority=spec.priority_value(),
        submitted_at=asked.submitted_at,
        next_attempt=AttemptNumber(asked.attempts + 1),
        pod_sets=tuple(pod_sets),
        strategy=StrategyName(spec.strategy),
        clusters_avoided=frozenset(spec.clusters.avoid),
        cluster_selector=tuple(sorted(spec.clusters.selector.items())),
        shape=shape_of(document),
        not_before=asked.not_before,
        clusters_max=spec.clusters.max,
        requires=requires_of(spec.requires),
    )


def requires_of(requires: Requires | None) -> tuple[str, ...]:
    """The facts that its clusters must have, in the words of `core.capacity.Cluster.facts`."""
    if requires is None:
        return ()
    return (*(f"storage/{each}" for each in requires.storage), *(f"data/{each}" for each in requires.data))
