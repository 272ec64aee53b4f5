"""The stream of events to many at once: one look at the log for all of a process, fanned out in memory.

Who waits holds no thread and no connection. A stream that is behind reads what it missed by itself, in pieces; one that
keeps up is served from the newest rows, which all share.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from controlplane import telemetry
from controlplane.bootstrap import Container
from controlplane.core.facts.collisions import Collision, Unavailable
from controlplane.core.facts.events import EventFact, EventFilter
from controlplane.services import events, tokens
from controlplane.services.errors import TooMany, Unauthenticated

LOOK_SECONDS = 0.25  # the longest until a commit without a NOTIFY is seen
REST_SECONDS = 0.05  # between two looks, however many words arrive
PAUSE_SECONDS = 1.0  # after a look that failed
BEAT_SECONDS = 15.0  # a comment, so that nobody on the way takes the silence for death
RECHECK_SECONDS = 5.0  # the longest that a token goes on hearing once it is over; a revoked one is news itself
RIGHTS = frozenset({"token", "principal", "queue"})  # events of these kinds may change who may see what
LIFE_SECONDS = 3_600.0
SEND_SECONDS = 30.0  # who does not take what is sent for so long is gone
KEPT_ROWS = 5_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Listener:
    """One stream: whose, with which token, of what, and after which place it begins."""

    owner: str
    token: str
    wanted: EventFilter
    after: int


class EventHub:
    """The newest events of a process, looked for while anybody listens."""

    def __init__(self, container: Container) -> None:
        """Nothing runs before the first stream opens."""
        settings = container.settings
        self._container = container
        self._streams_max = settings.streams_max
        self._each_max = settings.streams_per_principal
        self._owners: Counter[str] = Counter()
        self._kept: list[EventFact] = []
        self._news = asyncio.Event()
        self._rights_at = 0.0  # when tokens, roles or Queues were last seen to change
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def place_for(self, owner: str) -> Iterator[None]:
        """One of the places for streams, until the block ends; raises TooMany."""
        if self._owners[owner] >= self._each_max:
            raise TooMany(f"{owner} has {self._each_max} streams open in this process, which is the most; close one")
        if self._owners.total() >= self._streams_max:
            raise TooMany(f"{self._streams_max} streams are open in this process, which is the most; come again later")
        self._owners[owner] += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            with telemetry.EVENT_STREAMS.track_inprogress():
                yield
        finally:
            self._owners[owner] -= 1
            if not self._owners[owner]:
                del self._owners[owner]
            if not self._owners and self._looking is not None:
                self._looking.cancel()
                self._looking = None
                self._kept = []

    async def follow(self, listener: Listener) -> AsyncGenerator[str, None]:
        """The text of the stream, message by message, until its end."""
        wanted, at = listener.wanted, listener.after
        began = checked = spoken = time.monotonic()
        yield f"retry: 1000\nid: {at}\n\n"
        while time.monotonic() - began < LIFE_SECONDS:
            if checked <= self._rights_at or time.monotonic() - checked >= RECHECK_SECONDS:
                checked = time.monotonic()
                try:
                    wanted = await run_in_threadpool(self._still, listener.token, wanted)
                except Unauthenticated as error:
                    yield f"event: end\ndata: {error.detail}\n\n"
                    return
            news = self._news  # taken before the look, so that what comes after it is not missed
            found, reached = await self._after(wanted, at)
            if found:
                yield "".join(_message(event) for event in found)
                spoken = time.monotonic()
            elif time.monotonic() - spoken >= BEAT_SECONDS:
                yield f"id: {reached}\n: nothing new\n\n"
                spoken = time.monotonic()
            if reached > at:
                at = reached
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), min(RECHECK_SECONDS, BEAT_SECONDS))
        yield "event: end\ndata: the stream has had its time; go on after the last event\n\n"

    async def _after(self, wanted: EventFilter, at: int) -> tuple[list[EventFact], int]:
        """What follows `at` for this filter, and up to where that was looked through; nothing in an outage."""
        kept = self._kept
        if not kept or kept[-1].position <= at:
            return [], at
        first = kept[0].position
        if at + 1 < first:
            try:
                return await run_in_threadpool(events.caught_up, self._container.uow_factory, wanted, at)
            except (Collision, Unavailable):
                await asyncio.sleep(PAUSE_SECONDS)
                return [], at
        fresh = kept[at + 1 - first : at + 1 - first + events.READ_ROWS_MAX]  # places have no gaps
        return [event for event in fresh if wanted.takes(event)], fresh[-1].position

    def _still(self, token: str, wanted: EventFilter) -> EventFilter:
        """What the bearer may see now; raises Unauthenticated once the token has ended. Keeps on in an outage."""
        try:
            with self._container.uow_factory() as uow:
                return events.seen_by(tokens.principal_of(uow, token), wanted)
        except (Collision, Unavailable):
            return wanted

    async def _look(self) -> None:
        """Until nobody listens: give places to what has happened, keep it, tell everybody."""
        head: int | None = None
        while True:
            try:
                if head is None:
                    head = await run_in_threadpool(self._head)
                found = await run_in_threadpool(events.advance, self._container.uow_factory, head)
            except Exception:
                log.exception("the log of events cannot be read now")
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if found:
                head = found[-1].position
                self._keep(found)
            if len(found) < events.READ_ROWS_MAX:
                await asyncio.sleep(REST_SECONDS)
                await self._container.waker.wait(seconds=LOOK_SECONDS)

    def _head(self) -> int:
        """One place back, so that the newest row tells streams that begin behind it that they are behind."""
        with self._container.uow_factory() as uow:
            return max(0, uow.audit.head() - 1)

    def _keep(self, found: Sequence[EventFact]) -> None:
        self._kept = [*self._kept, *found][-KEPT_ROWS:]
        if any(event.kind in RIGHTS for event in found):
            self._rights_at = time.monotonic()
        news, self._news = self._news, asyncio.Event()
        news.set()


class EventStream(Response):
    """Sends a stream until it ends, its reader goes, or takes nothing for too long."""

    media_type = "text/event-stream"

    def __init__(self, hub: EventHub, listener: Listener) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._hub = hub
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises TooMany before anything is sent."""
        del scope
        with self._hub.place_for(self._listener.owner):
            tasks = [asyncio.create_task(self._send(send)), asyncio.create_task(_gone(receive))]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception) and not isinstance(error, TimeoutError):
                raise error

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._hub.follow(self._listener)) as texts:
            async for text in texts:
                message = {"type": "http.response.body", "body": text.encode(), "more_body": True}
                await asyncio.wait_for(send(message), SEND_SECONDS)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _message(event: EventFact) -> str:
    return f"id: {event.position}\ndata: {events.view(event).model_dump_json(by_alias=True)}\n\n"
