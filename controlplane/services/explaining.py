"""Why a Workload stands where it stands, said to the researcher who asks.

For one that waits, a planner's view of this very moment is asked (`core.cycle` on the live world), so that what is said
is true now; Reasons that an earlier cycle stored are the answer where that view cannot be had.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from controlplane.contract.rest.explanations import (
    AdviceView,
    Explanation,
    HolderView,
    LevelView,
    StepView,
    WhatIf,
)
from controlplane.contract.rest.workloads import PRIORITY_MAX
from controlplane.core.advice import Advice
from controlplane.core.advising import Bounds, Question, Told, advise
from controlplane.core.demand import Workload
from controlplane.core.facts.queries import Scope, WaitingFact
from controlplane.core.facts.tenancy import Principal
from controlplane.core.ids import WorkloadId
from controlplane.core.levels import levels
from controlplane.core.lifecycle import WorkloadState
from controlplane.core.plan import Admit
from controlplane.core.reasons import Reason, told_within
from controlplane.services import authz, supposing
from controlplane.services.authz import Action
from controlplane.services.errors import Conflict, NotFound
from controlplane.services.live_worlds import LiveWorld, LiveWorlds
from controlplane.services.plan_told import reason_view
from controlplane.services.ports.unit_of_work import UnitOfWorkFactory
from controlplane.services.priorities import GRANTED_TO_ALL

BOUNDS = Bounds(trials_max=32, work_units_max=60_000)  # about a second where 10,000 wait
NO_TRIALS = Bounds(trials_max=0)
WORDS_SHOWN = 2
OTHER_WORK, OTHER_QUEUE = "other work", "another queue"
SAID_NOTHING = "Error"  # the kubelet's word for any bad end

_STEPS = {
    "placed": "its nodes are chosen and held, and the cluster is creating its pods",
    "prepared": "its pods are created and held back until all of them may start",
    "starting": "its pods may start; images are pulled and containers come up",
    "running": "its pods run",
    "stopping": "its pods are being stopped",
    "ended": "its last attempt has ended",
}
_ENDS = {
    "preempted": "gave its devices back to the queue that lent them",
    "rejected": "was refused by the cluster",
    "voided": "was taken back before it started",
    "lost": "was lost with its machines",
    "failed": "failed",
    "moved": "was moved",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """Who wants to know, and what is to be supposed (as `supposing.FORMS` are written)."""

    principal: Principal
    suppositions: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Live:
    """What the world of this moment says."""

    told: Told
    levels: tuple[LevelView, ...] = ()
    what_if: WhatIf | None = None


def explained(
    factory: UnitOfWorkFactory, worlds: LiveWorlds, scope: Scope, workload: WorkloadId, asked: Asked | None = None
) -> Explanation:
    """The state in words, with every Reason; for who asks also what would start it, or what was supposed.

    Raises NotFound; and where something is supposed Malformed, Invalid, Forbidden, and Conflict if it does not wait.
    """
    with factory() as uow:
        fact, now = uow.queries.waiting(scope, workload), uow.now
    if fact is None:
        raise NotFound("there is no such workload")
    live = _live(worlds, scope, fact, asked) if fact.state is WorkloadState.PENDING else None
    if asked is not None and asked.suppositions and live is None:
        raise Conflict(f"{fact.name} is {fact.state}: only what waits could start otherwise", slug="not-waiting")
    reasons = fact.reasons
    if live is not None:
        found = live.told.outcome
        reasons = () if isinstance(found, Admit) else tuple(told_within(each, scope.paths) for each in found)
    if fact.state is not WorkloadState.PENDING:
        reasons = (fact.attempt_reason,) if fact.attempt_reason is not None else ()
    return Explanation(
        id=fact.id,
        name=fact.name,
        state=fact.state,
        text=_text(fact, reasons, now, is_live=live is not None),
        reasons=[reason_view(each) for each in reasons],
        live=live is not None,
        what_if=None if live is None else live.what_if,
        levels=[] if live is None else list(live.levels),
        advice=[] if live is None else [_advice_view(each) for each in live.told.advice],
        is_all_tried=live is None or live.what_if is not None or live.told.is_all,
    )


def _live(worlds: LiveWorlds, scope: Scope, fact: WaitingFact, asked: Asked | None) -> _Live | None:
    """None where the Workload is no longer among those that wait: it was placed between two looks."""
    with worlds.of(fact.pool) as world:
        waiting = world.snapshot.waiting.get(fact.id)
        if waiting is None:
            return None
        question = Question(world.snapshot, world.policy, world.now, fact.id, world.index, world.tree)
        if asked is None:
            return _Live(advise(question, NO_TRIALS))
        if not asked.suppositions:
            told = advise(question, _bounds(asked.principal, fact.queue_path))
            return _Live(told, tuple(_level_views(world, waiting, asked.principal)))
        suppositions = supposing.supposed_from(asked.suppositions, asked.principal, world.snapshot)
        return _Live(advise(question, NO_TRIALS), what_if=supposing.answer(world, waiting, suppositions, scope))


def _bounds(principal: Principal, path: str) -> Bounds:
    """Nobody is told to give a priority that is not theirs to give."""
    may_push = authz.may(principal, Action.WORKLOAD_PUSH, path)
    return replace(BOUNDS, priority_max=PRIORITY_MAX if may_push else GRANTED_TO_ALL)


def _level_views(world: LiveWorld, workload: Workload, principal: Principal) -> Iterator[LevelView]:
    """Whose work it is that holds what is used up is told to those who see it."""
    queues, running = world.snapshot.queues, world.snapshot.running
    for each in levels(world.snapshot, world.now, workload, world.index, world.tree):
        holders = []
        for holder in each.holders:
            path = queues[holder.queue].path
            sees = authz.sees(principal, path)
            name = running[holder.workload].name if sees else OTHER_WORK
            queue = path if sees else OTHER_QUEUE
            holders.append(HolderView(workload=name, queue=queue, units=holder.units, since=holder.since))
        yield LevelView(
            queue=queues[each.queue].path, flavor=each.flavor, wanted=each.wanted, used=each.used, limit=each.limit,
            available=each.available, stops=each.stops, holders=holders, kept=each.kept,
        )  # fmt: skip


def _advice_view(advice: Advice) -> AdviceView:
    return AdviceView(
        sentence=advice.sentence(),
        steps=[StepView(kind=each.kind, numbers=dict(each.numbers)) for each in advice.steps],
        suppositions=list(advice.suppositions),
        resubmitted=advice.is_resubmitted,
    )


def _text(fact: WaitingFact, reasons: tuple[Reason, ...], now: datetime, *, is_live: bool) -> str:
    since = _span(now - fact.state_changed_at)
    match fact.state:
        case WorkloadState.PENDING:
            said = [_waiting(fact, now), _past(fact), _because(reasons, is_live=is_live)]
        case WorkloadState.RESERVED:
            said = [_starting(fact), _held_up(fact), _away(fact)]
        case WorkloadState.RUNNING:
            said = [f"{fact.name} has been running{_where(fact)} for {since}, as attempt {fact.attempt}.", _away(fact)]
        case WorkloadState.STOPPING:
            said = [_stopping(fact, now), _last_line(fact), _away(fact)]
        case WorkloadState.CANCELLING:
            said = [f"{fact.name} is being cancelled{_where(fact)}; its devices are free once its pods are gone."]
            said.append(_away(fact))
        case WorkloadState.FAILED:
            said = [f"{fact.name} failed {since} ago, in attempt {fact.attempt}.", _last_line(fact)]
        case WorkloadState.SUCCEEDED:
            said = [f"{fact.name} succeeded {since} ago, in attempt {fact.attempt}."]
        case WorkloadState.CANCELLED:
            said = [f"{fact.name} was cancelled {since} ago."]
    if fact.state is not WorkloadState.PENDING:
        said.extend(each.sentence() for each in reasons)
    return " ".join(sentence for sentence in said if sentence)


def _waiting(fact: WaitingFact, now: datetime) -> str:
    asked = f"{fact.pods} pod{'s' * (fact.pods != 1)}"
    if fact.devices:
        asked += f" with {fact.devices} device{'s' * (fact.devices != 1)} in all"
    return f"{fact.name} of {fact.queue_path} has waited for {_span(now - fact.submitted_at)}. It asks for {asked}."


def _past(fact: WaitingFact) -> str:
    """Why it waits again, where it had started once."""
    if not fact.attempt or fact.outcome is None:
        return ""
    end = _ENDS.get(fact.outcome, fact.outcome)
    if fact.outcome == "failed" and fact.verdict == "infrastructure":
        end = "ended because of its machines, which does not count against it"
    why = f" {fact.attempt_reason.sentence()}" if fact.attempt_reason is not None else ""
    return f"Attempt {fact.attempt} {end}.{why}"


def _because(reasons: tuple[Reason, ...], *, is_live: bool) -> str:
    if not reasons:
        if is_live:
            return "Nothing stands in its way: the next planning cycle places it."
        return "No planning cycle has looked at it yet."
    said = " ".join(each.sentence() for each in reasons)
    return f"It does not start now because: {said}" if is_live else f"When it was last looked at: {said}"


def _starting(fact: WaitingFact) -> str:
    if _banned(fact):
        return f"{fact.name} was to start{_where(fact)}, and nobody there hears of it."
    return f"{fact.name} is about to start{_where(fact)}: {_STEPS.get(fact.attempt_state or '', '')}."


def _stopping(fact: WaitingFact, now: datetime) -> str:
    """No word on what follows while nobody knows it: a machine's fault is told later than the end that it caused."""
    if fact.attempt_state != "ended":
        return f"{fact.name} is being stopped{_where(fact)}; what follows is decided when its pods are gone."
    left = "soon"
    if fact.evidence_until is not None and fact.evidence_until > now:
        left = f"within {_span(fact.evidence_until - now)}"
    return (
        f"Attempt {fact.attempt} of {fact.name} ended badly{_where(fact)}, and its pods are gone. Whether its program"
        f" or its machines were at fault is decided {left}; only then is it known whether it starts again."
    )


