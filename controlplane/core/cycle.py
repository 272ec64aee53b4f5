"""One cycle: from a frozen world to a Plan. Pure: same Snapshot, Policy and time, same Plan, bit for bit.

Nothing here is checked against fresher values (`recheck` does that) and nothing is written (`db`).
"""

from collections.abc import Mapping
from datetime import datetime

from controlplane.core.budgets import Allowances
from controlplane.core.demand import Exclusion, Workload
from controlplane.core.entitlement import exceeds_quota, room_for
from controlplane.core.fairshare import Contest
from controlplane.core.ids import QueueId, WorkloadId
from controlplane.core.index import FleetIndex
from controlplane.core.memory import Memory
from controlplane.core.placement.asking import Room, sizes
from controlplane.core.placement.clusters import ClusterRanking, namespace_of
from controlplane.core.placement.outlook import settle
from controlplane.core.placement.placed import Placed
from controlplane.core.placement.shortfall import why_nowhere
from controlplane.core.placement.workload import place_workload
from controlplane.core.plan import Admit, Decision, Plan
from controlplane.core.policy import Policy
from controlplane.core.quota import QuotaTree
from controlplane.core.reasons import Reason, ReasonCode, reason
from controlplane.core.reclaim import Reclaimer, waits_for
from controlplane.core.resources import UNLIMITED
from controlplane.core.scenario import Mark, Scenario, owned_here
from controlplane.core.snapshot import Snapshot

REASONS_MAX = 3  # per waiting Workload in a Plan; `explain` gives all

Reasons = tuple[Reason, ...]


def plan_cycle(
    snapshot: Snapshot, policy: Policy, now: datetime, index: FleetIndex | None = None, tree: QuotaTree | None = None
) -> Plan:
    """Decide about every waiting Workload. `index` and `tree`, if given, are warm ones of this very Snapshot."""
    return _Cycle(snapshot, policy, now, index, tree).run()


def outcome(
    snapshot: Snapshot,
    policy: Policy,
    now: datetime,
    workload: WorkloadId,
    index: FleetIndex | None = None,
    tree: QuotaTree | None = None,
) -> Admit | Reasons:
    """What a cycle on this Snapshot would make of one waiting Workload: its start, or every Reason why not."""
    return outcome_in(plan_until(snapshot, policy, now, workload, index, tree), workload)


def plan_until(
    snapshot: Snapshot,
    policy: Policy,
    now: datetime,
    workload: WorkloadId,
    index: FleetIndex | None = None,
    tree: QuotaTree | None = None,
) -> Plan:
    """The same cycle, ended after this Workload's turn; of it alone every Reason is told."""
    return _Cycle(snapshot, policy, now, index, tree, asked=workload).run()


def outcome_in(plan: Plan, workload: WorkloadId) -> Admit | Reasons:
    """What a Plan makes of one that waited."""
    starts = (each for each in plan.decisions if isinstance(each, Admit) and each.workload == workload)
    return next(starts, plan.reasons.get(workload, ()))


def explain(
    snapshot: Snapshot, policy: Policy, now: datetime, workload: WorkloadId, index: FleetIndex | None = None
) -> Reasons:
    """Every Reason why a waiting Workload would not start in a cycle on this Snapshot; none if it would."""
    found = outcome(snapshot, policy, now, workload, index)
    return () if isinstance(found, Admit) else found


def explain_all(
    snapshot: Snapshot, policy: Policy, now: datetime, index: FleetIndex | None = None, tree: QuotaTree | None = None
) -> Mapping[WorkloadId, Reasons]:
    """Every Reason of every Workload that a cycle would leave waiting: for whoever shows a whole plan."""
    return _Cycle(snapshot, policy, now, index, tree, tells_all=True).run().reasons


