"""One Attempt under change: what was told of it, which steps follow, and what has to be written because of them.

Decides on values only and writes nothing: `attempts` reads the rows, `attempt_batch` writes what stands here. Every
step goes through `core.lifecycle`; `passed` keeps each state on the way, so that the database sees every one of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from controlplane.core.facts.attempts import (
    POD_ENDED,
    AttemptFact,
    NewDirective,
    NodeRefused,
    PlacementFact,
    PlacementState,
    PodFact,
    PodState,
    WorkloadMove,
)
from controlplane.core.facts.ledger import AccountKey, Proof, Usage
from controlplane.core.ids import ClusterId, NodeId
from controlplane.core.lifecycle import (
    AttemptEvent,
    AttemptState,
    Outcome,
    WorkloadEvent,
    WorkloadState,
    advance_attempt,
    advance_workload,
)
from controlplane.core.policy import Policy
from controlplane.core.reasons import Reason, ReasonCode, reason
from controlplane.core.verdict import DeviceTrouble, EndVerdict, Fault, NodeTrouble, PodEnd, judge

START, TOMBSTONE = "start", "tombstone"
CHECK_SECONDS = 60  # an Attempt on its way is looked at this often even if nobody reports anything
RUNNING_CHECK_SECONDS = 900  # time alone brings nothing to one that runs
_DOUBLINGS_MAX = 5
_STARTED = frozenset({PodState.RUNNING, PodState.SUCCEEDED})
_BROKEN = frozenset({PodState.FAILED, PodState.GONE, PodState.LOST})
_RETURNS = frozenset({Outcome.PREEMPTED, Outcome.MOVED, Outcome.REJECTED, Outcome.VOIDED})
_GOES_ON_AT_ONCE = frozenset(
    {ReasonCode.FOREIGN_PODS, ReasonCode.UNMODELLED_CONSTRAINT, ReasonCode.RECLAIMED, ReasonCode.CLUSTER_DRAINED}
)


@dataclass(slots=True)
class Work:
    """An Attempt, and what becomes of it in this transaction."""

    before: AttemptFact
    now: datetime
    policy: Policy
    clocks_from: datetime | None = None  # an outage of ours ended then, so grace counts from there at the earliest
    fact: AttemptFact = field(init=False)
    placements: dict[ClusterId, PlacementFact] = field(init=False)
    pods: dict[tuple[ClusterId, str, int], PodFact] = field(init=False)
    passed: list[AttemptFact] = field(default_factory=list)
    directives: list[NewDirective] = field(default_factory=list)
    refused: list[NodeRefused] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)
    move: WorkloadMove | None = None
    is_posted: bool = False
    proof: Proof | None = None

    def __post_init__(self) -> None:
        self.fact = self.before
        self.placements = {each.cluster: each for each in self.before.placements}
        self.pods = {(each.cluster, each.pod_set, each.index): each for each in self.before.pods}

    def pods_in(self, cluster: ClusterId) -> list[PodFact]:
        return [pod for pod in self.pods.values() if pod.cluster == cluster]

    def changed_pods(self) -> list[PodFact]:
        was = {pod.id: pod for pod in self.before.pods}
        return [pod for pod in self.pods.values() if pod != was[pod.id]]

    def changed_placements(self) -> list[PlacementFact]:
        was = {each.cluster: each for each in self.before.placements}
        return [each for each in self.placements.values() if each != was[each.cluster]]

    def released(self) -> list[int]:
        """Pods whose holds end: proven ended, in an Attempt that is over."""
        if self.fact.state is not AttemptState.ENDED:
            return []
        return [pod.id for pod in self.pods.values() if pod.is_held and pod.state in POD_ENDED]

    def has_changed(self) -> bool:
        moved = self.fact != self.before or self.move is not None or bool(self.directives)
        return moved or bool(self.changed_pods() or self.changed_placements() or self.released())

    def look_again(self, seconds: int) -> None:
        self.fact = replace(self.fact, next_check_at=self.now + timedelta(seconds=seconds))

    def is_judged(self) -> bool:
        return self.fact.verdict is not None

    def put(self, pod: PodFact) -> None:
        self.pods[pod.cluster, pod.pod_set, pod.index] = pod


def follow(work: Work) -> None:
    """Take every step that what is known now leads to."""
    state = work.fact.state
    states = {pod.state for pod in work.pods.values()}
    if work.before.workload_state is WorkloadState.CANCELLING:
        order_stop(work, Outcome.CANCELLED, None)  # whoever missed it: nothing of a cancelled Workload goes on
        state = work.fact.state
    if state is AttemptState.ENDED:
        if work.fact.failed_at is not None and not work.is_judged():
            _judge(work)
            if work.is_judged():
                _close_workload(work)
    elif states == {PodState.SUCCEEDED} and state not in {AttemptState.PLACED, AttemptState.PREPARED}:
        _complete(work)
    elif state is AttemptState.STOPPING:
        _judge(work)
        if _is_stopped(work):
            _end(work)
    elif states & _BROKEN:
        _fail(work)
    elif state is AttemptState.PLACED and all(p.state is PlacementState.PREPARED for p in work.placements.values()):
        _start(work)
    elif state is AttemptState.STARTING and states <= _STARTED:
        _run(work)


def reject(work: Work, why: Reason, outcome: Outcome, refused: Iterable[NodeRefused] = ()) -> None:
    """A cluster cannot take its part: all of it is given back."""
    if work.fact.state not in {AttemptState.PLACED, AttemptState.PREPARED, AttemptState.STARTING}:
        return
    work.refused.extend(refused)
    _stop(work, AttemptEvent.REJECTED, outcome, why)


def order_stop(work: Work, outcome: Outcome, why: Reason | None) -> None:
    """Someone decided that it shall end; what stops already keeps its first reason."""
    if work.fact.state not in {AttemptState.STOPPING, AttemptState.ENDED}:
        _stop(work, AttemptEvent.STOP_ORDERED, outcome, why)


def declare_lost(work: Work, cluster: ClusterId) -> None:
    """Somebody gives his word that nothing of it in this cluster will ever be heard of again."""
    placement = work.placements.get(cluster)
    if placement is None or placement.state is PlacementState.GONE or work.fact.state is AttemptState.ENDED:
        return
    words = f"{placement.cluster_name} was declared lost"
    for pod in work.pods_in(cluster):
        if pod.state not in POD_ENDED:
            work.put(replace(pod, state=PodState.LOST, message=words, changed_at=work.now))
    work.placements[cluster] = replace(placement, state=PlacementState.GONE, message=words)


def bury_again(work: Work, cluster: ClusterId) -> None:
    """Objects of an Attempt that was proven gone are back (a restored cluster): they get a new tombstone."""
    placement = work.placements[cluster]
    gen = placement.wanted_gen + 1
    work.placements[cluster] = replace(placement, state=PlacementState.STOPPING, wanted_gen=gen)
    work.directives.append(NewDirective(cluster, work.fact.key, gen, TOMBSTONE))


def give_up_usage(work: Work, pod: PodFact, until: datetime) -> None:
    """Note what a pod used, up to its own end or `until`."""
    if pod.started_at is None or pod.amount == 0:
        return
    began = max(pod.started_at, work.fact.placed_at)
    card = pod.device_keys[0] if len(pod.device_keys) == pod.amount == 1 else ""
    ended = pod.finished_at or until
    if ended > began:
        account = AccountKey(work.fact.queue, pod.flavor)
        work.usages.append(Usage(pod.id, work.fact.key, account, pod.amount, began, ended, card))


def _step(work: Work, event: AttemptEvent, changed: AttemptFact) -> None:
    work.fact = replace(changed, state=advance_attempt(work.fact.state, event))
    work.passed.append(work.fact)


def _start(work: Work) -> None:
    """Everything is there, everywhere: the gates may come off."""
    _step(work, AttemptEvent.PREPARED, replace(work.fact, prepared_at=work.now))
    for cluster, placement in work.placements.items():
        gen = placement.wanted_gen + 1
        work.placements[cluster] = replace(placement, wanted_gen=gen)
        work.directives.append(NewDirective(cluster, work.fact.key, gen, START))
    check = work.now + timedelta(seconds=CHECK_SECONDS)
    _step(work, AttemptEvent.START_ORDERED, replace(work.fact, start_ordered_at=work.now, next_check_at=check))


def _run(work: Work) -> None:
    check = work.now + timedelta(seconds=RUNNING_CHECK_SECONDS)
    _step(work, AttemptEvent.ALL_RUNNING, replace(work.fact, running_at=work.now, next_check_at=check))
    work.is_posted = True
    _move(work, WorkloadEvent.STARTED)


def _complete(work: Work) -> None:
    done = replace(work.fact, outcome=Outcome.SUCCEEDED, ended_at=work.now, next_check_at=None)
    _step(work, AttemptEvent.COMPLETED, done)
    _tombstones(work)
    _settle(work, Proof.AGENT_REPORT)
    _move(work, WorkloadEvent.COMPLETED)


def _fail(work: Work) -> None:
    """One pod is gone for good, so the others must go too; whose fault it was may take a while to show."""
    is_lost = any(pod.state is PodState.LOST for pod in work.pods.values())
    _stop(work, AttemptEvent.FAILED, Outcome.LOST if is_lost else Outcome.FAILED, None)
    _judge(work)


def _stop(work: Work, event: AttemptEvent, outcome: Outcome, why: Reason | None) -> None:
    failed_at = work.now if event is AttemptEvent.FAILED else None
    check = work.now + timedelta(seconds=CHECK_SECONDS)
    stopping = replace(
        work.fact,
        outcome_wanted=outcome,
        reason=why,
        stop_ordered_at=work.now,
        failed_at=failed_at,
        next_check_at=check,
    )
    _step(work, event, stopping)
    _tombstones(work)
    if work.before.workload_state in {WorkloadState.RESERVED, WorkloadState.RUNNING}:
        _move(work, WorkloadEvent.STOP_ORDERED)


def _tombstones(work: Work) -> None:
    for cluster, placement in work.placements.items():
        if placement.state not in {PlacementState.STOPPING, PlacementState.GONE}:
            bury_again(work, cluster)


def _is_stopped(work: Work) -> bool:
    """Every cluster has taken the order and nothing runs there, or nobody can say because its node is lost."""
    over = POD_ENDED | {PodState.LOST}
    return all(
        placement.state is PlacementState.GONE
        or (
            placement.applied_gen >= placement.wanted_gen
            and all(pod.state in over for pod in work.pods_in(placement.cluster))
        )
        for placement in work.placements.values()
    )


def _end(work: Work) -> None:
    outcome = work.fact.outcome_wanted or Outcome.FAILED
    is_open = work.fact.failed_at is not None and work.fact.verdict is None
    check = work.fact.evidence_until if is_open else None
    _step(work, AttemptEvent.STOPPED, replace(work.fact, outcome=outcome, ended_at=work.now, next_check_at=check))
    _settle(work, Proof.TOMBSTONE_ACK if _declared_lost(work) is None else Proof.DECLARED_LOST)
    _close_workload(work)


def _declared_lost(work: Work) -> PodFact | None:
    """A pod for which somebody's word stands: an agent that says its part is gone says so of its pods, too."""
    lost = (pod for pod in work.pods.values() if pod.state is PodState.LOST)
    return next((pod for pod in lost if work.placements[pod.cluster].state is PlacementState.GONE), None)


