"""Attempts move by what agents observe and by what time brings; each request or sweep is one batch of rows.

`record` takes observations and proofs of end, `stop` a decision to end some, `lose_nodes` the end of machines,
`rejudge` new evidence, `check_attempts` the passing of time. What becomes of one Attempt is decided in
`attempt_work`. Silence of a cluster is none of these: under `hold` it moves no Attempt.
"""

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from controlplane.contract.agent.attempts import AttemptObservation, PodObservation
from controlplane.contract.agent.sync import ListPart
from controlplane.core.facts.attempts import AttemptFact, object_id
from controlplane.core.facts.fleet import ClusterFact
from controlplane.core.facts.ledger import AttemptKey
from controlplane.core.ids import AttemptNumber, ClusterId, NodeId, WorkloadId
from controlplane.core.lifecycle import AttemptState, ImpossibleTransition, Outcome
from controlplane.core.policy import Policy
from controlplane.core.reasons import Reason, ReasonCode, reason
from controlplane.services import attempt_batch, recovery, wire
from controlplane.services.attempt_batch import By
from controlplane.services.attempt_told import INVALID, STALE, UNKNOWN, lose_pods, tell_attempt, tell_missing, tell_pod
from controlplane.services.attempt_work import (
    CHECK_SECONDS,
    RUNNING_CHECK_SECONDS,
    Work,
    declare_lost,
    follow,
    order_stop,
    reject,
)
from controlplane.services.ports.unit_of_work import UnitOfWork

PLANE = By("plane")
PREPARE_SECONDS_MORE = 180  # behind the agent's own budgets, in case that an agent never speaks of one
START_SECONDS_MORE = 600

log = structlog.get_logger(__name__)

Fold = Callable[[Work], None]


@dataclass(frozen=True, slots=True)
class Told:
    """One request's observations; `part`: what is complete of them, so what is missing there has no object."""

    attempts: Sequence[AttemptObservation] = ()
    pods: Sequence[PodObservation] = ()
    part: ListPart | None = None
    is_recovering: bool = False  # the rows come from a backup: what a complete list does not name, is over


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was not taken, by object id, and the clusters whose new directives need numbers."""

    refused: dict[str, str] = field(default_factory=dict)
    clusters: set[ClusterId] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Ending:
    """How an Attempt is to end, and why."""

    outcome: Outcome
    why: Reason


def record(uow: UnitOfWork, cluster: ClusterFact, told: Told) -> Recorded:
    """Put a request's observations on the rows and take the steps that follow."""
    refused: dict[str, str] = {}
    attempts = {_key(each, refused): each for each in told.attempts}
    pods: dict[AttemptKey | None, list[PodObservation]] = {}
    for each in told.pods:
        pods.setdefault(_key(each, refused), []).append(each)
    named = {key for key in (*attempts, *pods) if key is not None}
    part = told.part
    live = uow.attempts.live_in(cluster.id) if part is not None else []
    expected = {key for key in live if part is not None and part.may_have(object_id(key))}

    def fold(work: Work) -> None:
        key = work.before.key
        answers = [tell_pod(work, cluster.id, each) for each in pods.get(key, ())]
        if key in attempts:
            answers.append(tell_attempt(work, cluster.id, attempts[key]))
        if part is not None and key not in attempts and told.is_recovering and _ends_after(part, key):
            name = work.placements[cluster.id].cluster_name if cluster.id in work.placements else cluster.name
            order_stop(work, Outcome.VOIDED, reason(ReasonCode.PLANE_RESTORED, cluster=name))
        elif part is not None and (key not in attempts or attempts[key].state != "unknown"):
            tell_missing(work, cluster.id, part, {(each.pod_set, each.index) for each in pods.get(key, ())})
        code = next((answer for answer in answers if answer is not None), None)
        if code is not None:
            refused[object_id(key)] = code

    known, clusters = _carry(uow, named | expected, fold, By(f"agent:{cluster.name}"))
    refused.update({object_id(key): UNKNOWN for key in named - known})
    past = {key for key, each in attempts.items() if key is not None and each.state != "gone" and key in known}
    past = {key for key in past if refused.get(object_id(key)) == STALE}
    if past and uow.attempts.take_over(cluster.id, past):  # what a lost cluster runs on, when it is enrolled anew
        clusters.add(cluster.id)
    alive = {key for key in attempts.keys() - known if key is not None and attempts[key].state != "gone"}
    recovery.hold_back(uow, cluster, alive)
    return Recorded(refused, clusters)


def stop(uow: UnitOfWork, keys: Collection[AttemptKey], outcome: Outcome, why: Reason | None, by: By) -> None:
    """Order these Attempts to end; tombstones stand until their clusters say gone. Numbers are given here too."""
    attempt_batch.number(uow, stop_unnumbered(uow, keys, outcome, why, by))


def stop_unnumbered(
    uow: UnitOfWork, keys: Collection[AttemptKey], outcome: Outcome, why: Reason | None, by: By
) -> set[ClusterId]:
    """The same for a larger batch, whose directives get their numbers after it; returns whose."""
    _, clusters = _carry(uow, keys, lambda work: order_stop(work, outcome, why), by)
    return clusters


def stop_those(
    uow: UnitOfWork, keys: Collection[AttemptKey], states: Collection[AttemptState], ending: Ending, by: By
) -> set[ClusterId]:
    """The same for those that are in one of these states when they are locked; the others stay as they are."""

    def fold(work: Work) -> None:
        if work.fact.state in states:
            order_stop(work, ending.outcome, ending.why)

    _, clusters = _carry(uow, keys, fold, by)
    return clusters


