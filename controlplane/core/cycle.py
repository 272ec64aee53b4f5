"""One cycle: from a frozen world to a Plan. Pure: same Snapshot, Policy and time, same Plan, bit for bit.

Nothing here is checked against fresher values (`recheck` does that) and nothing is written (`db`).
"""

from collections.abc import Mapping
from datetime import datetime

from controlplane.core.budgets import Allowances
from controlplane.core.demand import Workload
from controlplane.core.entitlement import exceeds_quota, room_for
from controlplane.core.fairshare import Contest
from controlplane.core.ids import WorkloadId
from controlplane.core.index import FleetIndex
from controlplane.core.memory import Memory
from controlplane.core.placement.clusters import ClusterRanking
from controlplane.core.placement.outlook import settle
from controlplane.core.placement.placed import Placed
from controlplane.core.placement.workload import place_workload
from controlplane.core.plan import Admit, Decision, Plan
from controlplane.core.policy import Policy
from controlplane.core.quota import QuotaTree
from controlplane.core.reclaim import Reclaimer, waits_for
from controlplane.core.refusals import Reasons, Refusals, behind_others, unable
from controlplane.core.scenario import Scenario, owned_here
from controlplane.core.snapshot import Snapshot


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
        self.snapshot, self.policy, self.now, self.asked = snapshot, policy, now, asked
        self.scenario = Scenario(snapshot, now, index, tree)
        settle(self.scenario, policy)
        self.ranking = ClusterRanking(snapshot, self.scenario.index, policy, now)
        self.refusals = Refusals(self.scenario, self.ranking, policy, now, asked, tells_all=tells_all)
        self.reclaimer = Reclaimer(self.scenario, policy, now) if policy.reclaim else None
        self.memory = Memory(self.scenario.tree, snapshot, policy, now, owned_here(snapshot, self.scenario.index))
        self.allowances = Allowances(snapshot, self.scenario.tree, now)
        self.decisions: list[Decision] = []
        self.reasons: dict[WorkloadId, Reasons] = {}
        self.admitted = 0
        self.not_reclaimable: set[object] = set()

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
        self.reasons |= behind_others(left, self.snapshot.queues)
        self.scenario.rollback(self.scenario.start)
        return Plan(tuple(self.decisions), dict(sorted(self.reasons.items())), self.scenario.work, len(left))

    def _able(self) -> list[Workload]:
        """Those that may be looked at now; the others get their Reason."""
        able = []
        for workload in sorted(self.snapshot.waiting.values(), key=lambda each: each.id):
            why = unable(self.snapshot, workload, self.now) or self.allowances.refuses(workload)
            if why is None:
                able.append(self.allowances.narrowed(workload))
            else:
                self.reasons[workload.id] = (why,)
        return able

    def _has_budget(self) -> bool:
        return self.scenario.work < self.policy.work_units_max and self.admitted < self.policy.admissions_max

    def _admit(self, workload: Workload) -> Reasons:
        """Admit it if its Queue may use that much and one cluster has the room; else say why not."""
        mark, is_kept = self.scenario.checkpoint(), workload.id in self.scenario.earmarks
        excluded = self.refusals.excluded(workload)
        self.scenario.open_earmark(workload.id)
        self.scenario.close_nodes(excluded)
        room = self.scenario.own_room(workload.id, room_for(self.scenario.tree, workload))
        over = self.allowances.crowded(workload)
        over = over or exceeds_quota(self.scenario.tree, workload, room, self.scenario.kept_for_others(workload.id))
        request = self.refusals.request(workload, room)
        if over is None and not self.refusals.is_hopeless(request):
            ranked = self.ranking.rank(workload)
            placed = place_workload(self.scenario, workload, ranked.open, room, ranked.partly)
            if placed is not None:
                if is_kept or excluded:  # its nodes stay out for it alone, and its Earmark ends with its start
                    self.scenario.rollback(mark)
                    self.scenario.end_earmark(workload.id)
                    self.scenario.index.take(placed.takes())
                    self.refusals.forget()  # it may have found another place than the one that was kept
                self._write_admit(workload, placed)
                return ()
        reasons = self.refusals.why_not(workload, over, request, mark, len(self.decisions))
        self.scenario.rollback(mark)
        return reasons

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
        asked = (workload.queue, *self.refusals.request(workload, {}))
        if self.reclaimer is not None and not is_kept and asked not in self.not_reclaimable:
            excluded = self.refusals.excluded(workload)
            found = self.reclaimer.reclaim(workload, self.ranking.rank(workload).open, excluded)
            self.decisions.extend(found)
            if not found:
                self.not_reclaimable.add(asked)
        return waits_for(self.scenario, workload.id)

    def _refuse_others(self, contest: Contest, workload: Workload, reasons: Reasons) -> None:
        """What one was refused, those next in its Queue that ask for the same are refused: thousands may wait alike."""
        if not self.refusals.remember(workload, reasons):
            return
        for other in contest.next_in(workload.queue, lambda each: self.refusals.remembered(each) is not None):
            self.reasons[other.id] = self.refusals.remembered(other) or ()
            self.scenario.work += 1