def _settle(work: Work, proof: Proof) -> None:
    work.proof = proof
    for pod in work.pods.values():
        give_up_usage(work, pod, work.now)


def _judge(work: Work) -> None:
    """Whose fault, if it can be said now; once said it stays."""
    if work.fact.failed_at is None or work.fact.verdict is not None:
        return
    verdict = _verdict(work)
    if verdict.fault is Fault.PROGRAM and (until := _may_be_told_until(work)) is not None:
        verdict = EndVerdict(Fault.UNDECIDED, until=until)
    if verdict.fault is Fault.UNDECIDED:
        until = verdict.until or work.now
        work.fact = replace(work.fact, evidence_until=until, next_check_at=until)
        return
    is_over = work.fact.state is AttemptState.ENDED
    check = None if is_over else work.now + timedelta(seconds=CHECK_SECONDS)
    work.fact = replace(work.fact, verdict=verdict.fault.value, reason=verdict.reason, next_check_at=check)


def _may_be_told_until(work: Work) -> datetime | None:
    """Evidence may come later than its window ends: from a cluster that is silent, or after an outage of ours."""
    if not all(each.cluster_is_ready for each in work.placements.values()):
        return work.now + timedelta(seconds=CHECK_SECONDS)
    if work.clocks_from is None:
        return None
    until = work.clocks_from + timedelta(seconds=work.policy.evidence_seconds)
    return until if until > work.now else None