class _Cycle:
    """The state of one run of `plan_cycle`."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        now: datetime,
        index: FleetIndex | None,
        tree: QuotaTree | None = None,
        asked: WorkloadId | None = None,
        *,
        tells_all: bool = False,
    ) -> None:
        self.snapshot, self.policy, self.now, self.asked, self.tells_all = snapshot, policy, now, asked, tells_all
        self.scenario = Scenario(snapshot, now, index, tree)
        settle(self.scenario, policy)
        self.ranking = ClusterRanking(snapshot, self.scenario.index, policy, now)
        self.reclaimer = Reclaimer(self.scenario, policy, now) if policy.reclaim else None
        self.memory = Memory(self.scenario.tree, snapshot, policy, now, owned_here(snapshot, self.scenario.index))
        self.allowances = Allowances(snapshot, self.scenario.tree, now)
        self.decisions: list[Decision] = []
        self.reasons: dict[WorkloadId, Reasons] = {}
        self.admitted = 0
        self.exclusions = _by_shape(snapshot, now)
        # Room only shrinks within a cycle, save where an Earmark ends: what had no place will have none later in it.
        self.hopeless: dict[object, Reasons] = {}
        self.refused: dict[QueueId, dict[object, Reasons]] = {}
        self.not_reclaimable: set[object] = set()
        self.looks: dict[object, Reasons] = {}

    def run(self) -> Plan:
        left_over, is_over = self.snapshot.left_over, self.allowances.is_over
        contest = Contest(self.scenario.tree, self._able(), self.memory, left_over, is_over)
        while self._has_budget() and (workload := contest.next()) is not None:
            self.scenario.work += 1
            reasons, decided = self._admit(workload), len(self.decisions)
            if reasons:
                self.reasons[workload.id] = reasons = self._reclaim(workload) or reasons
                if len(self.decisions) == decided:
                    self._refuse_others(contest, workload, reasons)
            if workload.id == self.asked:
                break
        left = contest.left()
        self._say_who_is_ahead(left)
        self.scenario.rollback(self.scenario.start)
        return Plan(tuple(self.decisions), dict(sorted(self.reasons.items())), self.scenario.work, len(left))

    def _admit(self, workload: Workload) -> Reasons:
        """Admit it if its Queue may use that much and one cluster has the room; else say why not."""
        mark, is_kept = self.scenario.checkpoint(), workload.id in self.scenario.earmarks
        excluded = self._excluded(workload)
        self.scenario.open_earmark(workload.id)
        self.scenario.close_nodes(excluded)
        room = self.scenario.own_room(workload.id, room_for(self.scenario.tree, workload))
        over = self.allowances.crowded(workload)
        over = over or exceeds_quota(self.scenario.tree, workload, room, self.scenario.kept_for_others(workload.id))
        request = self._request(workload, room)
        if over is None and request not in self.hopeless:
            ranked = self.ranking.rank(workload)
            placed = place_workload(self.scenario, workload, ranked.open, room, ranked.partly)
            if placed is not None:
                if is_kept or excluded:  # its nodes stay out for it alone, and its Earmark ends with its start
                    self.scenario.rollback(mark)
                    self.scenario.end_earmark(workload.id)
                    self.scenario.index.take(placed.takes())
                    self.refused.clear()
                    self.hopeless.clear()  # it may have found another place than the one that was kept
                self._write_admit(workload, placed)
                return ()
        reasons = self._why_not(workload, over, request, mark)
        self.scenario.rollback(mark)
        return reasons

    def _refuse_others(self, contest: Contest, workload: Workload, reasons: Reasons) -> None:
        """What one was refused, those next in its Queue that ask for the same are refused: thousands may wait alike."""
        if self.tells_all or self._is_alone(workload):
            return
        refused = self.refused.setdefault(workload.queue, {})
        refused[_alike(workload)] = reasons
        for other in contest.next_in(
            workload.queue, lambda each: each.id != self.asked and not self._is_alone(each) and _alike(each) in refused
        ):
            self.reasons[other.id] = refused[_alike(other)]
            self.scenario.work += 1

    def _is_alone(self, workload: Workload) -> bool:
        """Whether something is looked at for it alone: its old place, or what is kept for it."""
        return bool(workload.preferred_nodes) or workload.id in self.scenario.earmarks

    def _write_admit(self, workload: Workload, placed: Placed) -> None:
        charges = placed.charges()
        self.scenario.charge(workload.queue, charges)
        placements = placed.placements(self.scenario.index, workload.pod_sets)
        self.decisions.append(Admit(workload.id, workload.next_attempt, workload.queue, placements, charges))
        self.memory.admitted(workload, charges)
        self.allowances.admitted(workload)
        self.admitted += 1

    def _reclaim(self, workload: Workload) -> Reasons:
        """Make room for it by taking back what others borrowed; the Reason says what it waits for then."""
        is_kept = workload.id in self.scenario.earmarks or self.allowances.crowded(workload) is not None
        asked = (workload.queue, *self._request(workload, {}))
        if self.reclaimer is not None and not is_kept and asked not in self.not_reclaimable:
            found = self.reclaimer.reclaim(workload, self.ranking.rank(workload).open, self._excluded(workload))
            self.decisions.extend(found)
            if not found:
                self.not_reclaimable.add(asked)
        return waits_for(self.scenario, workload.id)

    def _able(self) -> list[Workload]:
        """Those that may be looked at now; the others get their Reason."""
        able = []
        for workload in sorted(self.snapshot.waiting.values(), key=lambda each: each.id):
            why = self._unable(workload)
            if why is None:
                able.append(self.allowances.narrowed(workload))
            else:
                self.reasons[workload.id] = (why,)
        return able

    def _unable(self, workload: Workload) -> Reason | None:
        if workload.queue not in self.snapshot.queues:
            return reason(ReasonCode.QUEUE_UNKNOWN, queue=workload.queue)
        if workload.not_before is not None and workload.not_before > self.now:
            until = workload.not_before.isoformat(timespec="seconds")
            return reason(ReasonCode.BACKING_OFF, times=workload.disturbances, until=until)
        if not self.snapshot.clusters:
            return reason(ReasonCode.NO_CLUSTER, pool=self.snapshot.pool_name)
        return self.allowances.refuses(workload)

    def _has_budget(self) -> bool:
        return self.scenario.work < self.policy.work_units_max and self.admitted < self.policy.admissions_max

    def _excluded(self, workload: Workload) -> list[int]:
        position = self.scenario.index.tree.position
        return [position[at.node] for at in self.exclusions.get(workload.shape, ()) if at.node in position]

    def _request(self, workload: Workload, room: Room) -> tuple[object, ...]:
        """All that decides where it could go. What one request was refused, an equal one is refused, too."""
        namespace = workload.namespace or namespace_of(self.snapshot.queues, workload.queue)
        has_choice = len(workload.pod_sets) > 1 and any(len(each.flavors) > 1 for each in workload.pod_sets)
        return (
            workload.pod_sets,
            workload.strategy,
            workload.cluster_selector,
            workload.clusters_avoided,
            workload.clusters_max,
            workload.requires,
            namespace,
            workload.shape if workload.shape in self.exclusions else "",
            workload.id if self._is_alone(workload) else "",
            # What one PodSet leaves of it decides for the next, and what that one lacks is told of its Queue.
            (workload.queue, *sorted(room.items())) if has_choice else (),
            tuple(size for pod_set in workload.pod_sets for size in sizes(pod_set, room)),
        )

    def _why_not(self, workload: Workload, over: Reason | None, request: tuple[object, ...], mark: Mark) -> Reasons:
        """Called with its Earmark open and its excluded nodes closed; `mark` is from before."""
        is_asked = self.tells_all or workload.id == self.asked
        if over is not None and not is_asked:
            return (over,)
        if request in self.hopeless and not is_asked:
            return self.hopeless[request]
        self.scenario.rollback(mark)
        self.scenario.open_earmark(workload.id)
        room = room_for(self.scenario.tree, workload)
        room = room if over is None else dict.fromkeys(room, UNLIMITED)
        # As long as nothing more is decided, equal requests lack the same everywhere.
        look = (len(self.decisions), is_asked, self._request(workload, room))
        nowhere = self.looks.get(look)
        if nowhere is None:
            ranked, excluded = self.ranking.rank(workload), self.exclusions.get(workload.shape, ())
            most = None if is_asked else REASONS_MAX
            nowhere = why_nowhere(self.scenario, workload, ranked, room, excluded, self.policy, most=most)
            self.looks[look] = nowhere
        if over is None:
            self.hopeless[request] = nowhere
        return nowhere if over is None else (over, *nowhere)

    def _say_who_is_ahead(self, left: list[Workload]) -> None:
        """For those that the budget did not reach: how many of their own Queue come first."""
        ahead: dict[QueueId, int] = {}
        for workload in left:
            queue = self.snapshot.queues[workload.queue].path
            count = ahead.get(workload.queue, 0)
            self.reasons[workload.id] = (reason(ReasonCode.BEHIND_OTHERS, ahead=count, queue=queue),)
            ahead[workload.queue] = count + 1


def _alike(workload: Workload) -> tuple[object, ...]:
    """All of a Workload that a refusal may rest on, within one Queue."""
    return (
        workload.pod_sets,
        workload.priority,
        workload.owner,
        workload.strategy,
        workload.cluster_selector,
        workload.clusters_avoided,
        workload.clusters_max,
        workload.requires,
        workload.namespace,
        workload.shape,
        workload.is_repair,
    )


def _by_shape(snapshot: Snapshot, now: datetime) -> dict[str, tuple[Exclusion, ...]]:
    """The live exclusions of each shape of pod."""
    shapes: dict[str, tuple[Exclusion, ...]] = {}
    for exclusion in sorted(snapshot.exclusions, key=lambda at: (at.shape, at.node)):
        if exclusion.until > now:
            shapes[exclusion.shape] = (*shapes.get(exclusion.shape, ()), exclusion)
    return shapes
