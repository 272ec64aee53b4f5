"""/api/v1/events: what happens, as it happens (server-sent events)."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from controlplane.api.auth import Calling, bearer_of, container_of
from controlplane.api.parameters import EventQuery
from controlplane.api.streams import EventHub, EventStream, Listener
from controlplane.core.facts.events import EventFilter
from controlplane.core.facts.tenancy import Principal
from controlplane.services import events
from controlplane.services.errors import Malformed
from controlplane.services.events import EventsAsked

LAST_EVENT_ID = "Last-Event-ID"
POSITION_DIGITS_MAX = 18
LastEventId = Annotated[str | None, Header(alias=LAST_EVENT_ID, description="The id of the last message that came")]
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Messages: `data` is one event as JSON, `id` its place; `event: end` stands at the end",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}

router = APIRouter(prefix="/api/v1", tags=["events"])


@router.get("/events", status_code=200, response_class=EventStream, responses=STREAM)
async def stream_events(
    request: Request, caller: Calling, asked: Annotated[EventQuery, Query()], last_event_id: LastEventId = None
) -> Response:
    """What happens to Workloads, Queues and more, as far as the caller may see it, one message each, in order.

    Begins now, behind `after` (0: at the beginning of the log) or behind `Last-Event-ID`, which counts if both are
    there: whoever sends what came last misses nothing and hears nothing twice. Ends after an hour, or with the token.
    """
    container = container_of(request)
    after = asked.after if last_event_id is None else _position(last_event_id)
    wanted = EventsAsked(asked.workload, asked.queue, asked.kinds(), after)

    def opened(principal: Principal) -> tuple[EventFilter, int]:
        events.settle(container.uow_factory)
        with container.uow_factory() as uow:
            return events.opened(uow, principal, wanted)

    goes, begin = await run_in_threadpool(opened, caller.principal)
    hub: EventHub = request.app.state.events
    return EventStream(hub, Listener(caller.principal.actor, bearer_of(request), goes, begin))


def _position(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > POSITION_DIGITS_MAX:
        raise Malformed(f"{LAST_EVENT_ID} is the id of a message of this stream", slug="invalid-cursor")
    return int(text)
