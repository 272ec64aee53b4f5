"""/healthz, /readyz, /metrics: for probes and Prometheus, without a token.

Agents' listener has only the two that speak for this process and not for the plane.
"""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from controlplane.api.auth import container_of
from controlplane.contract.rest.operations import Readiness
from controlplane.services import health

UNREADY: dict[int | str, dict[str, object]] = {503: {"model": Readiness, "description": "What is not well, by part"}}
alive = APIRouter(tags=["health"])
router = APIRouter(tags=["health"])


@alive.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:  # in the loop itself: threads may all wait for a silent database
    """This process answers; nothing else is asked."""
    return "ok"


@alive.get("/readyz/process", response_model=Readiness, responses=UNREADY)
def readyz_process(request: Request) -> Response:
    """This process can serve: the database answers and has the schema. Else 503. What a load balancer asks."""
    found = health.can_serve(container_of(request).probes())
    return JSONResponse(found.model_dump(mode="json", by_alias=True), 200 if found.ready else 503)


@router.get("/readyz", response_model=Readiness, responses=UNREADY)
def readyz(request: Request) -> Response:
    """The whole path works: database, schema, Redis, a worker and a planner that make progress. Else 503."""
    container = container_of(request)
    found = health.readiness(container.uow_factory, container.probes(), container.heartbeat_seconds_max())
    return JSONResponse(found.model_dump(mode="json", by_alias=True), 200 if found.ready else 503)


@router.get("/metrics", response_class=PlainTextResponse)
def metrics() -> Response:
    """This process's metrics."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
