"""The agent's probes: alive is who gets on, ready is who has a Session and sees its cluster; a hung task is neither."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from agents.enrolment import Enroller
from agents.health import MARGIN_SECONDS, TALK, Pulse, listen
from agents.identity import FileStore, Keeper
from agents.kube.client import connect as connect_client
from agents.kube.lease import Election
from agents.loop import Agent
from agents.policy import LocalPolicy
from agents.settings import AgentSettings
from agents.simulated.cluster import SimulatedCluster
from agents.transport import Transport
from controlplane.embedded.home import free_port
from tests.agents.bench import a_world
from tests.agents.plane import PlaneForAgents, an_agent
from tests.helm.render import install_agent
from tests.kube.cluster import KubeCluster
from tests.support.api import serving, settings_for
from tests.support.databases import Database
from tests.support.probing import probe
from tests.support.waiting import eventually


@dataclass
class Clock:
    """Seconds that pass when the test says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def probed(pulse: Pulse) -> AsyncIterator[Callable[[str], "asyncio.Task[httpx.Response]"]]:
    """Asks one path of a listener over that pulse."""
    server = await listen(pulse, 0, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=5) as client:
        yield lambda path: asyncio.create_task(client.get(path))
    server.close()


def test_a_task_that_is_not_heard_of_when_it_promised_is_stuck_and_named() -> None:
    clock = Clock()
    pulse = Pulse(clock)
    pulse.within(TALK, 25)
    clock.now += 25 + MARGIN_SECONDS
    assert not pulse.stuck()
    clock.now += 1
    assert pulse.stuck() == ["talk: not heard of for 56 s"]
    pulse.within(TALK, 25)
    assert not pulse.stuck()


def test_a_long_pause_that_was_announced_is_life() -> None:
    clock = Clock()
    pulse = Pulse(clock)
    pulse.within(TALK, 3600)  # the plane asked us to come back in an hour
    clock.now += 3600
    assert not pulse.stuck()


def test_a_replica_that_stands_by_is_ready_for_that_and_a_leader_needs_a_session_and_its_cluster() -> None:
    clock = Clock()
    pulse = Pulse(clock)
    pulse.stands_by(waits=True)
    assert not pulse.missing()
    pulse.stands_by(waits=False)
    assert len(pulse.missing()) == 2
    pulse.kube_answers(is_so=True)
    pulse.session_lives(60)
    assert not pulse.missing()
    clock.now += 61
    assert pulse.missing() == ["no Session with the plane is open"]


async def test_probes_answer_with_a_status_and_the_sentence() -> None:
    clock = Clock()
    pulse = Pulse(clock)
    async with probed(pulse) as ask:
        assert ((await ask("/livez")).status_code, (await ask("/livez")).text) == (200, "ok\n")
        refused = await ask("/readyz?verbose=1")
        assert (refused.status_code, "API server" in refused.text) == (503, True)
        pulse.within(TALK, 1)
        clock.now += 3600
        hung = await ask("/livez")
        assert (hung.status_code, hung.text) == (503, "talk: not heard of for 3600 s\n")
        assert (await ask("/metrics")).status_code == 404


@pytest.mark.parametrize("sent", [b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"POST /livez HTTP/1.1\r\n\r\n", b"A" * 100_000])
async def test_whatever_is_sent_to_the_probes_they_answer_the_next_one(sent: bytes) -> None:
    server = await listen(Pulse(), 0, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 10)
    assert b" 200 " not in answer
    writer.close()
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"http://127.0.0.1:{port}/livez")).status_code == 200
    server.close()


async def test_an_agent_is_ready_once_its_session_is_open_and_its_own_loop_never_looks_hung(
    database: Database, valkey: str, tmp_path: Path
) -> None:
    """Waiting to be accepted, working, and losing the link: alive throughout."""
    cluster, pulse = SimulatedCluster(a_world()), Pulse()
    with serving(settings_for(database, valkey, tmp_path / "secrets", lease_seconds=2, poll_seconds=1)) as api:
        plane = PlaneForAgents(api, tmp_path)
        token = await plane.make_cluster()
        async with an_agent(plane, cluster, token, pulse):
            await plane.until(lambda: _so(pulse.missing() == ["no Session with the plane is open"]))
            await plane.accept()
            await plane.until(lambda: _so(not pulse.missing()))
            cluster.cut_link(None)
            await plane.until(lambda: _so(pulse.missing() == ["no Session with the plane is open"]))
            assert not pulse.stuck()
            cluster.heal_link()
            await plane.until(lambda: _so(not pulse.missing()))
    assert not pulse.stuck()


