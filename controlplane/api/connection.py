"""One HTTP connection: a head that comes slowly, is too long or is no HTTP is refused here, before the app sees it.

Uvicorn bounds none of these with its quick parser. What it refuses by itself, it would refuse in plain text; here
it is a problem document like every other error.
"""

import asyncio
import uuid
from collections.abc import Mapping
from http import HTTPStatus

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from controlplane.api.problems import problem

HEAD_BYTES_MAX = 65_536
ENDLESS = frozenset({"/api/v1/events"})
_WORDS: Mapping[int, tuple[str, str]] = {
    400: ("malformed-http", "This is no HTTP/1.1 request"),
    408: ("request-timeout", "The request did not arrive in time"),
    431: ("head-too-large", "The head of the request is too large"),
}


def protocol(head_seconds: float) -> type[asyncio.Protocol]:
    """The class that uvicorn makes one of per connection: it waits `head_seconds` for a whole head, not longer."""

    class Connection(_Connection):
        seconds = head_seconds

    return Connection


class _Connection(HttpToolsProtocol):
    seconds = 30.0

    # Uvicorn hands over its own objects by name.
    def __init__(self, config: Config, *args: object, **kwargs: object) -> None:
        super().__init__(config, *args, **kwargs)  # type: ignore[arg-type]  # passed on as they come
        self._late: asyncio.TimerHandle | None = None
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """A stream has no end to wait for: its reader goes on with another process after the last event it has."""
        super().shutdown()
        begun = getattr(self, "cycle", None)  # None until the first request, whatever its annotation says
        if begun is not None and begun.scope["path"] in ENDLESS:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._late is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        # A body that came along is not counted: with a whole head nothing is waited for any more.
        if self._late is not None and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(431)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._late is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words name nothing that ours do not
        self._refuse(400)

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._late = self.loop.call_later(self.seconds, self._refuse, 408)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, status: int) -> None:
        """Answer with a problem and hang up; where an answer is on its way already, only hang up."""
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]  # uvicorn has none at first
            slug, title = _WORDS[status]
            request_id = uuid.uuid4().hex
            answer = problem(request_id, status, slug, title)
            head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {answer.media_type}\r\n"
            head += f"content-length: {len(answer.body)}\r\nx-request-id: {request_id}\r\nconnection: close\r\n\r\n"
            self.transport.write(head.encode() + bytes(answer.body))
        self.transport.close()