def _banned(fact: WaitingFact) -> list[str]:
    return [name for name, state in fact.clusters if state == "banned"]


def _where(fact: WaitingFact) -> str:
    names = [name for name, _ in fact.clusters]
    return f" in {' and '.join(names)}" if names else ""


def _away(fact: WaitingFact) -> str:
    """A silent cluster changes nothing for its pods, but its news are old."""
    if banned := _banned(fact):
        return (
            f"The agent of {' and '.join(banned)} is banned: nothing newer is known until another one enrols there, or"
            " an administrator removes the cluster; its quota stays charged."
        )
    silent = [f"{name} is {state}" for name, state in fact.clusters if state in {"suspect", "unreachable"}]
    if not silent:
        return ""
    return f"{' and '.join(silent)}: nothing newer is known until it is heard again; its quota stays charged."


def _held_up(fact: WaitingFact) -> str:
    """What the cluster says of pods that wait there: of a missing image, say; the same words of many count once."""
    waiting = {each.text: each for each in reversed(fact.words) if each.state == "pending"}
    said = [f"Rank {each.rank} waits on {each.node}: {_ended(each.text)}" for each in waiting.values()]
    return " ".join(said[:WORDS_SHOWN])


def _last_line(fact: WaitingFact) -> str:
    failed = next((each for each in fact.words if each.state == "failed"), None)
    lines = failed.text.splitlines() if failed is not None and failed.text != SAID_NOTHING else []
    return f"Rank {failed.rank} said last: {_ended(lines[-1])}" if failed is not None and lines else ""


def _ended(words: str) -> str:
    """As a sentence among others."""
    return words if words.endswith((".", "!", "?")) else f"{words}."


def _span(span: timedelta) -> str:
    total = max(0, int(span.total_seconds()))
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if total >= 2 * size or total == size:
            count = total // size
            return f"{count} {unit}{'s' * (count != 1)}"
    return f"{total} second{'s' * (total != 1)}"
