"""The demonstration's processes: an embedded plane of its own and one agent per simulated cluster.

Agents are programs of their own (`muster-agent run --simulated`), over real HTTP, as in the field; the plane knows
nothing of their being simulated. What breaks is told to them over their loopback control port.
"""

import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.embedded.children import Child, Spec
from controlplane.embedded.control import Sizes, start_detached, stop
from controlplane.embedded.demo.client import PlaneClient
from controlplane.embedded.home import LOCAL_HOST, Home, write_private
from controlplane.embedded.state import PlaneState, read_state

CONTROL_SECONDS = 5
PORT_FILE = "control-port"


class DemoFailed(Exception):
    """The demonstration could not be set up, and why."""


@dataclass(slots=True)
class Agent:
    """A simulated cluster's agent."""

    cluster: str
    process: Child
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
        for agent in self.agents.values():
            agent.process.ask_to_stop()
        for agent in self.agents.values():
            agent.process.stop()


def assemble(folder: Path) -> Cast:
    """Start a fresh plane in `folder`, which is emptied first if an earlier demonstration left it."""
    if folder.exists():
        stop(Home.open(folder))
        shutil.rmtree(folder)
    home = Home.open(folder)
    state = start_detached(home, Sizes())
    return Cast(home, state, PlaneClient(state.api_url, home.admin_token))


def enrol(cast: Cast, clusters: Iterable[tuple[str, dict[str, object], dict[str, str]]], world: Path) -> None:
    """Make each Cluster with a one-time token, and start its agent with it. `clusters`: name, spec, labels."""
    for name, spec, labels in clusters:
        folder = cast.home.path / "agents" / name
        folder.mkdir(mode=0o700, parents=True)
        made = cast.client.post(
            "/clusters", {"name": name, "labels": labels, "spec": spec, "tokenValid": "1h", "autoAccept": True}
        )
        token = folder / "token"
        write_private(token, made["token"])
        cast.agents[name] = Agent(name, _start(cast, name, folder, token, world), folder)


def _start(cast: Cast, name: str, folder: Path, token: Path, world: Path) -> Child:
    settings = {
        "PLANE_URL": cast.state.agent_url,
        "CLUSTER": name,
        "TOKEN_FILE": str(token),
        "STATE_DIR": str(folder),
        "CONTROL_PORT": "0",
        "BACKOFF_SECONDS_MAX": "2",
    }
    return Child(
        Spec(
            name=f"agent-{name}",
            argv=(sys.executable, "-m", "agents.main", "run", "--simulated", str(world)),
            log=cast.home.log(f"agent-{name}"),
            env={f"MUSTER_AGENT_{key}": text for key, text in settings.items()},
            folder=folder,
        )
    )
