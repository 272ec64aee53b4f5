"""The workbench: brings each Attempt nearer to what is wanted, and notes what can be seen of it.

One task per Attempt at a time, so that a slow one delays nobody; a failure that may pass is tried again with growing
pauses. Decisions are `reconcile`'s and `rejections`'; talking to the plane is the loop's.
"""

import asyncio
import hashlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from agents import attempts, policy, rejections, report
from agents.attempts import Desired, Order
from agents.cluster import Action, Cluster, Create, Outcome, Verdict, by_stage
from agents.memory import TooLarge
from agents.outbox import Outbox
from agents.reconcile import decide
from controlplane.contract.agent.attempts import Directive, Rejection

ACTIONS_AT_ONCE = 16  # a polite client
PAUSE_SECONDS = 0.5
PAUSE_SECONDS_MAX = 30.0
DOUBT = timedelta(seconds=10)
log = structlog.get_logger()


@dataclass(slots=True)
class _Task:
    """Who works on an Attempt, and when to try again."""

    running: asyncio.Task[None] | None = None
    failures: int = 0
    not_before: datetime | None = None
    doubted_until: datetime | None = None

    @property
    def is_busy(self) -> bool:
        return self.running is not None and not self.running.done()


@dataclass(slots=True)
class Workbench:
    """All Attempts of this cluster. `woken` is called when there is reason to look again."""

    cluster: Cluster
    local_policy: policy.LocalPolicy
    outbox: Outbox
    woken: Callable[[], None]
    clock: Callable[[], datetime]
    _desired: dict[str, Desired] = field(default_factory=dict)
    _tasks: dict[str, _Task] = field(default_factory=dict)
    _unknown: set[str] = field(default_factory=set)
    _disowned: set[str] = field(default_factory=set)
    _due: set[str] = field(default_factory=set)
    _at_once: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ACTIONS_AT_ONCE))

    def recall(self) -> None:
        """Take up what the anchors in the cluster remember."""
        now = self.clock()
        for anchor in list(self.cluster.view.objects.values()):
            wish = attempts.recall(anchor, now) if anchor.directive else None
            if wish is not None and wish.object_id not in self._desired:
                self._desired[wish.object_id] = wish

    def take(self, directives: Iterable[Directive]) -> None:
        """Take orders; the local policy has the first word on each."""
        now = self.clock()
        for directive in directives:
            before = self._desired.get(directive.object_id)
            wish = attempts.take(before, directive, now)
            if directive.required_features:
                words = f"this agent does not know {', '.join(directive.required_features)}"
                wish = report.local_refusal(wish, Rejection(code="refused-by-cluster", facts={"words": words}))
            if wish.body is not None and (before is None or before.body is None):
                refused = policy.refusal(wish.body, self.local_policy)
                wish = report.local_refusal(wish, refused) if refused else wish
            self._desired[directive.object_id] = wish
            self._disowned.discard(directive.object_id)
            self._due.add(directive.object_id)
        self.woken()

    def has_unknown(self) -> bool:
        return bool(self._unknown)

    def disown(self, object_id: str) -> None:
        """The plane does not know this Attempt: it came from a backup that is older. What runs, runs on.

        To the planner its pods are somebody else's, so that their devices are not sold again; and of its objects none
        is made anew, so that a person can end it.
        """
        if object_id in self._desired and object_id not in self._disowned:
            log.warning("the plane does not know this attempt; it is left as it is", object=object_id)
            self._disowned.add(object_id)

    def known(self) -> frozenset[str]:
        """Attempts that the plane knows, too: their devices are in its books."""
        return frozenset(self._desired.keys() - self._disowned)

    def digest(self, leaving_out: Iterable[str] = ()) -> str:
        """SHA-256 over sorted "object_id gen" of all objects that the agent knows."""
        out = {*leaving_out, *self._disowned}
        lines = sorted(f"{wish.object_id} {wish.gen}" for wish in self._desired.values() if wish.object_id not in out)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def forget_gone(self) -> None:
        """Drop Attempts that are gone and of which the plane knows it."""
        for object_id in [each for each in self._desired if self.outbox.is_told_gone(each)]:
            del self._desired[object_id]
            self._tasks.pop(object_id, None)
            self.outbox.forget(object_id)

    def step(self, *, everything: bool = True) -> None:
        """One pass: note, judge, and set to work who is idle. Needs a complete, reachable view.

        Not `everything`: only the Attempts of which an object, an order or an action has changed; what matures with
        time, or depends on others' pods, is found by the next pass over all.
        """
        now = self.clock()
        known, named = self.known(), frozenset(self._desired)
        touched = self.cluster.view.take_touched() | self._due
        self._due = set()
        for object_id in list(self._desired) if everything else sorted(touched & named):
            self._look_at(object_id, now, known)
        self._forget_ended_by_hand()
        if everything or not touched <= named:
            self._note_unknown(named)
        if everything:
            self.cluster.view.forget_last_words(known)

    def _look_at(self, object_id: str, now: datetime, known: frozenset[str]) -> None:
        fresh = report.refresh(self._desired[object_id], self.cluster.view)
        if (refused := rejections.judge(fresh, self.cluster.view, now, known)) is not None:
            fresh = report.local_refusal(fresh, refused)
            log.warning("attempt rejected", object=object_id, code=refused.code, **refused.facts)
        self._desired[object_id] = fresh
        self._set_to_work(fresh, now)
        self._note(self._desired[object_id], now)

    def _forget_ended_by_hand(self) -> None:
        """Of what the plane does not know a person may have removed every object."""
        for object_id in [each for each in self._disowned if attempts.owned(self.cluster.view, each).is_nothing]:
            self._disowned.discard(object_id)
            self._desired.pop(object_id, None)
            self._tasks.pop(object_id, None)
            self.outbox.forget(object_id)

    async def finish(self) -> None:
        """Wait for actions under way; they are short."""
        tasks = [task.running for task in self._tasks.values() if task.running is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _set_to_work(self, wish: Desired, now: datetime) -> None:
        task = self._tasks.setdefault(wish.object_id, _Task())
        if task.is_busy or (task.not_before is not None and now < task.not_before) or not self.cluster.is_leader():
            return
        try:
            actions = decide(wish, self.cluster.view, now)
        except TooLarge as error:
            self._desired[wish.object_id] = report.local_refusal(
                wish, Rejection(code="refused-by-cluster", facts={"words": str(error)})
            )
            return
        if wish.object_id in self._disowned:
            actions = [action for action in actions if not isinstance(action, Create)]
        if actions:
            task.running = asyncio.create_task(self._carry_out(wish.object_id, task, actions))

    async def _carry_out(self, object_id: str, task: _Task, actions: list[Action]) -> None:
        try:
            for stage in by_stage(actions):
                outcomes = await asyncio.gather(*(self._one(action) for action in stage))
                again = [each for each in zip(stage, outcomes, strict=True) if self._is_to_repeat(object_id, *each)]
                if again:
                    self._back_off(object_id, task, again)
                if any(outcome.verdict is not Verdict.DONE for outcome in outcomes):
                    return
            task.failures = 0
        finally:
            self._due.add(object_id)
            self.woken()

    async def _one(self, action: Action) -> Outcome:
        async with self._at_once:
            if not self.cluster.is_leader():
                return Outcome(Verdict.LATER, "another replica leads")
            return await self.cluster.carry_out(action)

    def _is_to_repeat(self, object_id: str, action: Action, outcome: Outcome) -> bool:
        """Whether the action may yet succeed; what the cluster refuses for good gives the Attempt up."""
        if outcome.verdict is Verdict.DONE:
            return False
        wish, refused = self._desired.get(object_id), rejections.of_outcome(action, outcome)
        if wish is None or refused is None or wish.order is Order.DELETE:
            return True
        log.warning("refused by the cluster", object=object_id, code=refused.code, words=outcome.words)
        self._desired[object_id] = report.local_refusal(wish, refused)
        return False

    def _back_off(self, object_id: str, task: _Task, failed: list[tuple[Action, Outcome]]) -> None:
        """One pause for all that failed together; none when for the first time somebody was quicker than our view."""
        now = self.clock()
        task.failures += 1
        if any(isinstance(action, Create) for action, _ in failed):
            task.doubted_until = now + DOUBT  # it may have been made all the same
        if task.failures == 1 and all(outcome.verdict is Verdict.CHANGED for _, outcome in failed):
            return
        ceiling = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2 ** min(task.failures, 10))
        asked = max(outcome.retry_seconds for _, outcome in failed)
        pause = max(asked, random.uniform(PAUSE_SECONDS / 2, ceiling))  # noqa: S311 - spreads retries, guards nothing
        task.not_before = now + timedelta(seconds=pause)
        log.info("trying again", object=object_id, words=failed[0][1].words, seconds=round(pause, 2))

    def _note(self, wish: Desired, now: datetime) -> None:
        seen = report.attempt_observation(wish, self.cluster.view)
        task = self._tasks.get(wish.object_id)
        if seen.state == "gone" and task is not None:
            is_doubted = task.doubted_until is not None and now < task.doubted_until
            if task.is_busy or is_doubted:
                seen = seen.model_copy(update={"state": "stopping"})
        self.outbox.observe(seen, report.pod_observations(wish, self.cluster.view))

    def _note_unknown(self, known: frozenset[str]) -> None:
        unknown = report.unknown_observations(self.cluster.view, known)
        for seen in unknown:
            self.outbox.observe(seen)
        current = {seen.object_id for seen in unknown}
        for object_id in self._unknown - current - known:
            self.outbox.forget(object_id)
        self._unknown = current
