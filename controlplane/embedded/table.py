"""The process table of an embedded plane: which programs run beside the servers, and what each is told.

A row is data. To add a process add a row; commands are modules, so this package imports none of them.
"""

import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from controlplane.embedded.children import Spec
from controlplane.embedded.cli_config import database_named, is_remembered
from controlplane.embedded.errors import StartFailed
from controlplane.embedded.home import LOCAL_HOST, Home, reserve

PYTHON = (sys.executable, "-m", "controlplane.embedded.begin")
API_PORT = 8440
AGENT_PORT = 8441
PROBE_SECONDS = 2
ANSWER_BYTES_MAX = 4_096

LEAN = {
    "PYTHONUNBUFFERED": "1",
    "MALLOC_ARENA_MAX": "2",  # glibc gives each thread an arena of its own otherwise, and keeps them
}


@dataclass(frozen=True, slots=True)
class Step:
    """A program that runs once, before the plane, and must end well."""

    name: str
    argv: tuple[str, ...]
    seconds: int = 120


class Table(Protocol):
    """What a supervisor must know of the processes beside the servers."""

    @property
    def home(self) -> Home: ...
    @property
    def api_url(self) -> str: ...
    @property
    def agent_url(self) -> str: ...
    def environment(self) -> dict[str, str]: ...
    def steps(self) -> list[Step]: ...
    def specs(self, told: Mapping[str, str]) -> list[Spec]: ...


@dataclass(frozen=True, slots=True)
class Plane:
    """Where the plane of this folder listens, and how many of each class of worker it has."""

    home: Home
    api_port: int
    agent_port: int
    workers: int = 1
    planners: int = 1

    @classmethod
    def choose(cls, home: Home, workers: int = 1, planners: int = 1) -> "Plane":
        """With the ports that the user names, else those of last time."""
        api = _named_port("MUSTER_API_PORT") or home.port("api", API_PORT)
        agents = _named_port("MUSTER_AGENT_PORT") or home.port("agents", AGENT_PORT)
        return cls(home, api, agents, workers, planners)

    @property
    def api_url(self) -> str:
        return f"http://{LOCAL_HOST}:{self.api_port}"

    @property
    def agent_url(self) -> str:
        return f"http://{LOCAL_HOST}:{self.agent_port}"

    def environment(self) -> dict[str, str]:
        """What every process of the plane is told beside the servers' addresses."""
        return LEAN | {
            "MUSTER_API_PORT": str(self.api_port),
            "MUSTER_AGENT_PORT": str(self.agent_port),
            "MUSTER_SECRETS_DIR": str(self.home.secrets / "plane"),
        }

    def steps(self) -> list[Step]:
        """In order, after the servers and before the plane; only the first start has a login to make."""
        migrate = Step("migrate", (*PYTHON, "controlplane.db.migrate"))
        database = database_named()
        login = (*PYTHON, "controlplane.embedded.first_login", str(self.home.path), self.api_url, database)
        return [migrate] if is_remembered(self.home, self.api_url, database) else [migrate, Step("first-login", login)]

    def specs(self, told: Mapping[str, str]) -> list[Spec]:
        """The plane's processes; they may start in any order and at once."""
        rows: list[tuple[str, tuple[str, ...], Callable[[], bool]]] = [
            ("api", ("controlplane.api.serve",), partial(answers, self.api_port, "/readyz")),
            *_numbered("worker", self.workers),
            *_numbered("planner", self.planners),
            ("beat", ("controlplane.workers.run", "beat"), _runs),
        ]
        return [
            Spec(
                name=name,
                argv=(*PYTHON, *module),
                log=self.home.log(name),
                env=told,
                folder=self.home.path,
                stop_seconds=4,
                is_ready=is_ready,
            )
            for name, module, is_ready in rows
        ]


def ask(port: int, path: str) -> tuple[int, str]:
    """Status and body of a GET on the loopback, 0 without an answer; by hand, as an HTTP client costs megabytes."""
    try:
        with socket.create_connection((LOCAL_HOST, port), timeout=PROBE_SECONDS) as link:
            link.sendall(f"GET {path} HTTP/1.1\r\nHost: {LOCAL_HOST}\r\nConnection: close\r\n\r\n".encode())
            with link.makefile("rb") as answer:
                head, _, body = answer.read(ANSWER_BYTES_MAX).decode(errors="replace").partition("\r\n\r\n")
        return int(head.split(" ", 2)[1]), body
    except (OSError, ValueError, IndexError):
        return 0, ""


def answers(port: int, path: str) -> bool:
    """Whether a server on the loopback answers 200."""
    return ask(port, path)[0] == 200


def _named_port(variable: str) -> int:
    named = int(os.environ.get(variable) or 0)
    if named and not reserve(named):
        raise StartFailed(f"{variable} is {named}, but somebody listens there already")
    return named


def _numbered(name: str, count: int) -> list[tuple[str, tuple[str, ...], Callable[[], bool]]]:
    names = [name, *(f"{name}-{number}" for number in range(2, count + 1))][:count]
    return [(each, ("controlplane.workers.run", name), _runs) for each in names]


def _runs() -> bool:
    return True
