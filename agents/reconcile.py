"""From what is wanted and what exists to what must be done now; pure, and the only place where the agent decides.

Deletes on a tombstone only. Everything else is level-triggered: killed at any point, the next pass finishes the work.
What the cluster refuses, and what takes too long, is judged in `rejections`.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from agents import memory
from agents.attempts import Desired, Order, Owned, owned, succeeded_keys
from agents.cluster import Action, Annotate, Create, Delete, Place, View
from agents.facts import (
    ANNOTATION_DONE,
    ANNOTATION_ORDER,
    ANNOTATION_RAN,
    ANNOTATION_REJECTION,
    ObjectFacts,
    PodFacts,
)
from agents.kube import manifests
from controlplane.contract.agent.attempts import ANNOTATION_GENERATION, GATE, Directive, Pin


def decide(desired: Desired, view: View, now: datetime) -> list[Action]:
    """Return the next actions for one Attempt, in order; empty if all is as it should be.

    `now` is not read yet: no rule here waits. It stays an argument, so that one may.
    """
    assert now.tzinfo is not None
    now_there = owned(view, desired.object_id)
    if desired.order is Order.DELETE:
        return list(_deletions(desired, now_there))
    if desired.rejection is not None:
        return list(_notes(desired, now_there.anchor, set()))
    if desired.apply is None:
        return []
    return list(_creations(desired, desired.apply, now_there, view))


def _deletions(desired: Desired, there: Owned) -> Iterator[Action]:
    """The order is noted first, so that a killed agent does not restore what it was deleting; the anchor goes last."""
    anchor = there.anchor
    if anchor is not None and not anchor.deleting and anchor.order != Order.DELETE:
        yield _note(anchor.kind, anchor.namespace, anchor.name, anchor.uid, desired)
    for job in there.jobs.values():
        if not job.deleting:
            yield Delete("Job", job.namespace, job.name, job.uid, propagation="Background")
    grace = desired.body.grace_seconds if desired.body else None
    for pod in there.all_pods():
        # A Job's pods go with it; left over, or not of a Job, they are told one by one.
        if not pod.deleting and (pod.pod_set not in there.jobs or not pod.owner.startswith("Job/")):
            yield Delete("Pod", pod.namespace, pod.name, pod.uid, grace_seconds=grace)
    if anchor is not None and not anchor.deleting and not there.jobs and not there.pods:
        yield Delete("Service", anchor.namespace, anchor.name, anchor.uid)


def _creations(desired: Desired, apply: Directive, there: Owned, view: View) -> Iterator[Action]:
    body = desired.body
    assert body is not None
    done = succeeded_keys(desired, there)
    anchor = there.anchor
    if anchor is None:
        manifest = manifests.service(apply)
        yield Create("Service", body.namespace, manifest["metadata"]["name"], manifest)
    elif desired.order is Order.START and anchor.order != Order.START and not anchor.deleting:
        yield _note(anchor.kind, anchor.namespace, anchor.name, anchor.uid, desired)
    for order in body.pod_sets:
        pins = [pin for pin in body.pins if pin.pod_set == order.name]
        if order.kind == "Job" and order.name not in there.jobs and _is_missing(pins, done, desired):
            manifest = manifests.job(apply, order)
            yield Create("Job", body.namespace, manifest["metadata"]["name"], manifest)
    yield from _notes(desired, anchor, done if anchor is None else _worth_noting(desired, there, done))
    yield from _pods(desired, apply, there, view, done)


def _pods(desired: Desired, apply: Directive, there: Owned, view: View, done: set[tuple[str, int]]) -> Iterator[Action]:
    kinds = {order.name: order for order in (desired.body.pod_sets if desired.body else ())}
    for pin in desired.pins():
        key = (pin.pod_set, pin.index)
        if key in done or key in desired.settled:
            continue  # a program that failed is not let go again by us: the plane judges
        node, pod = view.nodes.get(pin.node), there.current(key)
        hostname = node.hostname if node else pin.node
        order = kinds.get(pin.pod_set)
        if pod is None:
            if order is not None and order.kind == "Pods":
                manifest = manifests.pod(apply, order, pin, hostname)
                yield Create("Pod", manifest["metadata"]["namespace"], manifest["metadata"]["name"], manifest)
            continue
        # A first start goes even to a bad node: the scheduler's refusal is quicker and clearer than our silence.
        is_good = not desired.was_started or (node is not None and node.is_good)
        may_go = desired.order is Order.START and is_good
        if pod.is_gated and not pod.deleting and (action := _place(pod, pin, hostname, may_go=may_go)):
            yield action


def _place(pod: PodFacts, pin: Pin, hostname: str, *, may_go: bool) -> Place | None:
    """Pin where it is not pinned yet; take the gate off where it may go; both in one change where both are due."""
    is_pinned = bool(pod.pinned)
    if is_pinned and pod.pinned != hostname:
        return None  # somebody else's pin: it stays gated, and the budget tells
    if is_pinned and not may_go:
        return None
    return Place(
        pod.namespace,
        pod.name,
        pod.uid,
        hostname=None if is_pinned else hostname,
        has_selector=pod.has_selector,
        rank=None if is_pinned else pin.rank,
        gate_index=pod.gates.index(GATE) if may_go else None,
    )


def _is_missing(pins: Sequence[Pin], done: set[tuple[str, int]], desired: Desired) -> bool:
    """Whether a Job that is not there still has work: a finished one may be cleaned away by anybody."""
    return any((pin.pod_set, pin.index) not in done and (pin.pod_set, pin.index) not in desired.settled for pin in pins)


def _notes(desired: Desired, anchor: ObjectFacts | None, done: set[tuple[str, int]]) -> Iterator[Action]:
    """What the next process must know and could not see: that it has run once, was given up, which pods are done."""
    if anchor is None or anchor.deleting:
        return
    notes = {}
    if desired.has_run and not anchor.ran:
        notes[ANNOTATION_RAN] = "true"
    if desired.rejection is not None and not anchor.rejection:
        notes[ANNOTATION_REJECTION] = desired.rejection.model_dump_json(exclude_defaults=True)
    numbers: dict[str, list[int]] = {}
    for name, index in done:
        numbers.setdefault(name, []).append(index)
    if numbers and (text := memory.encode_done(numbers)) != anchor.done:
        notes[ANNOTATION_DONE] = text
    if notes:
        yield Annotate(anchor.kind, anchor.namespace, anchor.name, anchor.uid, notes)


def _worth_noting(desired: Desired, there: Owned, done: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Plain pods as they finish; a Job, which counts for itself while it is there, as soon as it is done whole."""
    found = set(done)
    for order in desired.body.pod_sets if desired.body else ():
        finished = {key for key in done if key[0] == order.name}
        if order.kind == "Job" and order.name in there.jobs and len(finished) < order.replicas:
            found -= finished
    return found


def _note(kind: str, namespace: str, name: str, uid: str, desired: Desired) -> Annotate:
    texts = {ANNOTATION_ORDER: desired.order.value, ANNOTATION_GENERATION: str(desired.gen)}
    return Annotate(kind, namespace, name, uid, texts)