def lose_cluster(uow: UnitOfWork, cluster: ClusterId, keys: Collection[AttemptKey], by: By) -> set[ClusterId]:
    """A cluster was declared lost: these Attempts end without its proof. Returns others with new directives."""
    _, stopped = _carry(uow, keys, lambda work: declare_lost(work, cluster), by)
    _, ended = _carry(uow, keys, lambda _work: None, by)  # the database takes one step of a Workload at a time
    return (stopped | ended) - {cluster}


def lose_nodes(uow: UnitOfWork, lost: Collection[NodeId], removed: Collection[NodeId]) -> set[ClusterId]:
    """Machines are lost: their gangs end whole. Holds stay until the pod's or the Node's object is gone."""
    nodes = frozenset((*lost, *removed))
    _, clusters = _carry(uow, uow.attempts.live_on(nodes), lambda work: lose_pods(work, nodes), PLANE)
    uow.attempts.release_holds(uow.attempts.held_on(removed))
    return clusters


def rejudge(uow: UnitOfWork, nodes: Collection[NodeId]) -> set[ClusterId]:
    """There is news of these machines: Attempts that ended badly on them may be judged now."""
    _, clusters = _carry(uow, uow.attempts.live_on(nodes), lambda _work: None, PLANE)
    return clusters


def check_attempts(uow: UnitOfWork, limit: int) -> int:
    """Look at Attempts whose time has come: evidence windows, and budgets that an agent let pass in silence."""
    due = uow.attempts.due(limit)
    _, clusters = _carry(uow, due, _check, PLANE)
    attempt_batch.number(uow, clusters)
    return len(due)


def _carry(uow: UnitOfWork, keys: Collection[AttemptKey], fold: Fold, by: By) -> tuple[set[AttemptKey], set[ClusterId]]:
    """Work on these Attempts twice: unlocked, to learn what to lock in which order, then for good.

    Returns those that exist and the clusters with new directives. Should the second look differ, locks may be taken
    out of order; Postgres then ends one of two that wait for each other, and it is run again.
    """
    found = uow.attempts.read(keys)
    known = {fact.key for fact in found}
    expected = [work for work in _worked(uow, found, fold) if work.has_changed()]
    if not expected:
        return known, set()
    attempt_batch.lock(uow, expected)
    locked = uow.attempts.lock([work.before.key for work in expected])
    works = [work for work in _worked(uow, locked, fold) if work.has_changed()]
    return known, attempt_batch.write(uow, works, by)


def _worked(uow: UnitOfWork, facts: Sequence[AttemptFact], fold: Fold) -> list[Work]:
    policies = uow.attempts.policies({fact.pool for fact in facts})
    since = uow.agents.plane().clocks_from(uow.now)
    works: list[Work] = []
    for fact in facts:
        work = Work(fact, uow.now, policies.get(fact.pool, Policy()), since)
        try:
            fold(work)
            follow(work)
        except ImpossibleTransition:  # one broken Attempt must not keep its cluster from being heard
            log.exception("attempt_stuck", workload=fact.key.workload, attempt=fact.key.attempt)
            work = Work(fact, uow.now, work.policy, since)
            if fact.next_check_at is not None and fact.next_check_at <= uow.now:
                work.look_again(CHECK_SECONDS)  # nor stand before all others that are due
        works.append(work)
    return works


def _check(work: Work) -> None:
    """Set the next look, and void what should long have been prepared or running although its clusters are there."""
    fact = work.fact
    if fact.next_check_at is None or fact.next_check_at > work.now:
        return
    budgets = [wire.budgets_of(each.budgets) for each in work.placements.values()]
    prepare = max((each.prepare_seconds for each in budgets), default=0) + PREPARE_SECONDS_MORE
    start = max((each.bind_seconds + each.pull_seconds + each.ready_seconds for each in budgets), default=0)
    over = {
        AttemptState.PLACED: (fact.placed_at, prepare, "prepared"),
        AttemptState.STARTING: (fact.start_ordered_at, start + START_SECONDS_MORE, "running"),
    }.get(fact.state)
    if over is not None and all(each.cluster_is_ready for each in work.placements.values()):
        since, limit, goal = over
        if since is not None and work.now - max(since, work.clocks_from or since) >= timedelta(seconds=limit):
            reject(work, reason(ReasonCode.BUDGET_PASSED, goal=goal, limit=limit), Outcome.VOIDED)
            return
    work.look_again(RUNNING_CHECK_SECONDS if fact.state is AttemptState.RUNNING else CHECK_SECONDS)


def _ends_after(part: ListPart, key: AttemptKey) -> bool:
    """Whether an Attempt, if it were known there, would have been named by the end of this part."""
    return part.may_have(object_id(key)) and (part.until is None or object_id(key) < part.until.object_id)


def _key(told: AttemptObservation | PodObservation, refused: dict[str, str]) -> AttemptKey | None:
    try:
        workload = str(uuid.UUID(told.workload))
    except ValueError:
        refused[f"{told.workload}.{told.attempt}"] = INVALID
        return None
    if not 1 <= told.attempt < 2**31:
        refused[f"{told.workload}.{told.attempt}"] = INVALID
        return None
    return AttemptKey(WorkloadId(workload), AttemptNumber(told.attempt))
