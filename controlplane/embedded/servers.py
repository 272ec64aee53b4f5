"""Postgres and Valkey of the embedded plane: start, recover, stop, all in one folder.

`DATABASE_URL` and `REDIS_URL` come first: a server that the user names is used and not started. Whoever holds a
`Servers` holds the folder's lock; when that process ends in any way, the servers end too (`launcher`).
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane.embedded.children import Child, Spec
from controlplane.embedded.errors import StartFailed
from controlplane.embedded.home import Home
from controlplane.embedded.postgres import APP_ROLE, Postgres
from controlplane.embedded.valkey import Valkey

START_TRIES = 3
"""A port that was free when chosen can be taken when bound."""


@dataclass(frozen=True, slots=True)
class Started:
    """Servers that run, and the processes that they are."""

    servers: "Servers"
    children: list[Child]


@dataclass(frozen=True, slots=True)
class Servers:
    """The two servers of a folder; one that the user runs is None here."""

    home: Home
    postgres: Postgres | None
    valkey: Valkey | None

    @classmethod
    def find(cls, home: Home, environment: Mapping[str, str] = os.environ, *, durable: bool = True) -> "Servers":
        """What must be started here, or a refusal that names the alternatives."""
        return cls(
            home,
            None if environment.get("DATABASE_URL") else Postgres.find(home, environment, durable=durable),
            None if environment.get("REDIS_URL") else Valkey.find(home, environment),
        )

    def specs(self) -> list[Spec]:
        """The servers as child processes, in the order of starting."""
        return [server.spec() for server in (self.postgres, self.valkey) if server is not None]

    def environment(self) -> dict[str, str]:
        """What the plane's processes must be told; names that the user has set are left as they are."""
        told: dict[str, str] = {}
        if self.postgres is not None:
            told |= {"DATABASE_URL": self.postgres.url(), "MUSTER_DATABASE_ROLE": APP_ROLE}
        if self.valkey is not None:
            told |= {"REDIS_URL": self.valkey.url()}
        return told


def start(home: Home, environment: Mapping[str, str] = os.environ, *, durable: bool = True) -> "Started":
    """Both servers up and ready, within their own time-outs; the caller holds the folder's lock and stops them."""
    for attempt in range(1, START_TRIES + 1):
        servers = Servers.find(home, environment, durable=durable)
        children: list[Child] = []
        try:
            children.extend(map(Child, servers.specs()))
            for child in children:
                child.wait_ready()
        except BaseException as failure:
            stop(children)
            if attempt == START_TRIES or not isinstance(failure, StartFailed):
                raise
        else:
            return Started(servers, children)
    raise AssertionError("the last try returns or raises")


def stop(children: Iterable[Child]) -> None:
    """End them all, each within its time, at the same time."""
    ending = list(children)
    for child in ending:
        child.ask_to_stop()
    for child in ending:
        child.stop()


@contextmanager
def running(folder: Path, environment: Mapping[str, str] = os.environ, *, durable: bool = True) -> Iterator[Servers]:
    """Both servers of `folder` until the block ends, without a supervisor: for tests and tools."""
    home = Home.open(folder)
    with home.lock():
        started = start(home, environment, durable=durable)
        try:
            yield started.servers
        finally:
            stop(started.children)
