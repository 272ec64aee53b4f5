"""A workload cluster in memory, behind the same port as a real one: the agent cannot tell the difference.

It lives and dies with its process. Behaviour is in `machinery`, failures in `faults`. Nothing here imports a Kubernetes
client.
"""

import asyncio
import copy
import random
from collections.abc import Callable
from datetime import UTC, datetime

from agents.cluster import Action, Annotate, Create, Delete, Identity, Outcome, Place, Verdict, View
from agents.facts import HOSTNAME, Json
from agents.simulated.machinery import Machinery
from agents.simulated.store import Store
from agents.simulated.worlds import World, stable_uid
from controlplane.contract.agent.attempts import ANNOTATION_RANK, LABEL_ATTEMPT, LABEL_WORKLOAD

KUBERNETES_VERSION = "v1.37.2-simulated"


def wall_clock() -> datetime:
    return datetime.now(UTC)


class SimulatedCluster:
    """Fulfils `agents.cluster.Cluster`."""

    def __init__(self, world: World, *, speed: float = 1.0, clock: Callable[[], datetime] = wall_clock) -> None:
        self._world = world
        self._changed = asyncio.Event()
        self._clock = clock
        self.store = Store(random.Random(world.faults.seed), self._changed.set)
        self.machinery = Machinery(self.store, clock, speed)
        self._is_cut = False

    @property
    def view(self) -> View:
        return self.store.view

    async def open(self) -> Identity:
        """The second time it only says which cluster this is."""
        identity = Identity(stable_uid("cluster", self._world.name), KUBERNETES_VERSION)
        if self.view.is_complete:
            return identity
        for name in ("default", *self._world.namespaces):
            self.view.put_namespace(name)
            self.view.bound.add(name)
        for raw in self._world.nodes:
            self.store.put_node(copy.deepcopy(raw))
        self.view.is_complete = True
        return identity

    async def close(self) -> None:
        self.machinery.stop()

    async def wait(self, version: int, timeout_seconds: float) -> None:
        if self.view.version > version:
            return
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def carry_out(self, action: Action) -> Outcome:
        await asyncio.sleep(0)
        match action:
            case Create():
                return self._create(action)
            case Place():
                return self._place(action)
            case Annotate():
                return self._annotate(action)
            case Delete():
                return self._delete(action)

    def is_leader(self) -> bool:
        return True

    # The link to the plane, which faults can cut

    def cut_link(self, seconds: float | None) -> None:
        self._is_cut = True
        if seconds is not None:
            self.machinery.later(seconds, self.heal_link)

    def heal_link(self) -> None:
        self._is_cut = False

    def link_is_up(self) -> bool:
        return not self._is_cut

    def now(self) -> datetime:
        return self._clock()

    def _create(self, action: Create) -> Outcome:
        wanted = action.manifest
        if action.namespace not in self.view.namespaces and self._world.namespaces:
            return Outcome(Verdict.NO_NAMESPACE, f'namespaces "{action.namespace}" not found')
        found = self.store.find(action.kind, action.namespace, action.name)
        if found is not None:
            return Outcome(Verdict.DONE if _is_same(found, wanted) else Verdict.CONFLICT, f"{action.name} exists")
        raw = copy.deepcopy(wanted)
        raw["metadata"]["creationTimestamp"] = self._clock().isoformat()
        if action.kind == "Pod":
            raw.setdefault("status", {"phase": "Pending"})
            self.store.put_pod(raw)
            if not raw["spec"].get("schedulingGates"):
                self.machinery.released(raw["metadata"]["uid"])
            return Outcome(Verdict.DONE)
        self.store.put_object(action.kind, raw)
        if action.kind == "Job":
            self.machinery.fill_job(raw["metadata"]["uid"])
        return Outcome(Verdict.DONE)

    def _place(self, action: Place) -> Outcome:
        raw = self.store.pods.get(action.uid)
        if raw is None:
            return Outcome(Verdict.CHANGED)
        if action.hostname is not None:
            raw["spec"]["nodeSelector"] = {**(raw["spec"].get("nodeSelector") or {}), HOSTNAME: action.hostname}
        if action.rank is not None:
            raw["metadata"].setdefault("annotations", {})[ANNOTATION_RANK] = str(action.rank)
        if action.gate_index is not None:
            del raw["spec"]["schedulingGates"][action.gate_index]
        self.store.put_pod(raw)
        if not raw["spec"].get("schedulingGates"):
            self.machinery.released(action.uid)
        return Outcome(Verdict.DONE)

    def _annotate(self, action: Annotate) -> Outcome:
        raw = self.store.by_uid(action.kind, action.uid)
        if raw is None:
            return Outcome(Verdict.CHANGED)
        raw["metadata"].setdefault("annotations", {}).update(action.annotations)
        self.store.put_object(action.kind, raw)
        return Outcome(Verdict.DONE)

    def _delete(self, action: Delete) -> Outcome:
        if self.store.by_uid(action.kind, action.uid) is None:
            return Outcome(Verdict.DONE)
        if action.kind == "Pod":
            self.machinery.delete_pod(action.uid)
        elif action.kind == "Job":
            self.machinery.delete_job(action.uid)
        else:
            self.store.drop_object(action.kind, action.uid)
        return Outcome(Verdict.DONE)


def _is_same(found: Json, wanted: Json) -> bool:
    """Whether what is there is the same try's own."""
    return all(
        (found["metadata"].get("labels") or {}).get(label) == wanted["metadata"]["labels"].get(label)
        for label in (LABEL_WORKLOAD, LABEL_ATTEMPT)
    )
