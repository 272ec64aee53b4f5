"""Why an Attempt cannot be prepared or started here: foreign pods, the scheduler's refusal, budgets, the cluster's no.

Pure. A rejection is final for the Attempt: the plane answers with a tombstone and plans anew. After the Attempt has run
once, nothing is rejected any more: what goes wrong then is a pod's failure.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from agents import quantities
from agents.attempts import Desired, Order, Owned, owned, succeeded_keys
from agents.cluster import Create, Outcome, Verdict, View
from agents.facts import PodFacts, cut
from agents.inventory import foreign_pods
from controlplane.contract.agent.attempts import Budgets, Rejection

# The scheduler tries again within moments of a pod's release; its first word may be about a cache that is behind.
REFUSAL_SETTLES = timedelta(seconds=2)
GOALS = {"prepare": "prepared", "bind": "bound to its nodes", "pull": "pulled and started", "ready": "ready"}


def judge(desired: Desired, view: View, now: datetime, known: frozenset[str]) -> Rejection | None:
    """The reason why this Attempt must be given up, if there is one."""
    if not desired.is_live or desired.has_run:
        return None
    there = owned(view, desired.object_id)
    if desired.body is not None and view.namespaces and desired.body.namespace not in view.namespaces:
        return Rejection(code="cluster-without-namespace", facts={"namespace": desired.body.namespace})
    return (
        _taken_devices(desired, there, view, known)
        or _refused_pods(desired, there, view)
        or _refused_by_scheduler(desired, there, now)
        or _budget_passed(desired, there, now)
    )


def of_outcome(action: object, outcome: Outcome) -> Rejection | None:
    """What an action's failure means for its Attempt; None where trying again may help."""
    facts: dict[str, str | int] = {"words": cut(outcome.words)}
    if isinstance(action, Create):
        facts |= {"kind": action.kind, "name": action.name, "namespace": action.namespace}
    if outcome.verdict is Verdict.CONFLICT:
        return Rejection(code="name-conflict", facts=facts)
    if outcome.verdict is Verdict.NO_NAMESPACE:
        return Rejection(code="cluster-without-namespace", facts=facts)
    if outcome.verdict is Verdict.REFUSED and isinstance(action, Create):
        return Rejection(code="refused-by-cluster", facts=facts)
    return None


def _taken_devices(desired: Desired, there: Owned, view: View, known: frozenset[str]) -> Rejection | None:
    """Nodes where foreign pods took what our pods, not bound yet, were to get."""
    waiting: dict[tuple[str, str], int] = {}
    done = succeeded_keys(desired, there)
    for pin in desired.pins():
        pod = there.current((pin.pod_set, pin.index))
        is_there = pod is not None and (bool(pod.node) or pod.is_finished)
        if not is_there and (pin.pod_set, pin.index) not in done:
            waiting[pin.node, pin.resource] = waiting.get((pin.node, pin.resource), 0) + pin.amount
    foreign = {node: foreign_pods(view, node, known) for node, _ in waiting}
    nodes: set[str] = set()
    pods: set[str] = set()
    amount = 0
    for (name, resource), wanted in waiting.items():
        theirs = [pod for pod in foreign[name] if pod.requests.get(resource)]
        used = sum(pod.requests[resource] for pod in theirs)
        # Also by other Attempts of ours: they have what the plane gave them.
        bound = sum(pod.requests.get(resource, 0) for pod in view.pods_on(name) if not pod.is_finished)
        if used and (free := _allocatable(view, name, resource)) is not None and free - bound < wanted:
            nodes.add(name)
            pods.update(f"{pod.namespace}/{pod.name}" for pod in theirs)
            amount += used
    if not nodes:
        return None
    facts: dict[str, str | int] = {"pods": cut(", ".join(sorted(pods)[:8])), "count": len(pods), "amount": amount}
    return Rejection(code="foreign-pods", facts=facts, nodes=sorted(nodes)[:1000])


