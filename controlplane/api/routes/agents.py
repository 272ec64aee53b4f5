"""/agent/v1: enrol, hello, sync, on a listener of its own. Agents call; the plane never does.

A sync that has nothing to be told waits here, asynchronously, until its cluster is woken or its time is over; each
look is a short transaction in a thread. While this listener lives it notes so, because silence of clusters counts
only while they could be heard.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import structlog
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from controlplane import telemetry
from controlplane.api.agent_auth import AgentCall, ClockSkewed, SignedRequest, authenticate
from controlplane.api.bodies import JSON, media_type, read
from controlplane.api.limits import Limit
from controlplane.api.openapi import SIGNED, takes
from controlplane.api.problems import of_error, request_id_of
from controlplane.contract.agent.base import WireModel
from controlplane.contract.agent.enrolment import EnrolEnvelope, EnrolReply, HelloReply, HelloRequest
from controlplane.contract.agent.sync import SyncReply, SyncRequest
from controlplane.core.facts.collisions import Collision, Unavailable
from controlplane.services import enrolment, fleet, sync
from controlplane.services.enrolment import EnrolTools
from controlplane.services.errors import Fault, Invalid, Malformed, ServiceError, TooLarge, Unauthenticated
from controlplane.services.ports.unit_of_work import UnitOfWorkFactory, run
from controlplane.services.ports.waking import Waker
from controlplane.services.signing import Signer
from controlplane.services.sync import SyncTools, Taken
from controlplane.settings import Settings

BEAT_SECONDS = 2.0
ENROL_PER_SECOND, ENROL_BURST = 1.0, 20  # per address
ENROL_BODY_BYTES_MAX = 32_768

Message = TypeVar("Message", bound=WireModel)
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AgentDoor:
    """What the agents' listener works with."""

    uow_factory: UnitOfWorkFactory
    signer: Signer
    waker: Waker
    settings: Settings

    @property
    def audience(self) -> str:
        return self.settings.agent_audience()

    def sync_tools(self) -> SyncTools:
        return SyncTools(self.uow_factory, self.signer, self.settings.lease_seconds, self.settings.poll_seconds)

    def enrol_tools(self) -> EnrolTools:
        return EnrolTools(self.uow_factory, self.signer, self.audience)


def agent_router(door: AgentDoor) -> APIRouter:
    """The routes; included in an app, they bring the listener's heartbeat with them."""
    router = APIRouter(prefix="/agent/v1", lifespan=_beating(door))
    enrolments = Limit(ENROL_PER_SECOND, ENROL_BURST)
    tools = door.sync_tools()

    @router.post("/enrol", response_model=EnrolReply, openapi_extra=takes(EnrolEnvelope, yaml=False))
    async def enrol(request: Request) -> Response:
        enrolments.take(request.client.host if request.client else "")
        raw = await _body(door, request)
        if len(raw) > ENROL_BODY_BYTES_MAX:
            raise TooLarge("an enrolment is small")
        envelope = _parsed(EnrolEnvelope, raw)
        return _answer(await run_in_threadpool(enrolment.enrol, door.enrol_tools(), envelope.jws))

    @router.post("/hello", response_model=HelloReply, openapi_extra=takes(HelloRequest, yaml=False) | SIGNED)
    async def hello(request: Request) -> Response:
        raw = await _body(door, request)
        try:
            call = await run_in_threadpool(_authenticate, door, request, raw)
        except ClockSkewed as error:
            return _skewed(request, error)
        message = _parsed(HelloRequest, raw)
        return _answer(await run_in_threadpool(sync.hello, tools, call.key, message, call.signed_at))

    @router.post("/sync", response_model=SyncReply, openapi_extra=takes(SyncRequest, yaml=False) | SIGNED)
    async def exchange(request: Request) -> Response:
        raw = await _body(door, request)
        try:
            call = await run_in_threadpool(_authenticate, door, request, raw)
        except ClockSkewed as error:
            return _skewed(request, error)
        message = _parsed(SyncRequest, raw)
        if (message.session_epoch, message.seq) != (call.epoch, call.seq):
            raise Unauthenticated("the signature is over another place in the session", slug="invalid-token")
        reply = await _exchange(door, tools, call, message)
        telemetry.AGENT_SYNCS.labels("directives" if reply.directives_jws else "quiet").inc()
        return _answer(reply)

    return router


