"""A workbench over a cluster, simulated or real: what the agent does when the given orders come, without a plane.

The cluster is the product's own; the orders are real directives. Simulated time runs shortened by the cluster's speed.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Self, TypeVar

from agents.attempts import owned
from agents.cluster import Cluster
from agents.facts import PodFacts
from agents.loop import wall_clock
from agents.outbox import Outbox, Parcel
from agents.policy import LocalPolicy
from agents.simulated.worlds import Devices, Level, NodeGroup, World, nodes_of
from agents.work import Workbench
from controlplane.contract.agent.attempts import (
    ApplyBody,
    AttemptObservation,
    Budgets,
    Directive,
    Pin,
    PodObservation,
    PodSetOrder,
)
from controlplane.contract.agent.sync import ListPart

Found = TypeVar("Found")
UID = "0197a000-0000-7000-8000-00000000ab1e"
NAMESPACE = "nlp"
GPU = "nvidia.com/gpu"


def a_world(nodes: int = 4, gpus: int = 8, name: str = "east") -> World:
    """A cluster of equal nodes in racks of two."""
    group = NodeGroup(
        count=nodes,
        devices=Devices(flavor="nvidia-h100-80gb", count=gpus),
        topology=[Level(level="rack", of=2)],
    )
    return World(name=name, nodes=nodes_of(name, [group]), namespaces=[NAMESPACE])


def a_template(run_seconds: float = 600, exit_code: int = 0, **spec: object) -> dict[str, object]:
    """A pod template that runs so long."""
    annotations = {
        "simulated.muster.dev/run-seconds": str(run_seconds),
        "simulated.muster.dev/exit-code": str(exit_code),
    }
    container = {"name": "main", "image": "registry.example/train@sha256:" + "0" * 64}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container], **spec}}


def an_apply(
    pods: int = 4,
    *,
    kind: str = "Job",
    attempt: int = 1,
    workload: str = UID,
    nodes: Sequence[str] = ("east-0", "east-1", "east-2", "east-3"),
    template: dict[str, object] | None = None,
    budgets: Budgets | None = None,
    name: str = "train",
    namespace: str = NAMESPACE,
) -> Directive:
    """Eight devices for each pod, one pod on each node."""
    body = ApplyBody.model_validate(
        {
            "name": name,
            "namespace": namespace,
            "world_size": pods,
            "pod_sets": [
                PodSetOrder.model_validate(
                    {"name": "main", "kind": kind, "replicas": pods, "template": template or a_template()}
                )
            ],
            "pins": [
                Pin(pod_set="main", index=index, rank=index, node=nodes[index], resource=GPU, amount=8)
                for index in range(pods)
            ],
            "budgets": budgets or Budgets(),
        }
    )
    return Directive(
        number=1, object_id=f"{workload}.{attempt}", gen=1, kind="apply", workload=workload, attempt=attempt, apply=body
    )


def a_start(apply: Directive) -> Directive:
    return apply.model_copy(update={"number": 2, "gen": 2, "kind": "start", "apply": None})


def a_tombstone(apply: Directive, gen: int = 3) -> Directive:
    return apply.model_copy(update={"number": 3, "gen": gen, "kind": "tombstone", "apply": None})


class Bench:
    """A running workbench; as a context manager it is ended and awaited."""

    def __init__(
        self, cluster: Cluster, policy: LocalPolicy | None = None, clock: Callable[[], datetime] = wall_clock
    ) -> None:
        self.cluster = cluster
        self.outbox = Outbox()
        self.looks = 0  # at everything there is
        self._wake = asyncio.Event()
        self.work = Workbench(cluster, policy or LocalPolicy(), self.outbox, self._wake.set, clock)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.work.recall()
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._run())]
        return self

    async def __aexit__(self, *_: object) -> None:
        """As a killed process would end: actions that are under way are cut."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.work.finish()

    def attempt(self, object_id: str) -> AttemptObservation | None:
        return next((seen for seen in self._everything().attempts if seen.object_id == object_id), None)

    def pods(self, object_id: str) -> list[PodObservation]:
        seen = [pod for pod in self._everything().pods if f"{pod.workload}.{pod.attempt}" == object_id]
        return sorted(seen, key=lambda pod: pod.index)

    def pod(self, object_id: str, index: int) -> PodFacts:
        found = owned(self.cluster.view, object_id).current(("main", index))
        assert found is not None, f"rank {index} has no pod"
        return found

    async def until(self, ask: Callable[[], Found], within: float = 5.0) -> Found:
        """The first truthy answer; an AssertionError counts as not yet."""
        deadline = time.monotonic() + within
        while True:
            with contextlib.suppress(AssertionError):
                if found := ask():
                    return found
            assert time.monotonic() < deadline, f"not within {within} s; {self._everything()}"
            await asyncio.sleep(0.01)

    async def looked_again(self, times: int = 2) -> None:
        """Everything was looked at again, more than once, and what followed from it is done."""
        wanted = self.looks + times
        await self.until(lambda: self.looks >= wanted)
        await self.work.finish()

    async def until_state(self, object_id: str, state: str, within: float = 5.0) -> AttemptObservation:
        def has_state() -> AttemptObservation | None:
            seen = self.attempt(object_id)
            return seen if seen is not None and seen.state == state else None

        found = await self.until(has_state, within)
        assert found is not None
        return found

    async def until_phases(self, object_id: str, phase: str, count: int, within: float = 5.0) -> list[PodObservation]:
        await self.until(lambda: sum(pod.phase == phase for pod in self.pods(object_id)) == count, within)
        return self.pods(object_id)

    def _everything(self) -> Parcel:
        found = self.outbox.list_part()
        assert found.part == ListPart(), "all of it"
        return found

    async def _watch(self) -> None:
        version = -1
        while True:
            await self.cluster.wait(version, 0.1)
            version = self.cluster.view.version
            self._wake.set()
            await asyncio.sleep(0.005)

    async def _run(self) -> None:
        looked_at = 0.0
        while True:
            await self._wake.wait()
            self._wake.clear()
            is_time = time.monotonic() - looked_at > 0.2
            self.work.step(everything=is_time)
            looked_at = time.monotonic() if is_time else looked_at
            self.looks += is_time
            await asyncio.sleep(0)
