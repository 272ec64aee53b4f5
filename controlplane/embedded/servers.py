"""Postgres and Valkey of the embedded plane: start, recover, stop, all in one folder.

`DATABASE_URL` and `REDIS_URL` come first: a server that the user names is used and not started. Whoever holds a
`Servers` holds the folder's lock; when that process ends in any way, the servers end too (`launcher`).
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
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


@contextmanager
def running(folder: Path, environment: Mapping[str, str] = os.environ, *, durable: bool = True) -> Iterator[Servers]:
    """Both servers of `folder`, up and ready, until the block ends; waits at most the servers' own time-outs."""
    home = Home.open(folder)
    with home.lock(), ExitStack() as stack:
        for attempt in range(1, START_TRIES + 1):
            servers = Servers.find(home, environment, durable=durable)
            children = [stack.enter_context(_stopped_at_end(spec)) for spec in servers.specs()]
            try:
                for child in children:
                    child.wait_ready()
            except StartFailed:
                stack.pop_all().close()
                if attempt == START_TRIES:
                    raise
            else:
                break
        yield servers


@contextmanager
def _stopped_at_end(spec: Spec) -> Iterator[Child]:
    child = Child(spec)
    try:
        yield child
    finally:
        child.stop()
