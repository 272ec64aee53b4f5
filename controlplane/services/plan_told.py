"""A Plan in people's words: ids become names, pods become nodes with ranks, and every Queue's shares are counted.

Pure; what it says is true of the Snapshot that was planned on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.contract.rest.common import ReasonView
from controlplane.contract.rest.planning import (
    KeepView,
    LeaveView,
    NodePods,
    PoolPlan,
    ShareView,
    StartPlace,
    StartView,
    WaitView,
)
from controlplane.core.demand import RunningAttempt, Workload
from controlplane.core.entitlement import first_choice
from controlplane.core.ids import ClusterId, FlavorName, NodeId, QueueId, WorkloadId
from controlplane.core.plan import Admit, Plan, PodPlacement, Reclaim, SetEarmark
from controlplane.core.policy import Policy
from controlplane.core.quota import QuotaTree
from controlplane.core.reasons import Reason
from controlplane.core.records import plan_hash
from controlplane.core.resources import add
from controlplane.core.scenario import tree_of
from controlplane.core.shares import fair_shares
from controlplane.core.snapshot import Snapshot

Reasons = Mapping[WorkloadId, tuple[Reason, ...]]
Pod = tuple[int, ClusterId, PodPlacement]
"""Its rank, its cluster, where it goes."""


def told(snapshot: Snapshot, policy: Policy, plan: Plan, reasons: Reasons) -> PoolPlan:
    """The Plan as it is shown; `reasons` of those that wait, which may say more than the Plan keeps."""
    said = _Said(snapshot)
    return PoolPlan(
        pool=snapshot.pool_name,
        plan_sha256=plan_hash(plan),
        policy_version=policy.version,
        work_units=plan.work_units,
        left_over=plan.left_over,
        starts=[said.start(each) for each in plan.decisions if isinstance(each, Admit)],
        leaves=[said.leave(each) for each in plan.decisions if isinstance(each, Reclaim)],
        keeps=[said.keep(each) for each in plan.decisions if isinstance(each, SetEarmark)],
        waits=said.waits(plan, reasons),
        shares=list(_shares(snapshot, plan)),
    )


def reason_view(why: Reason) -> ReasonView:
    """A Reason with its sentence."""
    return ReasonView(code=why.code, sentence=why.sentence(), facts=dict(why.facts))


def ranges(numbers: Sequence[int]) -> str:
    """Rising numbers as people write them: "0-3,7"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


@dataclass(frozen=True, slots=True)
class _Said:
    """Names of what a Snapshot knows by ids."""

    snapshot: Snapshot

    def start(self, made: Admit) -> StartView:
        workload = self.snapshot.waiting[made.workload]
        pods = ranked(made, workload)
        return StartView(
            workload=workload.name,
            queue=self._path(made.queue),
            priority=workload.priority,
            attempt=made.attempt,
            pods=len(pods),
            charges=dict(made.charges),
            placements=[self._place(part.cluster, pods) for part in made.placements],
            stands_on=[self._any(each).name for each in made.stands_on],
        )

    def leave(self, made: Reclaim) -> LeaveView:
        attempt, asker = self._any(made.workload), self._any(made.asker)
        return LeaveView(
            workload=attempt.name, queue=self._path(attempt.queue), attempt=made.attempt,
            asker=asker.name, asker_queue=self._path(asker.queue), reason=reason_view(made.reason),
        )  # fmt: skip

    def keep(self, made: SetEarmark) -> KeepView:
        workload = self._any(made.workload)
        units: dict[str, int] = {}
        for share in made.shares:
            units[share.flavor] = units.get(share.flavor, 0) + share.amount
        return KeepView(
            workload=workload.name, queue=self._path(workload.queue),
            cluster=self.snapshot.clusters[made.cluster].name, units=units, until=made.until,
        )  # fmt: skip

    def waits(self, plan: Plan, reasons: Reasons) -> list[WaitView]:
        """In the order of Queues, then of turns within one: priority, then age."""
        starting = {each.workload for each in plan.decisions if isinstance(each, Admit)}
        left = [each for each in self.snapshot.waiting.values() if each.id not in starting]
        left.sort(key=lambda each: (self._path(each.queue), -each.priority, each.submitted_at, each.id))
        return [
            WaitView(
                workload=each.name,
                queue=self._path(each.queue),
                priority=each.priority,
                reasons=[reason_view(why) for why in reasons.get(each.id) or plan.reasons.get(each.id, ())],
            )
            for each in left
        ]

    def _place(self, cluster: ClusterId, pods: Iterable[Pod]) -> StartPlace:
        mine = [(rank, pod) for rank, at, pod in pods if at == cluster]
        together: dict[tuple[str, NodeId, str], list[tuple[int, PodPlacement]]] = {}
        for rank, pod in mine:
            together.setdefault((pod.pod_set, pod.node, pod.flavor), []).append((rank, pod))
        nodes = [
            NodePods(
                node=self.snapshot.nodes[node].name, pod_set=pod_set, pods=len(here), flavor=flavor,
                units=sum(pod.amount for _, pod in here), ranks=ranges([rank for rank, _ in here]),
            )
            for (pod_set, node, flavor), here in together.items()
        ]  # fmt: skip
        return StartPlace(cluster=self.snapshot.clusters[cluster].name, pods=len(mine), nodes=nodes)

    def _any(self, workload: WorkloadId) -> Workload | RunningAttempt:
        return self.snapshot.waiting.get(workload) or self.snapshot.running[workload]

    def _path(self, queue: QueueId) -> str:
        known = self.snapshot.queues.get(queue)
        return str(queue) if known is None else known.path