def _verdict(work: Work) -> EndVerdict:
    pods = sorted(work.pods.values(), key=lambda pod: pod.rank)
    names = {cluster: placement.cluster_name for cluster, placement in work.placements.items()}
    declared = _declared_lost(work)
    if declared is not None:
        words = reason(ReasonCode.CLUSTER_LOST, cluster=names[declared.cluster])
        return EndVerdict(Fault.INFRASTRUCTURE, words)
    lost = next((pod for pod in pods if pod.state is PodState.LOST), None)
    if lost is not None:  # nothing that its program did made its node vanish
        words = reason(ReasonCode.NODE_LOST, node=lost.node_name, cluster=names[lost.cluster])
        return EndVerdict(Fault.INFRASTRUCTURE, words)
    ends = [
        PodEnd(pod.rank, pod.finished_at or pod.changed_at, pod.node, pod.exit_code, pod.disrupted, pod.message)
        for pod in pods
        if pod.state is PodState.FAILED
        or (pod.state is PodState.GONE and pod.disrupted)
        or (pod.state not in POD_ENDED and pod.finished_at is not None)  # it failed, and its replacement still ends
    ]
    nodes = [
        NodeTrouble(pod.node, pod.node_name, names[pod.cluster], pod.node_trouble_at)
        for pod in pods
        if pod.node_trouble_at is not None
    ]
    devices = [
        DeviceTrouble(pod.node, pod.node_name, pod.device_trouble_at, pod.device_words, is_fatal=True)
        for pod in pods
        if pod.device_trouble_at is not None
    ]
    return judge(ends, nodes, devices, timedelta(seconds=work.policy.evidence_seconds), work.now)