async def test_an_agent_whose_request_never_ends_is_not_alive(tmp_path: Path) -> None:
    """A transport that hangs for ever stands for every await that nobody bounded."""
    clock = Clock()
    pulse = Pulse(clock)
    settings = AgentSettings(plane_url="http://127.0.0.1:1", cluster="east", instance="one")
    keeper = Keeper(FileStore(tmp_path))
    (tmp_path / "token").write_text(f"mst_1.{'x' * 43}")
    agent = Agent(
        settings, SimulatedCluster(a_world()), Enroller(_Hung(settings, keeper), keeper, tmp_path / "token"),
        LocalPolicy(), pulse,
    )  # fmt: skip
    task = asyncio.create_task(agent.run())
    try:
        async with asyncio.timeout(10):
            await _Hung.is_reached.wait()
        assert not pulse.stuck()
        clock.now += 3600
        await _until(lambda: pulse.stuck() == ["talk: not heard of for 3600 s"])  # the others speak up again
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_replica_that_waits_for_the_lease_is_ready_and_so_can_be_rolled_out(kube: KubeCluster) -> None:
    installed = install_agent(kube, [])
    client = await connect_client(installed.kubeconfig)
    first, waiting = Pulse(), Pulse()
    leader = Election(client, installed.namespace, "first", first)
    second = asyncio.create_task(Election(client, installed.namespace, "second", waiting).win())
    try:
        await leader.win()
        await _until(lambda: not waiting.missing())
        assert len(first.missing()) == 2, "the leader has work to do before it is ready"
        await leader.give_up()
        await asyncio.wait_for(second, 20)
        assert len(waiting.missing()) == 2
    finally:
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        await client.close()


def test_the_command_serves_its_probes_and_names_a_port_that_is_taken(tmp_path: Path) -> None:
    world = tmp_path / "world.yaml"
    world.write_text("kind: Cluster\nmetadata: {name: east}\nspec: {nodes: []}\n")
    command = [
        sys.executable, "-m", "agents.main", "run", "--simulated", str(world), "--state-dir", str(tmp_path / "s"),
        "--cluster", "east", "--plane-url", "http://127.0.0.1:1",
    ]  # fmt: skip
    port = free_port()
    process = subprocess.Popen(
        [*command, "--health-port", str(port)], stderr=subprocess.DEVNULL, env={**os.environ, "MUSTER_AGENT_LEASE": "0"}
    )
    try:
        eventually(lambda: _status(port, "/livez") == 200, within=30, what="a live agent")
        assert _status(port, "/readyz") == 503, "it has no plane"
        taken = subprocess.run(
            command, env={**os.environ, "MUSTER_AGENT_HEALTH_PORT": str(port)},
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert taken.returncode == 2
        assert f"health_port: {port}" in taken.stderr
    finally:
        process.terminate()
        assert process.wait(20) == 0
    with socket.socket() as free:
        assert free.connect_ex(("127.0.0.1", port)) != 0


class _Hung(Transport):
    """Never answers."""

    is_reached = asyncio.Event()

    async def enrol(self, request: object) -> object:  # type: ignore[override]  # it never returns one
        del request
        self.is_reached.set()
        await asyncio.Event().wait()
        raise AssertionError


async def _until(ask: Callable[[], bool], within: float = 45.0) -> None:
    deadline = time.monotonic() + within
    while not ask():
        assert time.monotonic() < deadline, f"not within {within} s"
        await asyncio.sleep(0.02)


async def _so(answer: bool) -> bool:
    return answer


def _status(port: int, path: str) -> int:
    return probe(f"http://127.0.0.1:{port}{path}")[0]