def _refused_pods(desired: Desired, there: Owned, view: View) -> Rejection | None:
    """A Job whose controller may not create its pods: a quota or a webhook said no, in its own words."""
    for name, job in there.jobs.items():
        words = view.refusals.get(job.uid)
        missing = [pin for pin in desired.pins() if pin.pod_set == name and there.current((name, pin.index)) is None]
        if words and missing and desired.order is Order.PREPARE:
            return Rejection(code="refused-by-cluster", facts={"words": words, "pods": len(missing)})
    return None


def _refused_by_scheduler(desired: Desired, there: Owned, now: datetime) -> Rejection | None:
    """A released pod that the cluster's own scheduler will not bind, for a reason that nobody modelled."""
    refused = [
        pod
        for pod in _current_pods(desired, there)
        if pod.unschedulable
        and not pod.is_gated
        and not pod.node
        and now - max(pod.unschedulable_at or desired.since, desired.since) >= REFUSAL_SETTLES
    ]
    if not refused:
        return None
    nodes = {pin.node for pin in desired.pins() for pod in refused if (pin.pod_set, pin.index) == pod.key}
    facts: dict[str, str | int] = {"words": refused[0].unschedulable, "pods": len(refused)}
    return Rejection(code="unmodelled-constraint", facts=facts, nodes=sorted(nodes)[:1000])


def _budget_passed(desired: Desired, there: Owned, now: datetime) -> Rejection | None:
    budgets = desired.body.budgets if desired.body else Budgets()
    waited = now - desired.since
    if desired.order is Order.PREPARE:
        if not desired.was_started and not is_prepared(desired, there) and _longer(waited, budgets.prepare_seconds):
            return _passed("prepare", budgets.prepare_seconds, _missing_nodes(desired, there))
        return None
    for pod in _current_pods(desired, there):
        since = max(pod.scheduled_at or desired.since, desired.since)
        if pod.is_finished or (pod.phase == "Running" and pod.ready):
            continue
        if not pod.node:
            stage, budget = "bind", budgets.bind_seconds
            since = max(pod.created_at or desired.since, desired.since)
        elif pod.phase == "Running":
            stage, budget = "ready", budgets.ready_seconds
            since = max(pod.started_at or desired.since, desired.since)
        else:
            stage, budget = "pull", budgets.pull_seconds
        if _longer(now - since, budget):
            return _passed(stage, budget, [pod.node] if pod.node else [], pod.waiting or pod.unschedulable)
    return None


def is_prepared(desired: Desired, there: Owned) -> bool:
    """Every pod exists, was admitted, and is pinned; whether it is still gated does not matter."""
    if there.anchor is None:
        return False
    done = succeeded_keys(desired, there)
    for pin in desired.pins():
        pod = there.current((pin.pod_set, pin.index))
        if (pin.pod_set, pin.index) in done:
            continue
        if pod is None or not pod.pinned or pod.deleting:
            return False
    return True


def _passed(stage: str, budget: int, nodes: Iterable[str], words: str = "") -> Rejection:
    facts: dict[str, str | int] = {"goal": GOALS[stage], "limit": budget, "words": cut(words)}
    return Rejection(code="budget-passed", facts=facts, nodes=sorted(set(nodes))[:1000])


def _missing_nodes(desired: Desired, there: Owned) -> list[str]:
    return [pin.node for pin in desired.pins() if there.current((pin.pod_set, pin.index)) is None]


def _current_pods(desired: Desired, there: Owned) -> list[PodFacts]:
    found = (there.current((pin.pod_set, pin.index)) for pin in desired.pins())
    return [pod for pod in found if pod is not None]


def _allocatable(view: View, node: str, resource: str) -> int | None:
    found = view.nodes.get(node)
    return quantities.count(found.allocatable.get(resource, "0")) if found else None


def _longer(waited: timedelta, seconds: int) -> bool:
    return waited > timedelta(seconds=seconds)
