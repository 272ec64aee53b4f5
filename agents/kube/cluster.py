"""A real cluster behind the port: informers keep the view, a hand carries out actions, a Lease says who may write.

Nodes, pods and namespaces are watched in the whole cluster; Jobs, Services and events likewise where that is allowed,
else in each namespace that the local policy names and RBAC opens. Decides nothing.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agents.cluster import Action, ClusterUnreachable, Identity, Outcome, View
from agents.facts import Json, cut, node_facts, object_facts, pod_facts
from agents.health import Pulse
from agents.kube.apply import Hand
from agents.kube.client import KubeClient, KubeError, collection
from agents.kube.client import connect as connect_client
from agents.kube.keys import SecretStore
from agents.kube.lease import Election
from agents.kube.watch import Informer
from agents.settings import AgentSettings
from controlplane.contract.agent.attempts import LABEL_WORKLOAD

NAMESPACED = ("Job", "Service", "Event")
FAILED_CREATE = "involvedObject.kind=Job,reason=FailedCreate"
REFUSALS_MAX = 10_000
FINAL_WORDS = ("forbidden", "denied", "exceeded", "invalid")
PASSING_WORDS = ("error looking up service account", "timed out", "connection refused")


@dataclass(slots=True)
class _Watching:
    informer: Informer
    task: asyncio.Task[None]


class KubeCluster:
    """Fulfils `agents.cluster.Cluster`."""

    def __init__(self, client: KubeClient, election: Election | None, is_allowed: Callable[[str], bool]) -> None:
        self._client = client
        self._election = election
        self._is_allowed = is_allowed
        self._view = View()
        self._changed = asyncio.Event()
        self._hand = Hand(client, self._learned)
        self._watching: dict[tuple[str, str], _Watching] = {}
        self._keeping: asyncio.Task[None] | None = None

    @property
    def view(self) -> View:
        return self._view

    async def open(self) -> Identity:
        if self._election is not None:
            await self._election.win()
            self._keeping = self._keeping or asyncio.create_task(self._election.keep())
        try:
            system = await self._client.request("GET", f"{collection('Namespace')}/kube-system")
            version = await self._client.request("GET", "/version")
        except KubeError as error:
            raise ClusterUnreachable(str(error)) from error
        for kind in ("Namespace", "Node", "Pod", *NAMESPACED):
            self._watch(kind)
        await asyncio.gather(*(each.informer.first_list() for each in list(self._watching.values())))
        self._spread()
        await asyncio.gather(*(each.informer.first_list() for each in list(self._watching.values())))
        self._view.is_complete = True
        self.look_after()
        return Identity(system["metadata"]["uid"], str(version.get("gitVersion", "")))

    async def close(self) -> None:
        tasks = [each.task for each in self._watching.values()]
        tasks += [self._keeping] if self._keeping else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._election is not None:
            await self._election.give_up()
        await self._client.close()

    async def wait(self, version: int, timeout_seconds: float) -> None:
        self.look_after()
        if self._view.version > version:
            return
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def carry_out(self, action: Action) -> Outcome:
        return await self._hand.carry_out(action)

    def is_leader(self) -> bool:
        return self._election is None or self._election.is_leader()

    def _watch(self, kind: str, namespace: str = "") -> None:
        if (kind, namespace) in self._watching:
            return
        put, drop = self._writers(kind)
        informer = Informer(
            self._client,
            collection(kind, namespace),
            self._noting(put),
            self._noting(drop),
            label_selector=LABEL_WORKLOAD if kind in ("Job", "Service") else "",
            field_selector=FAILED_CREATE if kind == "Event" else "",
        )
        self._watching[kind, namespace] = _Watching(informer, asyncio.create_task(informer.run()))

    def _writers(self, kind: str) -> tuple[Callable[[Json], None], Callable[[Json], None]]:
        view = self._view
        if kind == "Node":
            return lambda raw: view.put_node(node_facts(raw)), lambda raw: view.drop_node(raw["metadata"]["name"])
        if kind == "Pod":
            return self._put_pod, lambda raw: view.drop_pod(raw["metadata"]["uid"])
        if kind == "Namespace":
            return self._put_namespace, lambda raw: view.drop_namespace(raw["metadata"]["name"])
        if kind == "Event":
            return self._put_event, _nothing
        return self._object_writers(kind)

    def _object_writers(self, kind: str) -> tuple[Callable[[Json], None], Callable[[Json], None]]:
        def put(raw: Json) -> None:
            facts = object_facts(kind, raw)
            if facts.workload and self._is_allowed(facts.namespace):
                self._view.put_object(facts)

        def drop(raw: Json) -> None:
            self._view.drop_object(raw["metadata"]["uid"])
            self._view.refusals.pop(raw["metadata"]["uid"], None)

        return put, drop

    def _put_pod(self, raw: Json) -> None:
        """Anybody can write our labels; where we may not work, a pod that bears them is somebody else's."""
        facts = pod_facts(raw)
        self._view.put_pod(facts if self._is_allowed(facts.namespace) else replace(facts, workload="", attempt=0))

    def _put_namespace(self, raw: Json) -> None:
        name = raw["metadata"]["name"]
        if (raw.get("status") or {}).get("phase") == "Terminating":
            self._view.drop_namespace(name)
        elif name not in self._view.namespaces:
            self._view.put_namespace(name)

    def _put_event(self, raw: Json) -> None:
        """Why a Job has no pods; a passing trouble is none."""
        words = cut(str(raw.get("message", "")))
        is_final = any(word in words for word in FINAL_WORDS) and not any(word in words for word in PASSING_WORDS)
        if is_final and (uid := (raw.get("involvedObject") or {}).get("uid")):
            if len(self._view.refusals) >= REFUSALS_MAX:  # of other people's Jobs: the oldest goes
                del self._view.refusals[next(iter(self._view.refusals))]
            self._view.put_refusal(uid, words)

    def _noting(self, write: Callable[[Json], None]) -> Callable[[Json], None]:
        def noted(raw: Json) -> None:
            write(raw)
            self._changed.set()

        return noted

    def _learned(self, kind: str, raw: Json) -> None:
        namespace = raw["metadata"].get("namespace", "")
        watching = self._watching.get((kind, namespace)) or self._watching.get((kind, ""))
        if watching is not None:
            watching.informer.learn(raw)

    def _spread(self) -> None:
        """Where the whole cluster is closed to us, watch the open namespaces one by one."""
        for kind in NAMESPACED:
            whole = self._watching.get((kind, ""))
            if whole is not None and not whole.informer.is_forbidden:
                continue
            for name in self._view.namespaces:
                if self._is_allowed(name):
                    self._watch(kind, name)
        for kind, name in list(self._watching):
            if name and name not in self._view.namespaces:
                self._watching.pop((kind, name)).task.cancel()

    def _rebind(self) -> None:
        """Which namespaces we may write to, as far as reading them tells."""
        whole = self._watching["Job", ""].informer
        if whole.has_listed and not whole.is_forbidden:
            self._view.bound = {name for name in self._view.namespaces if self._is_allowed(name)}
            return
        self._view.bound = {
            name
            for (kind, name), each in self._watching.items()
            if kind == "Job" and name and each.informer.has_listed and not each.informer.is_forbidden
        }

    def look_after(self) -> None:
        """Raise what ended a task, follow namespaces, and note whether the API server answers at all.

        Nodes, pods or namespaces that we may not read are not seen, and not absent.
        """
        tasks = [each.task for each in self._watching.values()]
        for task in [*tasks, *([self._keeping] if self._keeping else [])]:
            if task.done() and not task.cancelled():
                task.result()
        self._spread()
        self._rebind()
        is_reachable = self._client.is_answered and all(
            kind in NAMESPACED if each.informer.is_forbidden else each.informer.is_reachable
            for (kind, _), each in self._watching.items()
        )
        if is_reachable != self._view.is_reachable:
            self._view.is_reachable = is_reachable
            self._view.version += 1


async def connect(
    settings: AgentSettings,
    kubeconfig: Path | None,
    holder: str,
    is_allowed: Callable[[str], bool],
    pulse: Pulse | None = None,
) -> tuple[KubeCluster, SecretStore]:
    """The cluster of a kubeconfig, or the one we run in, and where the key lies in it.

    `pulse` learns how the wait for leadership goes on.
    """
    client = await connect_client(kubeconfig)
    election = Election(client, settings.namespace, holder, pulse or Pulse()) if settings.lease else None
    return KubeCluster(client, election, is_allowed), SecretStore(client, settings.namespace)


def _nothing(_: Json) -> None:
    return
