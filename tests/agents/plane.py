"""A plane for one agent: real listeners over real servers, a planner called by hand, and a real agent before it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.cluster import Cluster
from agents.enrolment import Enroller
from agents.health import Pulse
from agents.identity import FileStore, Keeper
from agents.loop import Agent
from agents.policy import LocalPolicy
from agents.settings import AgentSettings
from agents.simulated.cluster import SimulatedCluster
from agents.transport import Transport
from controlplane.services.scheduling import Planner
from tests.agents.bench import NAMESPACE
from tests.support.api import Api

Json = dict[str, Any]
QUEUE = {
    "apiVersion": "muster.dev/v1",
    "kind": "Queue",
    "metadata": {"name": "research"},
    "spec": {"namespace": NAMESPACE, "quotas": [{"flavor": "nvidia-h100-80gb", "nominal": 64}]},
}


@dataclass
class PlaneForAgents:
    """What a test says to the plane."""

    api: Api
    folder: Path
    _planner: Planner | None = field(default=None)

    async def call(self, method: str, path: str, body: object = None) -> Json:
        """Ask the REST API; the answer's JSON, an object."""
        answer = await asyncio.to_thread(self.api.client().request, method, f"/api/v1{path}", json=body)
        assert answer.status_code < 300, answer.text
        found: Json = answer.json() if answer.content else {}
        return found

    async def make_cluster(self, name: str = "east") -> Path:
        """The file with its enrolment token."""
        await self.call("POST", "/apply", QUEUE)
        made = await self.call("POST", "/clusters", {"name": name})
        path = self.folder / f"{name}.token"
        path.write_text(made["token"])
        return path

    async def accept(self, name: str = "east") -> None:
        async def is_enrolled() -> bool:
            return bool((await self.call("GET", f"/clusters/{name}"))["state"] == "enrolled")

        await self.until(is_enrolled)
        await self.call("POST", f"/clusters/{name}/accept")

    async def submit(self, name: str, pods: int = 4, run_seconds: float = 600) -> None:
        template = {
            "metadata": {"annotations": {"simulated.muster.dev/run-seconds": str(run_seconds)}},
            "spec": {"containers": [{"name": "main", "image": "registry.example/train@sha256:" + "0" * 64}]},
        }
        pod_set = {
            "name": "main",
            "replicas": pods,
            "devices": 8,
            "flavors": [{"name": "nvidia-h100-80gb"}],
            "template": template,
        }
        head = {"apiVersion": "muster.dev/v1", "kind": "Workload", "metadata": {"name": name}}
        await self.call("POST", "/workloads", {**head, "spec": {"queue": "research", "podSets": [pod_set]}})

    async def exchanged(self, times: int = 3, *, since_epoch: int = 0) -> int:
        """Wait until an agent's Session, newer than that epoch, has had so many more requests answered; its epoch."""
        began: tuple[int, int] | None = None

        async def is_so() -> bool:
            nonlocal began
            epoch, seq = await asyncio.to_thread(self._session)
            if epoch <= since_epoch:
                return False
            began = began if began is not None and began[0] == epoch else (epoch, seq)
            return seq >= began[1] + times

        await self.until(is_so)
        assert began is not None
        return began[0]

    async def plan(self) -> None:
        await asyncio.to_thread(self._plan)

    async def until_state(self, name: str, state: str, within: float = 45.0) -> Json:
        async def has_state() -> bool:
            return bool((await self.call("GET", f"/workloads/{name}"))["state"] == state)

        await self.until(has_state, within)
        return await self.call("GET", f"/workloads/{name}")

    async def until(self, ask: Callable[[], Awaitable[bool]], within: float = 45.0) -> None:
        """Ask until the answer is yes."""
        deadline = time.monotonic() + within
        while True:
            if await ask():
                return
            assert time.monotonic() < deadline, f"not within {within} s"
            await asyncio.sleep(0.05)

    def _session(self) -> tuple[int, int]:
        with self.api.container.uow_factory() as uow:
            cluster = uow.fleet.cluster_named("east")
            session = None if cluster is None else uow.agents.session(cluster.id)
            return (0, 0) if session is None else (session.epoch, session.seq)

    def _plan(self) -> None:
        if self._planner is None:
            with self.api.container.uow_factory() as uow:
                pool = uow.fleet.ensure_pool("default")
            self._planner = Planner(pool, "test", self.api.container.planning_tools())
        self._planner.take()
        self._planner.step()


@asynccontextmanager
async def an_agent(
    plane: PlaneForAgents, cluster: Cluster, token_file: Path, pulse: Pulse | None = None, **others: object
) -> AsyncIterator[asyncio.Task[None]]:
    """A running agent; its key lies in the test's folder, so that the next one is the same agent."""
    given = {"plane_url": plane.api.agent_url, "cluster": "east", "instance": "one", "backoff_seconds_max": 1, **others}
    settings = AgentSettings.model_validate(given)
    keeper = Keeper(FileStore(plane.folder / "state"))
    await keeper.open()
    link = cluster.link_is_up if isinstance(cluster, SimulatedCluster) else None
    enroller = Enroller(Transport(settings, keeper, link), keeper, token_file)
    task = asyncio.create_task(Agent(settings, cluster, enroller, LocalPolicy(), pulse).run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
