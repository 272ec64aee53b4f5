"""A TCP balancer on loopback: one address before several servers, as a Service or a load balancer is.

Each connection goes to the next server that takes it; a server that is away costs nothing but the try. It knows no
protocol, repeats nothing, and runs in a thread of its own until its context ends.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterable
from typing import Any, Self, TypeVar

CHUNK_BYTES = 65_536
SECONDS_MAX = 5
T = TypeVar("T")


class Balancer:
    """Forwards `port` to `targets`; they may be changed from any thread, for connections to come."""

    def __init__(self, targets: Iterable[int] = ()) -> None:
        self.port = 0
        self.taken: dict[int, int] = {}  # connections by target
        self._targets = list(targets)
        self._turn = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="balancer", daemon=True)
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS_MAX)
        self._loop.close()

    def to(self, targets: Iterable[int]) -> None:
        """From now on new connections go to these ports."""
        chosen = list(targets)
        self._loop.call_soon_threadsafe(lambda: setattr(self, "_targets", chosen))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS_MAX)

    async def _finish(self) -> None:
        assert self._server is not None
        self._server.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far = await self._connected()
            if far is None:
                return
            far_reader, far_writer = far
            try:
                await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
            finally:
                far_writer.close()
        finally:
            writer.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in range(len(self._targets)):
            self._turn += 1
            port = self._targets[self._turn % len(self._targets)]
            with contextlib.suppress(OSError):
                found = await asyncio.open_connection("127.0.0.1", port)
                self.taken[port] = self.taken.get(port, 0) + 1
                return found
        return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until either side ends; its end is the other one's, too."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()
