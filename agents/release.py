"""Break glass: take every gate of ours off, with no plane and no agent; what runs already is left alone.

A gated pod is pinned as its Attempt's anchor remembers, then let go. The anchor is told first that its Attempt has run:
from then on an agent that is there, or comes back, gives none of it up. What was ordered to end or was given up stays
gated, since it may run elsewhere by now; so does what may have been, because its anchor cannot be read. Safe to run
twice, and beside an agent.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from agents import attempts
from agents.attempts import Desired, Order
from agents.cluster import Action, Annotate, ClusterUnreachable, Outcome, Place, Verdict
from agents.facts import ANNOTATION_RAN, HOSTNAME, Json, ObjectFacts, PodFacts, object_facts, object_id, pod_facts
from agents.kube.apply import Hand
from agents.kube.client import KubeClient, KubeError, collection
from controlplane.contract.agent.attempts import GATE, LABEL_NAME, LABEL_WORKLOAD, Pin

AT_ONCE = 32
PAGE = 500
TRIES_MAX = 8
PAUSE_SECONDS_MAX = 15.0
LISTS_MAX = 5
NOT_FOUND, GONE, TOO_MANY, SERVER_ERROR = 404, 410, 429, 500
PENDING = "status.phase=Pending"


class ReleaseImpossible(Exception):
    """The cluster does not tell which pods there are."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which gated pods: all of ours, or those of some namespaces and Workloads (by name or uid)."""

    namespaces: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    even_ended: bool = False


@dataclass(slots=True)
class Group:
    """The gated pods of one Attempt in one namespace. `name` is the Workload's, as its labels say."""

    namespace: str
    name: str
    workload: str
    attempt: int
    pods: list[PodFacts] = field(default_factory=list)
    anchor: ObjectFacts | None = None
    wish: Desired | None = None
    unread: str = ""  # why its anchor, if it has one, could not be read

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name or 'no-name'} (workload {self.workload or 'unknown'}, {self.attempt})"

    @property
    def is_over(self) -> bool:
        """Ordered to end, or given up: it is over, or runs as another Attempt."""
        return self.anchor is not None and (self.anchor.order == Order.DELETE or bool(self.anchor.rejection))

    def pin_of(self, pod: PodFacts) -> Pin | None:
        pins = self.wish.pins() if self.wish else []
        return next((pin for pin in pins if (pin.pod_set, pin.index) == pod.key), None)


@dataclass(slots=True)
class Report:
    """What was done. `failed`: pod and why."""

    released: int = 0
    gone: int = 0  # deleted, or let go by somebody else, in between
    left: int = 0  # of Attempts that are over
    unpinned: int = 0  # let go without a node: nothing remembers where they belong
    failed: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0


async def release(
    client: KubeClient, selection: Selection, say: Callable[[str], None], *, dry_run: bool = False
) -> Report:
    """Let go what is selected; `say` gets a line per Attempt. Raise ClusterUnreachable, ReleaseImpossible."""
    began = time.monotonic()
    report = Report()
    groups = await _groups(client, selection)
    await _remember(client, groups)
    hostnames = await _hostnames(client, groups)
    wanted: list[Group] = []
    for group in groups:
        if group.is_over and not selection.even_ended:
            report.left += len(group.pods)
            say(f"{group.title}: {len(group.pods)} pods stay gated: it was ordered to end or given up")
        elif group.unread and not selection.even_ended:
            report.failed += [(f"{pod.namespace}/{pod.name}", group.unread) for pod in group.pods]
            say(f"{group.title}: {len(group.pods)} pods stay gated: whether it has ended cannot be read")
        else:
            wanted.append(group)
            say(f"{group.title}: {len(group.pods)} pods {'would be' if dry_run else 'are'} let go")
    if dry_run:
        report.released = sum(len(group.pods) for group in wanted)
    else:
        hands = _Hands(client, Hand(client, lambda _kind, _raw: None), hostnames, report)
        await asyncio.gather(*(hands.let_go(group) for group in wanted))
    report.seconds = time.monotonic() - began
    return report


async def _groups(client: KubeClient, selection: Selection) -> list[Group]:
    """Every gated pod of ours that is selected, by Attempt; in order, so that two runs read alike."""
    found: dict[tuple[str, str, int], Group] = {}
    for namespace in selection.namespaces or ("",):
        async for raw in _listed(client, collection("Pod", namespace), PENDING):
            pod = pod_facts(raw)
            labels = raw["metadata"].get("labels") or {}
            name = str(labels.get(LABEL_NAME, ""))
            is_selected = not selection.workloads or bool({name, pod.workload} & set(selection.workloads))
            if GATE in pod.gates and not pod.deleting and is_selected:
                key = (pod.namespace, pod.workload, pod.attempt)
                group = found.setdefault(key, Group(pod.namespace, name, pod.workload, pod.attempt))
                group.pods.append(pod)
    return [found[key] for key in sorted(found)]


async def _remember(client: KubeClient, groups: Iterable[Group]) -> None:
    """Give each Attempt what its anchor remembers; an Attempt without an anchor will be let go as it stands."""
    by_place = {(group.namespace, object_id(group.workload, group.attempt)): group for group in groups}
    for namespace in sorted({group.namespace for group in groups}):
        try:
            async for raw in _listed(client, collection("Service", namespace), labels=LABEL_WORKLOAD):
                anchor = object_facts("Service", raw)
                group = by_place.get((namespace, object_id(anchor.workload, anchor.attempt)))
                if group is not None:
                    group.anchor, group.wish = anchor, attempts.recall(anchor, datetime.now(UTC))
        except ReleaseImpossible as error:
            for group in groups:
                if group.namespace == namespace and group.anchor is None:
                    group.unread = f"{error} (--even-ended lets them go all the same, pinned to no node)"


