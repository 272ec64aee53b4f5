"""The demonstration's processes: an embedded plane of its own and one agent per simulated cluster.

Agents are programs of their own (`muster-agent run --simulated`), over real HTTP, as in the field; the plane knows
nothing of their being simulated. What breaks is told to them over their loopback control port.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.embedded.children import Child, Spec, stop_strays
from controlplane.embedded.control import Sizes, start_detached, stop
from controlplane.embedded.demo import tether
from controlplane.embedded.demo.client import PlaneClient
from controlplane.embedded.home import LOCAL_HOST, Home, write_private
from controlplane.embedded.state import PlaneState, read_state

CONTROL_SECONDS = 5
PORT_FILE = "control-port"
STRAY_SECONDS = 6


class DemoFailed(Exception):
    """The demonstration could not be set up, and why."""


@dataclass(slots=True)
class Agent:
    """A simulated cluster's agent."""

    cluster: str
    process: Child | None  # None: it outlives us, tethered to the plane
    folder: Path

    def tell(self, **fault: object) -> str:
        """Let something break in its cluster; returns what did."""
        port = int((self.folder / PORT_FILE).read_text(encoding="utf-8"))
        with socket.create_connection((LOCAL_HOST, port), timeout=CONTROL_SECONDS) as link:
            link.sendall(json.dumps(fault).encode() + b"\n")
            answer = json.loads(link.makefile().readline())
        if "error" in answer:
            raise DemoFailed(f"{self.cluster}: {answer['error']}")
        return str(answer["done"])


@dataclass(slots=True)
class Cast:
    """Everything that runs for a demonstration."""

    home: Home
    state: PlaneState
    client: PlaneClient
    agents: dict[str, Agent] = field(default_factory=dict)

    def kill(self, name: str) -> bool:
        """`kill -9` one process of the plane; its supervisor starts it again."""
        state = read_state(self.home)
        pids = [each.pid for each in state.processes if each.name == name and each.pid] if state else []
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return bool(pids)

    def stop(self) -> None:
        """End agents, then the plane; its folder stays."""
        self.stop_agents()
        self.client.close()
        stop(self.home)

    def stop_agents(self) -> None:
        """Ask all, then wait for each."""
        ours = [agent.process for agent in self.agents.values() if agent.process is not None]
        for process in ours:
            process.ask_to_stop()
        for process in ours:
            process.stop()


def assemble(folder: Path) -> Cast:
    """Start a fresh plane in `folder`, which is emptied first if an earlier demonstration left it."""
    if folder.exists():
        if any(folder.iterdir()) and not (folder / "lock").exists():
            raise DemoFailed(f"{folder} holds something that no demonstration left there; MUSTER_HOME chooses another")
        stop(Home.open(folder))
        stop_strays(
            lambda argv: tether.MODULE in argv and str(folder.resolve()) in argv, signal.SIGTERM, within=STRAY_SECONDS
        )
        shutil.rmtree(folder)
    home = Home.open(folder)
    state = start_detached(home, Sizes())
    return Cast(home, state, PlaneClient(state.api_url, home.admin_token))


def enrol(
    cast: Cast, clusters: Iterable[tuple[str, dict[str, object], dict[str, str]]], world: Path, *, keep: bool = False
) -> None:
    """Make each Cluster with a one-time token, and start its agent with it. `clusters`: name, spec, labels.

    Agents end with us; with `keep` they end with the plane.
    """
    for name, spec, labels in clusters:
        folder = cast.home.path / "agents" / name
        folder.mkdir(mode=0o700, parents=True)
        made = cast.client.post(
            "/clusters", {"name": name, "labels": labels, "spec": spec, "tokenValid": "1h", "autoAccept": True}
        )
        token = folder / "token"
        write_private(token, made["token"])
        agent = _agent(cast, name, folder, token, world)
        cast.agents[name] = Agent(name, None if keep else Child(agent), folder)
        if keep:
            _leave(cast.home, agent)


def _leave(home: Home, spec: Spec) -> None:
    """Start it so that it ends with the plane."""
    command = [sys.executable, "-m", tether.MODULE, str(home.path), spec.name, *spec.argv]
    nothing = subprocess.DEVNULL
    subprocess.Popen(
        command, stdin=nothing, stdout=nothing, stderr=nothing, env={**os.environ, **spec.env}, start_new_session=True
    )


def _agent(cast: Cast, name: str, folder: Path, token: Path, world: Path) -> Spec:
    settings = {
        "PLANE_URL": cast.state.agent_url,
        "CLUSTER": name,
        "TOKEN_FILE": str(token),
        "STATE_DIR": str(folder),
        "CONTROL_PORT": "0",
        "BACKOFF_SECONDS_MAX": "2",
    }
    return Spec(
        name=f"agent-{name}",
        argv=(sys.executable, "-m", "agents.main", "run", "--simulated", str(world)),
        log=cast.home.log(f"agent-{name}"),
        env={f"MUSTER_AGENT_{key}": text for key, text in settings.items()},
        folder=folder,
    )