def ranked(made: Admit, workload: Workload) -> list[Pod]:
    """Every pod with its rank: PodSets in the order of the document, pods in that of their index; as a commit does."""
    order = {pod_set.name: position for position, pod_set in enumerate(workload.pod_sets)}
    placed = [(part.cluster, pod) for part in made.placements for pod in part.pods]
    placed.sort(key=lambda at: (order[at[1].pod_set], at[1].index))
    return [(rank, cluster, pod) for rank, (cluster, pod) in enumerate(placed)]


def _shares(snapshot: Snapshot, plan: Plan) -> Iterable[ShareView]:
    before, after = tree_of(snapshot), tree_of(snapshot)
    for each in plan.decisions:
        if isinstance(each, Reclaim) and (attempt := snapshot.running[each.workload]).queue in after:
            for flavor, amount in attempt.charges:
                after.refund(attempt.queue, flavor, amount)
    for each in plan.decisions:
        if isinstance(each, Admit):
            for flavor, amount in each.charges:
                after.charge(each.queue, flavor, amount)
    entitled = fair_shares(before, _demand(snapshot))
    for queue in before.queues.values():
        stated = {quota.flavor: quota for quota in queue.quotas}
        for flavor in sorted({*stated, *_used(before, queue.id), *_used(after, queue.id)}):
            account = before.account(queue.id, flavor)
            quota, share = stated.get(flavor), entitled.get((queue.id, flavor))
            yield ShareView(
                queue=queue.path, flavor=flavor, nominal=0 if quota is None else quota.nominal, owns=account.s,
                used=account.u, after=after.account(queue.id, flavor).u,
                entitled=None if share is None else int(share),
            )  # fmt: skip


def _demand(snapshot: Snapshot) -> dict[tuple[QueueId, FlavorName], int]:
    """What each Queue has and would like: all that runs, and of what waits its first choice."""
    wanted = {(queue, FlavorName(flavor)): amount for (queue, flavor), amount in snapshot.usage_elsewhere.items()}
    charged = [(each.queue, each.charges) for each in snapshot.running.values()]
    for queue, charges in [*charged, *((each.queue, first_choice(each)) for each in snapshot.waiting.values())]:
        for flavor, amount in charges:
            wanted[queue, flavor] = add(wanted.get((queue, flavor), 0), amount)
    return wanted


def _used(tree: QuotaTree, queue: QueueId) -> list[FlavorName]:
    return [flavor for flavor, account in tree.accounts_of(queue).items() if account.u]