async def _exchange(door: AgentDoor, tools: SyncTools, call: AgentCall, message: SyncRequest) -> SyncReply:
    """Take the request, and answer as soon as there is something to say."""
    began = time.monotonic()
    taken = await run_in_threadpool(sync.take, tools, call.key, message)
    until = began + min(message.wait_seconds, taken.poll_seconds)
    reply = None
    with telemetry.AGENT_WAITS.track_inprogress():
        while reply is None:
            left = until - time.monotonic()
            if left > 0:
                reply = await _look_and_wait(door, tools, taken, left)
            else:
                reply = await run_in_threadpool(lambda: sync.answer(tools, taken, is_last=True))
    return reply


async def _look_and_wait(door: AgentDoor, tools: SyncTools, taken: Taken, seconds: float) -> SyncReply | None:
    """Look; if there is nothing, wait until there may be. Whoever waits listens from before the look."""
    waiting = asyncio.create_task(door.waker.wait(taken.cluster, seconds))
    try:
        await asyncio.sleep(0)  # the task runs up to where it listens
        reply = await run_in_threadpool(lambda: sync.answer(tools, taken, is_last=False))
        if reply is None:
            await waiting
        return reply
    finally:
        waiting.cancel()


def _authenticate(door: AgentDoor, request: Request, raw: bytes) -> AgentCall:
    signed = SignedRequest(request.headers.get("authorization", ""), request.method, _path(door, request), raw)
    return authenticate(door.uow_factory, door.audience, signed)


def _path(door: AgentDoor, request: Request) -> str:
    """The path as the agent wrote it: an audience behind a prefix has it in front."""
    prefix = door.audience.partition("://")[2].partition("/")[2].strip("/")
    return f"/{prefix}{request.url.path}" if prefix else request.url.path


async def _body(door: AgentDoor, request: Request) -> bytes:
    if media_type(request) not in JSON:
        raise Malformed("send application/json", slug="unsupported-media-type")
    return await read(request, door.settings.body_seconds)


def _parsed(model: type[Message], raw: bytes) -> Message:
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = "/".join(str(part) for part in first["loc"])
        if first["type"] == "json_invalid":
            raise Malformed("the body is no JSON", slug="malformed-json") from None
        if first["type"] == "too_long":
            raise TooLarge(f"/{where} is too long", slug="report-too-large") from None
        words = f"{where.rpartition('/')[2]}: {first['msg']}"
        raise Invalid(words, faults=(Fault(f"/{where}", words, Invalid.slug),)) from None


def _answer(message: WireModel) -> Response:
    return Response(message.model_dump_json(), media_type="application/json")


def _skewed(request: Request, error: ClockSkewed) -> Response:
    """The usual problem document, with our clock in it."""
    usual = of_error(request_id_of(request), error)
    body = {
        "type": f"/problems/{error.slug}",
        "title": "Nobody knows who you are",
        "status": usual.status_code,
        "detail": error.detail,
        "server_time": error.server_time.isoformat(),
    }
    return JSONResponse(body, usual.status_code, media_type=usual.media_type)


def _beating(door: AgentDoor) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        door.waker.start()
        beat = asyncio.create_task(_beat(door))
        try:
            yield
        finally:
            beat.cancel()
            with suppress(asyncio.CancelledError):
                await beat
            await run_in_threadpool(door.waker.stop)

    return lifespan


async def _beat(door: AgentDoor) -> None:
    """Note that agents can reach us, for as long as they can."""
    while True:
        try:
            await run_in_threadpool(run, door.uow_factory, fleet.note_listening)
        except (Unavailable, Collision, ServiceError) as error:
            log.warning("listener could not note that it listens", why=str(error))
        await asyncio.sleep(BEAT_SECONDS)
