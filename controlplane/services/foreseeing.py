"""Who would start, wait or have to leave, were these documents applied now: two plans of each Pool, one without them.

Planned on the live Snapshot in which Queues, Policy, Clusters' labels and new Workloads are replaced by what they would
be. Nothing is written. Names of work that the caller does not see are left out, as from every Reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from controlplane.contract.rest.fleet import ClusterDocument
from controlplane.contract.rest.planning import Fate, FateCounts, ForeseenPlan, ForeseenWork
from controlplane.contract.rest.tenancy import PolicyDocument, QueueSpec
from controlplane.core.capacity import Cluster
from controlplane.core.cycle import plan_cycle
from controlplane.core.demand import RunningAttempt, Workload
from controlplane.core.facts.tenancy import PoolFact, Principal
from controlplane.core.ids import ClusterId, QueueId, WorkloadId
from controlplane.core.plan import Admit, Plan, Reclaim
from controlplane.core.policy import Policy
from controlplane.core.reasons import Reason, told_within
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Budget, Queue, Spent
from controlplane.services import authz
from controlplane.services.applying import WouldBe
from controlplane.services.core_values import Asked, budgets_of, policy_of, queue_of, workload_of
from controlplane.services.forms import Form
from controlplane.services.live_worlds import LiveWorlds
from controlplane.services.plan_told import reason_view
from controlplane.services.ports.unit_of_work import UnitOfWorkFactory

LISTED_MAX = 1_000
OTHER_WORK, OTHER_QUEUE = "other work", "another queue"


def foresee(
    factory: UnitOfWorkFactory, worlds: LiveWorlds, principal: Principal, would_be: WouldBe
) -> list[ForeseenPlan]:
    """One plan for each Pool that these documents could change; Pools of which nothing is stored yet have none."""
    with factory() as uow:
        pools = [pool for pool in uow.tenancy.pools() if _touches(would_be, pool)]
        spent = uow.ledger.spent(_budgets(would_be))
    return [_foreseen(worlds, pool, principal, would_be, spent) for pool in sorted(pools, key=lambda pool: pool.name)]


def _touches(would_be: WouldBe, pool: PoolFact) -> bool:
    if would_be.queues or any(each.kind == "Cluster" for each in would_be.edits):
        return True
    named = {each.name for each in would_be.edits if each.kind == "Policy"}
    return pool.name in named or any(new.pool == pool.id for _, new in would_be.work)


def _budgets(would_be: WouldBe) -> list[tuple[QueueId, tuple[Budget, ...]]]:
    """Of stored Queues that change: a budget that is new to them counts what was used of it before, too."""
    return [
        (QueueId(edit.before.id), budgets_of(_spec(edit.after)))
        for edit in would_be.edits
        if edit.kind == "Queue" and edit.after is not None and edit.before is not None and edit.before.id is not None
    ]


def _foreseen(
    worlds: LiveWorlds, pool: PoolFact, principal: Principal, would_be: WouldBe, spent: Sequence[Spent]
) -> ForeseenPlan:
    with worlds.of(pool.id) as live:
        before = _Fates(live.snapshot, plan_cycle(live.snapshot, live.policy, live.now, live.index, live.tree))
        changed, policy = _changed(live.snapshot, live.now, would_be), _policy(pool.name, live.policy, would_be)
        asked = {each.queue for each in spent}
        others = (each for each in changed.spent if each.queue not in asked)
        changed = replace(changed, spent=(*others, *spent))
        # The same index: documents change no machine. Its tree is another one.
        after = _Fates(changed, plan_cycle(changed, policy, live.now, live.index))
    return _told(pool.name, before, after, principal)


class _Fates:
    """What one Plan does with each Workload of its Snapshot."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self.snapshot, self.plan = snapshot, plan
        self.starts = {each.workload: each for each in plan.decisions if isinstance(each, Admit)}
        self.leaves = {each.workload: each for each in plan.decisions if isinstance(each, Reclaim)}
        self.of: dict[WorkloadId, Fate] = {
            **{each: "starts" if each in self.starts else "waits" for each in sorted(snapshot.waiting)},
            **{each: "leaves" if each in self.leaves else "runs" for each in sorted(snapshot.running)},
        }

    def counts(self) -> FateCounts:
        fates = list(self.of.values())
        return FateCounts(
            starts=fates.count("starts"), waits=fates.count("waits"), leaves=fates.count("leaves"),
            runs=fates.count("runs"),
        )  # fmt: skip

    def work(self, workload: WorkloadId) -> Workload | RunningAttempt:
        return self.snapshot.waiting.get(workload) or self.snapshot.running[workload]

    def path(self, queue: QueueId) -> str:
        known = self.snapshot.queues.get(queue)
        return "" if known is None else known.path


