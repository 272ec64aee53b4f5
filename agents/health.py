"""Whether this agent still gets on, for the kubelet's probes: `/livez` and `/readyz` on a port of the pod.

Each task of the loop says by when it will be heard of again; one that lets that time pass is stuck. Waiting for a plane
or an API server that is away is getting on: a restart would mend nothing. Nothing here decides about work.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

MARGIN_SECONDS = 30.0
"""How much later than promised a task may be heard of on a machine that has other things to do."""

OPENING_SECONDS = 600.0
REQUEST_BYTES_MAX = 4_096
REQUEST_SECONDS = 5.0
CONNECTIONS_MAX = 32
OPENING, TALK = "opening", "talk"


class PortTaken(Exception):
    """Nobody can listen there."""


@dataclass(slots=True)
class Pulse:
    """What the tasks of the loop promise; times are those of `clock`, seconds that never jump."""

    clock: Callable[[], float] = time.monotonic
    _promised: dict[str, tuple[float, float]] = field(default_factory=dict)
    _session_until: float = float("-inf")
    _waits_for_lease: bool = False
    _kube_answers: bool = False

    def within(self, task: str, seconds: float) -> None:
        """The task gets on, and will be heard of again within so many seconds."""
        now = self.clock()
        self._promised[task] = (now, now + seconds + MARGIN_SECONDS)

    def done(self, task: str) -> None:
        """Nothing more is to be heard of this task."""
        self._promised.pop(task, None)

    def stands_by(self, *, waits: bool) -> None:
        """Another replica leads (`waits`), as the cluster's API server has just said; or this one leads now."""
        self._waits_for_lease = waits

    def session_lives(self, seconds: float) -> None:
        """The plane has answered: the Session is good for so long. 0: it is over."""
        self._session_until = self.clock() + seconds

    def kube_answers(self, *, is_so: bool) -> None:
        """Whether the cluster's own API server answers."""
        self._kube_answers = is_so

    def stuck(self) -> list[str]:
        """What does not get on, as sentences; empty: the process is alive."""
        now = self.clock()
        return [
            f"{task}: not heard of for {now - said:.0f} s"
            for task, (said, until) in sorted(self._promised.items())
            if now > until
        ]

    def missing(self) -> list[str]:
        """What is missing before work can be done here, as sentences; empty: ready.

        A replica that stands by is ready for what it is there for. Else a Deployment could never replace its leader.
        """
        if self._waits_for_lease:
            return self.stuck()
        found = self.stuck()
        if not self._kube_answers:
            found.append("the cluster's API server does not answer")
        if self.clock() > self._session_until:
            found.append("no Session with the plane is open")
        return found


async def listen(pulse: Pulse, port: int, host: str | None = None) -> asyncio.Server:
    """Answer probes on that port of all interfaces (or of `host`), until the server is closed. Raise PortTaken."""
    at_once = asyncio.Semaphore(CONNECTIONS_MAX)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not at_once.locked():
            async with at_once:
                with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
                    async with asyncio.timeout(REQUEST_SECONDS):
                        await _answer(pulse, reader, writer)
        writer.close()

    try:
        return await asyncio.start_server(serve, host, port, limit=REQUEST_BYTES_MAX)
    except OSError as error:
        raise PortTaken(f"health_port: {port}: {error.strerror or error}") from error


async def _answer(pulse: Pulse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, _, rest = head.partition("\r\n")[0].partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    asked = {"/livez": pulse.stuck, "/readyz": pulse.missing}.get(path)
    if asked is None:
        status, text = "404 Not Found", "there are /livez and /readyz"
    elif method not in {"GET", "HEAD"}:
        status, text = "405 Method Not Allowed", "GET"
    elif found := asked():
        status, text = "503 Service Unavailable", "\n".join(found)
    else:
        status, text = "200 OK", "ok"
    body = f"{text}\n".encode()
    headers = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    allow = "Allow: GET, HEAD\r\n" if status.startswith("405") else ""
    writer.write(f"{headers}{allow}Connection: close\r\n\r\n".encode())
    writer.write(b"" if method == "HEAD" else body)
    await writer.drain()
