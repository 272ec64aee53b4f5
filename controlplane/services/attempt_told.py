"""What an agent told, put on an Attempt's rows: older, doubled and foreign words change nothing.

A pod object (uid) only goes forward; another uid in its rank is its replacement, and words about the one before are
too late. What follows from the new rows is `attempt_work`'s.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from controlplane.contract.agent.attempts import AttemptObservation, PodObservation
from controlplane.contract.agent.sync import ListPart
from controlplane.core.facts.attempts import (
    POD_ENDED,
    NodeRefused,
    PlacementFact,
    PlacementState,
    PodFact,
    PodState,
    object_id,
)
from controlplane.core.ids import ClusterId
from controlplane.core.lifecycle import AttemptState, Outcome
from controlplane.core.reasons import ReasonCode
from controlplane.services import wire
from controlplane.services.attempt_work import Work, bury_again, give_up_usage, reject

STALE, UNKNOWN, INVALID = "stale-attempt", "unknown-object", "invalid"
_FORWARD = [PodState.PLACED, PodState.GATED, PodState.PENDING, PodState.RUNNING, PodState.LOST]
_RANK = {state: place for place, state in enumerate(_FORWARD)} | dict.fromkeys(POD_ENDED, len(_FORWARD))
_OVER = frozenset({AttemptState.STOPPING, AttemptState.ENDED})
_VOIDED = frozenset({ReasonCode.FOREIGN_PODS, ReasonCode.BUDGET_PASSED})


def tell_attempt(work: Work, cluster: ClusterId, told: AttemptObservation) -> str | None:
    """Take how far a cluster is; the code of a refusal if this is about the past."""
    placement = work.placements.get(cluster)
    if placement is None:
        return STALE
    if placement.state is PlacementState.GONE:
        if told.state != "gone":
            bury_again(work, cluster)
        return STALE
    applied = min(told.applied_gen, placement.wanted_gen)
    if applied < placement.applied_gen:
        return STALE
    state = _placement_state(placement, told, applied)
    words = told.message or placement.message
    work.placements[cluster] = replace(placement, applied_gen=applied, state=state, message=words)
    if state is PlacementState.GONE:
        for pod in work.pods_in(cluster):
            if pod.state not in POD_ENDED:
                ended = _ended_state(pod, PodState.GONE)
                work.put(replace(pod, state=ended, finished_at=pod.finished_at or work.now, changed_at=work.now))
    elif state is PlacementState.REJECTED and placement.state is not PlacementState.REJECTED:
        _take_rejection(work, placement, told)
    return None


def tell_pod(work: Work, cluster: ClusterId, told: PodObservation) -> str | None:
    """Take what was seen of one pod; the code of a refusal if no such pod is here."""
    pod = work.pods.get((cluster, told.pod_set, told.index))
    if pod is None:
        return INVALID if cluster in work.placements else STALE
    if work.fact.state is AttemptState.ENDED and pod.state is not PodState.LOST:
        return STALE
    state = PodState(told.phase)
    if told.uid and pod.uid and told.uid != pod.uid:
        _replace_pod(work, pod, told, state)
        return None
    if pod.state in POD_ENDED or _RANK[state] < _RANK[pod.state]:
        return None
    seen = _seen(pod, told, _ended_state(pod, state), work.now)
    if state is PodState.GONE and work.fact.state not in _OVER:  # not by our order, so by somebody else's
        seen = replace(seen, disrupted=True)
    work.put(seen)
    return None


def tell_missing(work: Work, cluster: ClusterId, part: ListPart, seen: set[tuple[str, int]]) -> None:
    """A complete list named these pods only: whatever else of that part had been seen here has no object any more."""
    name = object_id(work.before.key)
    for pod in work.pods_in(cluster):
        if not part.has(name, pod.pod_set, pod.index):
            continue
        is_awaited = pod.uid != "" and pod.state in {PodState.GATED, PodState.PENDING, PodState.RUNNING}
        if is_awaited and (pod.pod_set, pod.index) not in seen:
            words = f"its object vanished from {work.placements[cluster].cluster_name}"
            if _ended_state(pod, PodState.GONE) is PodState.FAILED:
                work.put(replace(pod, state=PodState.FAILED, changed_at=work.now))
                continue
            gone = replace(pod, state=PodState.GONE, disrupted=True, message=words, changed_at=work.now)
            work.put(replace(gone, finished_at=work.now))


def lose_pods(work: Work, nodes: frozenset[int]) -> None:
    """Nobody can say what pods on these nodes do."""
    for pod in list(work.pods.values()):
        if pod.node in nodes and pod.state not in POD_ENDED and pod.state is not PodState.LOST:
            work.put(replace(pod, state=PodState.LOST, message="its node is lost", changed_at=work.now))


def _placement_state(placement: PlacementFact, told: AttemptObservation, applied: int) -> PlacementState:
    state = placement.state
    if state is PlacementState.STOPPING:
        return PlacementState.GONE if told.state == "gone" and applied == placement.wanted_gen else state
    if told.state == "rejected":
        return PlacementState.REJECTED
    if told.state in {"prepared", "started"} and state is PlacementState.ORDERED:
        return PlacementState.PREPARED
    return state


def _take_rejection(work: Work, placement: PlacementFact, told: AttemptObservation) -> None:
    why = wire.rejection_reason(told.rejection, told.message, placement.cluster_name)
    is_short = why.code is ReasonCode.FOREIGN_PODS
    seconds = work.policy.backoff_seconds if is_short else work.policy.exclusion_seconds
    until = work.now + timedelta(seconds=seconds)
    names = told.rejection.nodes if told.rejection is not None else []
    refused = [
        NodeRefused(work.fact.pool, work.fact.shape, placement.cluster, name, why.sentence(), until) for name in names
    ]
    outcome = Outcome.VOIDED if why.code in _VOIDED else Outcome.REJECTED
    reject(work, why, outcome, refused)


def _replace_pod(work: Work, pod: PodFact, told: PodObservation, state: PodState) -> None:
    """Another object stands for this rank; one of before changes nothing."""
    is_late = told.uid == pod.replacement_of or state is PodState.GONE
    if is_late or work.fact.state is AttemptState.ENDED or pod.state is PodState.SUCCEEDED:
        return
    if work.fact.state is AttemptState.STOPPING:
        _await_replacement(work, pod, told, state)
        return
    give_up_usage(work, pod, work.now)
    fresh = replace(pod, uid="", replacement_of=pod.uid, started_at=None, finished_at=None, exit_code=None)
    work.put(_seen(replace(fresh, disrupted=False, device_keys=()), told, state, work.now))


def _await_replacement(work: Work, pod: PodFact, told: PodObservation, state: PodState) -> None:
    """One let go just before the stop uses its devices until it is gone, too.

    How the pod before ended stays on the row: the verdict may yet rest on it.
    """
    if state in POD_ENDED:
        return
    give_up_usage(work, pod, work.now)
    has_failed = pod.state is PodState.FAILED or pod.disrupted
    work.put(
        replace(
            pod,
            state=state,
            uid=told.uid,
            replacement_of=pod.uid,
            started_at=None,
            finished_at=(pod.finished_at or work.now) if has_failed else None,
            device_keys=tuple(told.device_keys),
            changed_at=work.now,
        )
    )


def _ended_state(pod: PodFact, state: PodState) -> PodState:
    """A rank that had failed before its replacement was stopped has failed, however that one went."""
    has_failed = pod.finished_at is not None and pod.state not in POD_ENDED
    return PodState.FAILED if state is PodState.GONE and has_failed else state


def _seen(pod: PodFact, told: PodObservation, state: PodState, now: datetime) -> PodFact:
    started = wire.believable(told.started_at, now) or pod.started_at
    if started is None and state is PodState.RUNNING:
        started = now
    finished = pod.finished_at
    if state in POD_ENDED:
        finished = wire.believable(told.finished_at, now) or finished or now
    # Why it waited is over once it runs.
    before = "" if state is PodState.RUNNING and pod.state is not PodState.RUNNING else pod.message
    seen = replace(
        pod,
        state=state,
        uid=told.uid or pod.uid,
        exit_code=told.exit_code if told.exit_code is not None else pod.exit_code,
        disrupted=pod.disrupted or told.disrupted,
        message=told.message or told.unschedulable or told.waiting or told.reason or before,
        device_keys=tuple(told.device_keys) or pod.device_keys,
        started_at=started,
        finished_at=finished,
    )
    return seen if seen == pod else replace(seen, changed_at=now)