def _told(pool: str, before: _Fates, after: _Fates, principal: Principal) -> ForeseenPlan:
    lists: dict[Fate, list[ForeseenWork]] = {"starts": [], "waits": [], "leaves": [], "runs": []}
    sight = _Sight(principal, authz.visible_paths(principal), after)
    for workload, fate in after.of.items():
        was = before.of.get(workload)
        if fate != was and len(lists[fate]) < LISTED_MAX:
            lists[fate].append(sight.work(workload, was))
    return ForeseenPlan(pool=pool, before=before.counts(), after=after.counts(), **lists)


@dataclass(frozen=True, slots=True)
class _Sight:
    """What the caller may be told of each."""

    principal: Principal
    paths: tuple[str, ...] | None
    fates: _Fates

    def work(self, workload: WorkloadId, was: Fate | None) -> ForeseenWork:
        found = self.fates.work(workload)
        path = self.fates.path(found.queue)
        charges, clusters = self._where(workload)
        if not authz.sees(self.principal, path):
            return ForeseenWork(workload=OTHER_WORK, queue=OTHER_QUEUE, before=was, charges=charges)
        leave = self.fates.leaves.get(workload)
        return ForeseenWork(
            workload=found.name,
            queue=path,
            before=was,
            clusters=clusters,
            charges=charges,
            asker="" if leave is None else self._named(leave.asker),
            reasons=[reason_view(told_within(each, self.paths)) for each in self._why(workload)],
        )

    def _where(self, workload: WorkloadId) -> tuple[dict[str, int], list[str]]:
        """What it is charged and in which clusters, where it starts or runs."""
        found, start = self.fates.work(workload), self.fates.starts.get(workload)
        if isinstance(found, RunningAttempt):
            charges, clusters = found.charges, found.clusters
        elif start is not None:
            charges, clusters = start.charges, tuple(part.cluster for part in start.placements)
        else:
            return {}, []
        return {str(flavor): units for flavor, units in charges}, [self._cluster(each) for each in clusters]

    def _cluster(self, number: ClusterId) -> str:
        return self.fates.snapshot.clusters[number].name

    def _why(self, workload: WorkloadId) -> tuple[Reason, ...]:
        leave = self.fates.leaves.get(workload)
        return self.fates.plan.reasons.get(workload, ()) if leave is None else (leave.reason,)

    def _named(self, workload: WorkloadId) -> str:
        asker = self.fates.work(workload)
        return asker.name if authz.sees(self.principal, self.fates.path(asker.queue)) else OTHER_WORK


def _policy(pool: str, policy: Policy, would_be: WouldBe) -> Policy:
    for edit in would_be.edits:
        if edit.kind == "Policy" and edit.name == pool:
            if isinstance(edit.document, PolicyDocument) and edit.after is not None:
                return policy_of(policy.version + 1, edit.document.spec)
            return Policy(version=policy.version + 1)
    return policy


def _changed(snapshot: Snapshot, now: datetime, would_be: WouldBe) -> Snapshot:
    """The Snapshot as it would be; Queues that are not stored yet get numbers below 0, which no row has."""
    queues = dict(snapshot.queues)
    if would_be.queues:
        queues = _queues(snapshot.queues, would_be)
    number = {each.path: each.id for each in queues.values()}
    waiting = dict(snapshot.waiting)
    for document, new in would_be.work:
        queue = number.get(document.spec.queue)
        if new.pool == snapshot.pool and queue is not None:
            waiting[new.id] = workload_of(document, new.pod_sets, Asked(new.id, queue, new.owner, now))
    said = {each.name: each.document for each in would_be.edits if isinstance(each.document, ClusterDocument)}
    clusters = {
        number: cluster if cluster.name not in said else _labelled(cluster, said[cluster.name])
        for number, cluster in snapshot.clusters.items()
    }
    return replace(snapshot, queues=queues, waiting=waiting, clusters=clusters)


def _labelled(cluster: Cluster, document: ClusterDocument) -> Cluster:
    return replace(
        cluster,
        labels=tuple(sorted(document.metadata.labels.items())),
        network_domain=document.spec.network_domain or "",
        facts=frozenset(document.spec.facts.named()),
    )


def _queues(known: Mapping[QueueId, Queue], would_be: WouldBe) -> dict[QueueId, Queue]:
    """Those that stay as they are, and those that change or inherit from one that does, made anew."""
    by_path = {each.path: each for each in known.values()}
    changed = {each.name for each in would_be.edits if each.kind == "Queue"}
    made: dict[str, Queue] = {}
    for count, path in enumerate(sorted(would_be.queues, key=lambda path: (path.count("/"), path)), start=1):
        above = made.get(path.rpartition("/")[0])
        stays = by_path.get(path)
        if stays is not None and path not in changed and (above is None or above.path not in changed):
            made[path] = stays
            continue
        changed.add(path)
        number = QueueId(-count) if stays is None else stays.id
        parent = None if above is None else above.id
        made[path] = queue_of(
            number, parent, path, _spec(would_be.queues[path]), "" if above is None else above.namespace
        )
    return {each.id: each for each in made.values()}


def _spec(form: Form) -> QueueSpec:
    return QueueSpec.model_validate(form.spec)