async def _hostnames(client: KubeClient, groups: Iterable[Group]) -> Mapping[str, str]:
    """What pins a pod to each node; asked only if some pod has not been pinned yet."""
    if all(pod.pinned for group in groups for pod in group.pods):
        return {}
    found: dict[str, str] = {}
    async for raw in _listed(client, collection("Node")):
        name = str(raw["metadata"]["name"])
        found[name] = str((raw["metadata"].get("labels") or {}).get(HOSTNAME, name))
    return found


@dataclass(slots=True)
class _Hands:
    """A bounded number of requests under way, and what came of them."""

    client: KubeClient
    hand: Hand
    hostnames: Mapping[str, str]
    report: Report
    at_once: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def let_go(self, group: Group) -> None:
        """All pods of an Attempt, once its anchor knows."""
        anchor = group.anchor
        if anchor is not None and not anchor.ran and not anchor.deleting:
            note = Annotate(anchor.kind, anchor.namespace, anchor.name, anchor.uid, {ANNOTATION_RAN: "true"})
            outcome = await self._insisted(note)
            if outcome.verdict not in {Verdict.DONE, Verdict.CHANGED}:
                # An agent might then give up what runs: better gated and known than running and ended.
                self.report.failed += [(f"{pod.namespace}/{pod.name}", outcome.words) for pod in group.pods]
                return
        await asyncio.gather(*(self._one(group, pod) for pod in group.pods))

    async def _one(self, group: Group, pod: PodFacts) -> None:
        current: PodFacts | None = pod
        outcome = Outcome(Verdict.LATER, "it changes too often")
        for _ in range(TRIES_MAX):
            if current is None or current.uid != pod.uid or current.deleting or GATE not in current.gates:
                self.report.gone += 1
                return
            action = _placed(group, current, self.hostnames)
            outcome = await self._insisted(action)
            if outcome.verdict is Verdict.DONE:
                self.report.released += 1
                self.report.unpinned += not current.pinned and action.hostname is None
                return
            if outcome.verdict is not Verdict.CHANGED:
                break
            try:
                current = await self._again(pod)
            except (KubeError, ClusterUnreachable) as error:
                outcome = Outcome(Verdict.LATER, str(error))
                break
        self.report.failed.append((f"{pod.namespace}/{pod.name}", outcome.words))

    async def _insisted(self, action: Action) -> Outcome:
        """Until the API server has said yes or no, within bounds."""
        outcome = Outcome(Verdict.LATER)
        for attempt in range(TRIES_MAX):
            async with self.at_once:
                outcome = await self.hand.carry_out(action)
            if outcome.verdict is not Verdict.LATER:
                break
            await _pause(attempt, outcome.retry_seconds)
        return outcome

    async def _again(self, pod: PodFacts) -> PodFacts | None:
        async with self.at_once:
            try:
                return pod_facts(await self.client.request("GET", f"{collection('Pod', pod.namespace)}/{pod.name}"))
            except KubeError as error:
                if error.status == NOT_FOUND:
                    return None
                raise


def _placed(group: Group, pod: PodFacts, hostnames: Mapping[str, str]) -> Place:
    """The same change as the agent's own: pinned where that is still due, and the gate off."""
    pin = None if pod.pinned else group.pin_of(pod)
    return Place(
        pod.namespace,
        pod.name,
        pod.uid,
        hostname=hostnames.get(pin.node, pin.node) if pin else None,
        has_selector=pod.has_selector,
        rank=pin.rank if pin else None,
        gate_index=pod.gates.index(GATE),
    )


async def _listed(client: KubeClient, path: str, fields: str = "", labels: str = "") -> AsyncIterator[Json]:
    """Every object, in pages; a list that grew too old, or met an overload, is begun again. Bounded."""
    seen: set[str] = set()
    stated = {"fieldSelector": fields, "labelSelector": labels, "limit": str(PAGE)}
    query = {name: text for name, text in stated.items() if text}
    following, failures = "", 0
    while True:
        try:
            page = await client.request("GET", path, query={**query, **({"continue": following} if following else {})})
        except KubeError as error:
            failures += 1
            passes = error.status in {GONE, TOO_MANY} or error.status >= SERVER_ERROR
            if not passes or failures > LISTS_MAX:
                raise ReleaseImpossible(f"{path} cannot be listed: {error}") from error
            following = ""
            await _pause(failures, error.retry_seconds)
            continue
        for raw in page.get("items") or []:
            uid = raw["metadata"]["uid"]
            if uid not in seen:
                seen.add(uid)
                yield raw
        following = page["metadata"].get("continue", "")
        if not following:
            return


async def _pause(failures: int, asked_seconds: float) -> None:
    ceiling = min(PAUSE_SECONDS_MAX, 0.5 * 2**failures)
    await asyncio.sleep(max(asked_seconds, random.uniform(ceiling / 2, ceiling)))  # noqa: S311 - spreads retries


def summary(report: Report, *, dry_run: bool) -> str:
    """The last line, and before it each pod that is still gated although it should not be."""
    verb = "would let go" if dry_run else "let go"
    lines = [f"{name}: still gated: {words}" for name, words in sorted(report.failed)]
    parts = [f"{verb} {report.released} pods in {report.seconds:.1f} s"]
    parts += [f"{report.unpinned} of them without a node, since nothing remembers where they belong"] * bool(
        report.unpinned
    )
    parts += [f"{report.gone} changed hands or ended in between"] * bool(report.gone)
    parts += [f"{report.left} stay gated with Attempts that are over (--even-ended lets them go, too)"] * bool(
        report.left
    )
    parts += [f"{len(report.failed)} failed"] * bool(report.failed)
    return "\n".join([*lines, "; ".join(parts)])