def _close_workload(work: Work) -> None:
    """The Attempt is over: the Workload comes back, is given up, or waits for the verdict."""
    state = work.move.state if work.move else work.before.workload_state
    if state is WorkloadState.CANCELLING:
        _move(work, WorkloadEvent.CANCEL_DONE)
    elif state is not WorkloadState.STOPPING:
        return
    elif work.fact.outcome in _RETURNS:
        repairs_no_more = () if work.fact.outcome is Outcome.PREEMPTED else None
        _move(work, WorkloadEvent.REQUEUED, not_before=_not_before(work), old_place=repairs_no_more)
    elif work.fact.verdict == Fault.INFRASTRUCTURE:
        _requeue_in_old_place(work)
    elif work.fact.verdict == Fault.PROGRAM:
        failures = work.before.program_failures + 1
        is_left = failures < work.before.max_attempts
        event = WorkloadEvent.REQUEUED if is_left else WorkloadEvent.GIVEN_UP
        _move(work, event, program_failures=failures, old_place=())
    else:
        work.move = replace(_unmoved(work), next_check_at=work.fact.evidence_until)


def _requeue_in_old_place(work: Work) -> None:
    ends = work.before.infrastructure_ends + 1
    wait = None if ends < 3 else work.now + timedelta(seconds=work.policy.backoff_seconds * 2 ** min(ends, 6) // 8)
    place = tuple(dict.fromkeys(pod.node for pod in sorted(work.pods.values(), key=lambda pod: pod.rank)))
    _move(work, WorkloadEvent.REQUEUED, infrastructure_ends=ends, not_before=wait, old_place=place)


def _not_before(work: Work) -> datetime | None:
    """A refusal that another place need not change is not met again at once, and each time later."""
    why = work.fact.reason
    if work.fact.outcome is Outcome.PREEMPTED or why is None or why.code in _GOES_ON_AT_ONCE:
        return None
    doublings = min(work.before.attempts_made - 1, _DOUBLINGS_MAX)
    return work.now + timedelta(seconds=work.policy.backoff_seconds * 2**doublings)


def _unmoved(work: Work) -> WorkloadMove:
    before = work.before
    return WorkloadMove(
        id=before.key.workload,
        state=before.workload_state,
        program_failures=before.program_failures,
        infrastructure_ends=before.infrastructure_ends,
        next_check_at=None,
    )


def _move(
    work: Work,
    event: WorkloadEvent,
    *,
    program_failures: int | None = None,
    infrastructure_ends: int | None = None,
    not_before: datetime | None = None,
    old_place: tuple[NodeId, ...] | None = None,
) -> None:
    move = work.move or _unmoved(work)
    state = advance_workload(move.state, event)
    is_told = event in {WorkloadEvent.REQUEUED, WorkloadEvent.GIVEN_UP} and work.fact.reason is not None
    work.move = replace(
        move,
        state=state,
        program_failures=move.program_failures if program_failures is None else program_failures,
        infrastructure_ends=move.infrastructure_ends if infrastructure_ends is None else infrastructure_ends,
        not_before=not_before,
        old_place=move.old_place if old_place is None else old_place,
        next_check_at=work.now if state is WorkloadState.PENDING else None,
        reasons=(work.fact.reason,) if is_told and work.fact.reason is not None else None,
    )
