"""A TCP proxy on loopback that can be cut, reset and made deaf, to put between an agent and its plane or its cluster.

It works on bytes and knows no protocol; TLS passes through. It runs in a thread of its own and ends with its context.
"""

import asyncio
import contextlib
import enum
import socket
import struct
import threading
from typing import Self

CHUNK_BYTES = 65_536
START_SECONDS_MAX = 5
NO_LINGER = struct.pack("ii", 1, 0)  # close with RST


class Link(enum.Enum):
    """What the proxy does with bytes."""

    WHOLE = "whole"
    CUT = "cut"  # connections end, new ones are refused
    DEAF = "deaf"  # connections stay, new ones are accepted, nothing passes: a half-open path
    RESET = "reset"  # connections and new ones are reset at once


class TcpProxy:
    """Forwards `port` to a target until told otherwise; the methods may be called from any thread."""

    def __init__(self, target_port: int, target_host: str = "127.0.0.1") -> None:
        self._target = (target_host, target_port)
        # Never listens itself: it keeps the port ours while the link is cut, and a connect to it is refused.
        self._placeholder = _bound_socket(0)
        self.port: int = self._placeholder.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._link = Link.WHOLE
        self._flows = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.connections_made = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(Link.WHOLE)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result(START_SECONDS_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS_MAX)
        self._loop.close()
        self._placeholder.close()

    def cut(self) -> None:
        self._call(Link.CUT)

    def go_deaf(self) -> None:
        self._call(Link.DEAF)

    def reset(self) -> None:
        self._call(Link.RESET)

    def heal(self) -> None:
        """Bytes pass again; a connection that survived deafness gets what was held back."""
        self._call(Link.WHOLE)

    def _call(self, link: Link) -> None:
        asyncio.run_coroutine_threadsafe(self._become(link), self._loop).result(START_SECONDS_MAX)

    async def _finish(self) -> None:
        await self._become(Link.CUT)
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _become(self, link: Link) -> None:
        self._link = link
        if link is Link.WHOLE:
            self._flows.set()
        else:
            self._flows.clear()
        if link in {Link.CUT, Link.RESET}:
            if link is Link.CUT and self._server is not None:
                self._server.close()
                self._server = None
            for writer in tuple(self._open):
                _abort(writer)
            self._flows.set()  # the pumps wake up and see that their sockets are gone
        if link is not Link.CUT and self._server is None:
            listener = _bound_socket(self.port)
            self._server = await asyncio.start_server(self._serve, sock=listener)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._link in {Link.CUT, Link.RESET}:
            _abort(writer)
            return
        self.connections_made += 1
        self._open.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            _abort(writer)
            self._open.discard(writer)
            return
        self._open.add(far_writer)
        try:
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        finally:
            for each in (writer, far_writer):
                self._open.discard(each)
                each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            if writer.can_write_eof() and not writer.is_closing():
                writer.write_eof()


def _bound_socket(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made


def _abort(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    writer.transport.abort()
