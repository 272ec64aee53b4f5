"""What surrounds every request: an id, a limit on its body before anything is read, metrics, the last catch.

Plain ASGI, so that it also counts the bytes of a chunked body as they come.
"""

import re
import time
import uuid
from collections.abc import Callable
from urllib.parse import parse_qsl

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane import telemetry
from controlplane.api.problems import of_error, problem
from controlplane.services.errors import TooLarge

REQUEST_ID = "muster.request_id"
AFTERWARDS = "muster.afterwards"
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_UNKNOWN_ROUTE = "none"
REPEATABLE = frozenset({"label", "if"})
"""Query parameters that are lists."""

log = structlog.get_logger(__name__)


class Edge:
    """Wraps an app."""

    def __init__(self, app: ASGIApp, body_bytes_max: int) -> None:
        self._app = app
        self._body_bytes_max = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection's scope; everything but HTTP passes through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given.decode() if _ID.fullmatch(given) else uuid.uuid4().hex
        scope[REQUEST_ID] = request_id
        scope[AFTERWARDS] = []
        answer = _Answer(send, request_id)
        began = time.perf_counter()
        try:
            await self._answer(scope, headers, receive, answer)
        except Exception:
            log.exception("request failed", request_id=request_id, path=scope["path"])
            await answer.instead(scope, receive, problem(request_id, 500, "internal", "It is the plane's own fault"))
        finally:
            for deed in scope[AFTERWARDS]:
                deed()
            route = getattr(scope.get("route"), "path", _UNKNOWN_ROUTE)
            telemetry.HTTP_REQUESTS.labels(route, str(answer.status)).inc()
            telemetry.HTTP_SECONDS.labels(route).observe(time.perf_counter() - began)

    async def _answer(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, answer: "_Answer") -> None:
        request_id = scope[REQUEST_ID]
        if "\x00" in scope["path"] or b"%00" in scope["query_string"]:
            words = "neither a path nor a parameter holds a NUL"  # which Postgres takes in no string
            response = problem(request_id, 400, "invalid-parameter", "A parameter is wrong", words)
            await answer.instead(scope, receive, response)
            return
        if twice := _given_twice(scope["query_string"].decode("latin-1")):
            words = f"{twice[:80]} is given more than once"
            response = problem(request_id, 400, "duplicate-parameter", "A parameter is given twice", words)
            await answer.instead(scope, receive, response)
            return
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:19]) > self._body_bytes_max:
            await answer.instead(scope, receive, self._too_large(request_id))
            return
        left = self._body_bytes_max

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise TooLarge("the body is too large")
            return message

        try:
            await self._app(scope, counted, answer.send)
        except TooLarge:
            await answer.instead(scope, receive, self._too_large(request_id))

    def _too_large(self, request_id: str) -> Response:
        return of_error(request_id, TooLarge(f"a body is at most {self._body_bytes_max} bytes"))


def afterwards(scope: Scope, deed: Callable[[], None]) -> None:
    """Do this once the request is over, whatever came of it; it must not fail."""
    scope[AFTERWARDS].append(deed)


def _given_twice(query: str) -> str:
    """A parameter that stands there again, though it is none of those that may; "" if there is none."""
    seen: set[str] = set()
    for name, _ in parse_qsl(query, keep_blank_values=True):
        if name in seen and name not in REPEATABLE:
            return name
        seen.add(name)
    return ""


class _Answer:
    """Sends, and remembers what was sent."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", []), (b"x-request-id", self._request_id.encode())]
        await self._send(message)

    async def instead(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Answer with this, unless an answer has begun already."""
        if not self.status:
            await response(scope, receive, self.send)
