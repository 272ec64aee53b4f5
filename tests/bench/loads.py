"""A load on one HTTP listener of ours: few connections that are kept, answers read whole, latencies kept.

Raw streams, because an HTTP library on the asking side costs more than what is measured. Bounded in time and count.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from urllib.parse import urlsplit

Ask = Callable[[int], bytes]
"""The bytes of request number N, head and body."""


@dataclass(slots=True)
class Told:
    """What came back: seconds from when a request was due to its whole answer; how many answers by status."""

    seconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    took: float = 0.0

    def percentile(self, share: float) -> float:
        """Seconds within which that share of the answers came."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def request(method: str, path: str, token: str, body: bytes = b"", kind: str = "application/json") -> bytes:
    """One HTTP/1.1 request on a connection that is kept."""
    head = f"{method} {path} HTTP/1.1\r\nHost: plane\r\nAuthorization: Bearer {token}\r\n"
    if body:
        head += f"Content-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def as_fast_as_it_goes(url: str, ask: Ask, connections: int, seconds: float, requests_max: int = 100_000) -> Told:
    """Each connection asks again as soon as it was answered."""
    told, numbers = Told(), count()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until and (number := next(numbers)) < requests_max:
            await _exchange(reader, writer, ask(number), began, told)

    asyncio.run(_run(url, connections, one, told))
    return told


def at_a_rate(url: str, ask: Ask, per_second: int, seconds: float, connections: int = 32) -> Told:
    """Requests fall due at a fixed rate, whether or not earlier ones were answered; waiting for a connection counts."""
    told, numbers = Told(), count()
    whole = int(per_second * seconds)
    start = 0.0

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal start
        start = start or time.perf_counter()
        while (number := next(numbers)) < whole:
            due = start + number / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await _exchange(reader, writer, ask(number), due, told)

    asyncio.run(_run(url, connections, one, told))
    return told


async def _run(
    url: str,
    connections: int,
    one: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    told: Told,
) -> None:
    where = urlsplit(url)
    assert where.hostname == "127.0.0.1", "load stays on this machine"
    pairs = [await asyncio.open_connection(where.hostname, where.port) for _ in range(connections)]
    began = time.perf_counter()
    await asyncio.gather(*(one(*pair) for pair in pairs))
    told.took = time.perf_counter() - began
    for _, writer in pairs:
        writer.close()


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytes, due: float, told: Told
) -> None:
    writer.write(asked)
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    at = head.lower().index(b"content-length:") + len(b"content-length:")
    await reader.readexactly(int(head[at : head.index(b"\r\n", at)]))
    told.seconds.append(time.perf_counter() - due)
    told.statuses[status] = told.statuses.get(status, 0) + 1
