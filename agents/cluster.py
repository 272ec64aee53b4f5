"""The port to a workload cluster: what the agent sees of it, and what it can ask for.

`agents/kube` fulfils it with a real API server, `agents/simulated` with a cluster in memory. Both keep a `View` up to
date and carry out `Action`s; neither decides anything.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from agents.facts import Json, NodeFacts, ObjectFacts, PodFacts, object_id


class ClusterUnreachable(Exception):
    """The API server does not answer; what was seen before is stale, not gone."""


class LeadershipLost(Exception):
    """Another replica has the Lease: this one must end, or two would speak with one identity."""


@dataclass(slots=True)
class View:
    """The cluster as last seen. Written by the port, read by everybody else; `version` rises with each change.

    `bound`: namespaces that the agent may write to. `refusals`: why a Job's controller could not create pods, by the
    Job's uid. `inventory_version` rises with what an inventory is made of.
    """

    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    pods: dict[str, PodFacts] = field(default_factory=dict)
    objects: dict[str, ObjectFacts] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    refusals: dict[str, str] = field(default_factory=dict)
    is_complete: bool = False
    is_reachable: bool = True
    version: int = 0
    inventory_version: int = 0
    _touched: set[str] = field(default_factory=set)
    _pods_on: dict[str, dict[str, PodFacts]] = field(default_factory=dict)
    _pods_of: dict[str, dict[str, PodFacts]] = field(default_factory=dict)
    _objects_of: dict[str, dict[str, ObjectFacts]] = field(default_factory=dict)
    _last_words: dict[str, dict[tuple[str, int], str]] = field(default_factory=dict)

    def pods_of(self, owner: str) -> Iterable[PodFacts]:
        return self._pods_of.get(owner, {}).values()

    def objects_of(self, owner: str) -> Iterable[ObjectFacts]:
        return self._objects_of.get(owner, {}).values()

    def pods_on(self, node: str) -> Iterable[PodFacts]:
        return self._pods_on.get(node, {}).values()

    def last_words(self, owner: str, key: tuple[str, int]) -> str:
        """What the program of that rank said when it ended, kept beyond its pod, which goes moments later."""
        return self._last_words.get(owner, {}).get(key, "")

    def forget_last_words(self, known: Collection[str]) -> None:
        """Keep those of Attempts that are `known`, or of which a pod is there."""
        for owner in [each for each in self._last_words if each not in known and each not in self._pods_of]:
            del self._last_words[owner]

    def take_touched(self) -> set[str]:
        """Object ids of which something changed since this was last asked."""
        touched, self._touched = self._touched, set()
        return touched

    def owners(self) -> set[str]:
        """Every object id of which something with our labels exists."""
        return set(self._pods_of) | set(self._objects_of)

    def put_node(self, node: NodeFacts) -> None:
        self.nodes[node.name] = node
        self._changed(inventory=True)

    def drop_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self._changed(inventory=True)

    def put_pod(self, pod: PodFacts) -> None:
        """A pod that is not ours counts for the inventory; one of ours for its Attempt."""
        before = self.pods.get(pod.uid)
        if before == pod:
            return
        self.pods[pod.uid] = pod
        if pod.node:
            self._pods_on.setdefault(pod.node, {})[pod.uid] = pod
        if pod.workload:
            owner = object_id(pod.workload, pod.attempt)
            self._pods_of.setdefault(owner, {})[pod.uid] = pod
            self._touched.add(owner)
            if pod.is_finished and pod.message:
                self._last_words.setdefault(owner, {})[pod.key] = pod.message
        bound = bool(pod.node) or (before is not None and bool(before.node))
        self._changed(inventory=bound and (not pod.workload or before is None or before.is_finished != pod.is_finished))

    def drop_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        _drop(self._pods_on, pod.node, uid)
        if pod.workload:
            owner = object_id(pod.workload, pod.attempt)
            _drop(self._pods_of, owner, uid)
            self._touched.add(owner)
        self._changed(inventory=bool(pod.node))

    def put_object(self, each: ObjectFacts) -> None:
        if self.objects.get(each.uid) == each:
            return
        self.objects[each.uid] = each
        owner = object_id(each.workload, each.attempt)
        self._objects_of.setdefault(owner, {})[each.uid] = each
        self._touched.add(owner)
        self._changed()

    def drop_object(self, uid: str) -> None:
        each = self.objects.pop(uid, None)
        if each is not None:
            owner = object_id(each.workload, each.attempt)
            _drop(self._objects_of, owner, uid)
            self._touched.add(owner)
            self._changed()

    def put_namespace(self, name: str) -> None:
        self.namespaces.add(name)
        self._changed()

    def drop_namespace(self, name: str) -> None:
        self.namespaces.discard(name)
        self._changed()

    def put_refusal(self, uid: str, words: str) -> None:
        self.refusals[uid] = words
        self._changed()

    def _changed(self, *, inventory: bool = False) -> None:
        self.version += 1
        if inventory:
            self.inventory_version = self.version


@dataclass(frozen=True, slots=True)
class Create:
    """Bring an object into being; one of that name that is not ours is a conflict and stays untouched."""

    kind: str
    namespace: str
    name: str
    manifest: Json


@dataclass(frozen=True, slots=True)
class Place:
    """Pin a gated pod to its node, take its gate off, or both in one change."""

    namespace: str
    name: str
    uid: str
    hostname: str | None = None
    has_selector: bool = False
    rank: int | None = None
    gate_index: int | None = None


@dataclass(frozen=True, slots=True)
class Annotate:
    """Keep something in mind, on the anchor."""

    kind: str
    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove exactly this object: another one of the same name has another uid."""

    kind: str
    namespace: str
    name: str
    uid: str
    propagation: str = "Background"
    grace_seconds: int | None = None


Action = Create | Place | Annotate | Delete


class Verdict(StrEnum):
    DONE = "done"
    CONFLICT = "conflict"  # an object of that name is there and is not ours
    NO_NAMESPACE = "no-namespace"  # missing, ending, or not bound to us
    REFUSED = "refused"  # by admission, a quota or validation
    CHANGED = "changed"  # somebody was quicker: look again
    LATER = "later"  # no answer, overload


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an action; `words` are the cluster's own."""

    verdict: Verdict
    words: str = ""
    retry_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Which cluster this is: a copied agent in another cluster is seen by the fingerprint."""

    fingerprint: str
    kubernetes_version: str


class Cluster(Protocol):
    """A workload cluster."""

    @property
    def view(self) -> View: ...

    async def open(self) -> Identity:
        """Connect, become the leader, see everything once; raise ClusterUnreachable where nothing answers."""

    async def close(self) -> None: ...

    async def wait(self, version: int, timeout_seconds: float) -> None:
        """Return when the view is newer than `version`, or after the time; raise LeadershipLost."""

    async def carry_out(self, action: Action) -> Outcome:
        """Do it; what the API server answers is in the view at once."""

    def is_leader(self) -> bool:
        """Whether this replica may write now."""


def by_stage(actions: Sequence[Action]) -> Iterator[list[Action]]:
    """Creations keep their order, one after the other; what follows on pods and objects goes side by side."""
    rest: list[Action] = []
    for action in actions:
        if isinstance(action, Create | Annotate):
            if rest:
                yield rest
                rest = []
            yield [action]
        else:
            rest.append(action)
    if rest:
        yield rest


def _drop(groups: dict[str, dict[str, PodFacts]] | dict[str, dict[str, ObjectFacts]], owner: str, uid: str) -> None:
    group = groups.get(owner)
    if group is not None:
        group.pop(uid, None)
        if not group:
            del groups[owner]
