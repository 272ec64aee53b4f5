"""What goes up about each Attempt and each of its pods; pure.

Gone is said only of an Attempt that was to be deleted and of which no object exists. A pod that somebody deleted while
its Attempt is live is not gone but being replaced. What was settled for good is said the same way for ever.
"""

from collections.abc import Iterable
from dataclasses import replace

from agents.attempts import Desired, Order, Owned, PodKey, ended_by_others, is_infrastructure, owned, succeeded_keys
from agents.cluster import View
from agents.facts import PodFacts
from agents.rejections import is_prepared
from controlplane.contract.agent.attempts import AttemptObservation, Pin, PodObservation, PodPhase, Rejection

UNKNOWN_MAX = 500


def refresh(desired: Desired, view: View) -> Desired:
    """Note what has become final: pods that succeeded or failed by themselves, a start, a first whole run."""
    there = owned(view, desired.object_id)
    done = succeeded_keys(desired, there)
    settled = dict(desired.settled)
    running = 0
    for pin in desired.pins():
        key = (pin.pod_set, pin.index)
        final = next((pod for pod in there.pods.get(key, ()) if _is_final(pod)), None)
        if key not in settled and final is not None:
            settled[key] = pod_observation(desired, key, final)
        elif key not in settled and key in done:
            settled[key] = _vanished(desired, key, "succeeded")
        current = there.current(key)
        running += key in settled or (current is not None and current.phase == "Running")
    was_let_go = there.anchor is not None and bool(there.anchor.ran)  # perhaps by hand: `muster-agent release`
    has_run = desired.has_run or was_let_go or (bool(desired.pins()) and running == len(desired.pins()))
    was_started = desired.was_started or (desired.order is Order.START and _all_released(desired, there, settled))
    if len(settled) == len(desired.settled) and (has_run, was_started) == (desired.has_run, desired.was_started):
        return desired
    return replace(desired, settled=settled, has_run=has_run, was_started=was_started)


def attempt_observation(desired: Desired, view: View) -> AttemptObservation:
    """How far this Attempt is; `applied_gen` is the newest order that is fulfilled."""
    there = owned(view, desired.object_id)
    base = AttemptObservation(
        object_id=desired.object_id,
        workload=desired.workload,
        attempt=desired.attempt,
        applied_gen=0,
        state="applying",
    )
    if desired.order is Order.DELETE:
        state = "gone" if there.is_nothing else "stopping"
        return base.model_copy(update={"state": state, "applied_gen": desired.gen})
    if desired.rejection is not None:
        return base.model_copy(update={"state": "rejected", "applied_gen": desired.gen, "rejection": desired.rejection})
    applied = desired.apply.gen if desired.apply else 0
    if desired.order is Order.START:
        if desired.was_started:
            return base.model_copy(update={"state": "started", "applied_gen": desired.gen})
        return base.model_copy(update={"state": "prepared", "applied_gen": applied})
    if is_prepared(desired, there):
        return base.model_copy(update={"state": "prepared", "applied_gen": applied})
    return base


def pod_observations(desired: Desired, view: View) -> Iterable[tuple[PodKey, PodObservation]]:
    """Each pod that the directive names, as it is; nothing of pods that were never seen."""
    there = owned(view, desired.object_id)
    for pin in desired.pins():
        key = (pin.pod_set, pin.index)
        if key in desired.settled:
            yield key, desired.settled[key]
        elif (pod := there.current(key)) is not None:
            seen = pod_observation(desired, key, pod)
            yield key, _being_replaced(seen, pod, pin, view) if desired.was_started else seen
        elif desired.order is Order.DELETE:
            words = view.last_words(desired.object_id, key)
            yield key, _vanished(desired, key, "gone").model_copy(update={"message": words})
        elif desired.was_started:
            yield key, _vanished(desired, key, "gated")


def unknown_observations(view: View, known: Iterable[str]) -> list[AttemptObservation]:
    """Objects with our labels that no directive names: said, never touched."""
    found = []
    for object_id in sorted(view.owners() - set(known))[:UNKNOWN_MAX]:
        workload, _, attempt = object_id.rpartition(".")
        if workload and attempt.isdecimal() and len(workload) <= 64:
            found.append(
                AttemptObservation(
                    object_id=object_id, workload=workload, attempt=int(attempt), applied_gen=0, state="unknown"
                )
            )
    return found


def local_refusal(desired: Desired, rejection: Rejection) -> Desired:
    """The wish, given up; the first reason stays."""
    return desired if desired.rejection is not None else replace(desired, rejection=rejection)


def pod_observation(desired: Desired, key: PodKey, pod: PodFacts) -> PodObservation:
    """One pod. Deleted by somebody else, or ended by its node, is `disrupted`; deleted by our order is not.

    How a pod ends that we told to stop says nothing about its program, so it runs until it is gone.
    """
    by_us = desired.order is Order.DELETE
    return PodObservation(
        workload=desired.workload,
        attempt=desired.attempt,
        pod_set=key[0],
        index=key[1],
        uid=pod.uid,
        phase="running" if by_us and pod.deleting and pod.node else _phase(pod),
        node=pod.node,
        ready=pod.ready,
        exit_code=pod.exit_code,
        disrupted=pod.disrupted or (not by_us and is_infrastructure(pod)),
        reason=pod.reason,
        message=pod.message,
        unschedulable="" if pod.is_gated else pod.unschedulable,
        waiting=pod.waiting,
        device_keys=list(pod.device_keys),
        started_at=pod.started_at,
        finished_at=pod.finished_at,
    )


def _being_replaced(seen: PodObservation, pod: PodFacts, pin: Pin, view: View) -> PodObservation:
    """A disrupted pod waits for its replacement where its node is good, and has failed where it is not."""
    node = view.nodes.get(pin.node)
    is_good = node is not None and node.is_good
    if pod.phase == "Failed" and is_good:
        return seen.model_copy(update={"phase": "gated", "exit_code": None})
    if pod.is_gated and not is_good:
        return seen.model_copy(update={"phase": "failed", "disrupted": True, "reason": "NodeNotGood"})
    return seen


def _is_final(pod: PodFacts) -> bool:
    """Ended by itself; a disrupted pod is replaced instead, save where the kubelet refused it."""
    return pod.phase == "Succeeded" or (pod.phase == "Failed" and not ended_by_others(pod))


def _phase(pod: PodFacts) -> PodPhase:
    if pod.phase == "Succeeded":
        return "succeeded"
    if pod.phase == "Failed":
        return "failed"
    if pod.phase in ("Running", "Unknown") and pod.node:
        return "running"
    return "gated" if pod.gates else "pending"


def _vanished(desired: Desired, key: PodKey, phase: PodPhase) -> PodObservation:
    return PodObservation(
        workload=desired.workload,
        attempt=desired.attempt,
        pod_set=key[0],
        index=key[1],
        uid="",
        phase=phase,
        disrupted=phase == "gated",
    )


def _all_released(desired: Desired, there: Owned, settled: dict[PodKey, PodObservation]) -> bool:
    for pin in desired.pins():
        pod = there.current((pin.pod_set, pin.index))
        if (pin.pod_set, pin.index) not in settled and (pod is None or pod.is_gated):
            return False
    return True
