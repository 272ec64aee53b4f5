"""What every refusal looks like, and a socket that says exactly what it is told to."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from controlplane.embedded.postgres import Postgres
from controlplane.embedded.valkey import Valkey
from tests.api.bodies import QUEUES, YAML
from tests.support import databases
from tests.support.api import Api, serving, settings_for

JSON = {"Content-Type": "application/json"}


def assert_problem(answer: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    """The whole form of a problem document; returned, for whoever looks at more of it."""
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["type"]) == (status, f"/problems/{slug}"), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    assert problem["title"]
    assert problem["requestId"] == answer.headers["x-request-id"]
    assert "Traceback" not in answer.text
    return problem


@contextmanager
def refusing(
    postgres: Postgres, migrated: str, valkey: Valkey, folders: pytest.TempPathFactory, **settings: object
) -> Iterator[Api]:
    """An API with queues for a whole module: nothing that is refused may change it; the doctor looks at the end."""
    fresh = databases.clone(postgres, migrated)
    try:
        with serving(settings_for(fresh, valkey.url(0), folders.mktemp("keys"), **settings)) as api:
            answer = api.client().post("/api/v1/apply", content=QUEUES, headers=YAML)
            assert answer.status_code == 200, answer.text
            yield api
        assert databases.found_by_doctor(fresh) == []
    finally:
        databases.drop(postgres, fresh)


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An answer as it came over a socket."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def slug(self) -> str:
        assert self.headers["content-type"] == "application/problem+json", self
        return str(json.loads(self.body)["type"]).removeprefix("/problems/")


@dataclass(frozen=True, slots=True)
class Line:
    """A connection of one's own."""

    socket: socket.socket

    def say(self, *parts: bytes) -> None:
        """Send it; that the other side has hung up meanwhile is its right."""
        with suppress(OSError):
            self.socket.sendall(b"".join(parts))

    def hear(self) -> RawAnswer:
        """One whole answer."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._more()
        head, _, body = received.partition(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        while len(body) < int(headers.get("content-length", "0")):
            body += self._more()
        return RawAnswer(int(first.split()[1]), headers, body)

    def is_hung_up(self) -> bool:
        """Whether the other side has closed it, within the socket's time-out."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _more(self) -> bytes:
        piece = self.socket.recv(65_536)
        assert piece, "it hung up without an answer"
        return piece


@contextmanager
def line_to(url: str) -> Iterator[Line]:
    """A connection to a listener; what it waits for comes within ten seconds."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=10) as link:
        yield Line(link)
