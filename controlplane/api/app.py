"""The two web apps: one for people and CI, one on a listener of its own for agents. Routes, errors, the edge."""

from collections.abc import Sequence
from functools import cache

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from controlplane.api.auth import Door
from controlplane.api.edge import Edge
from controlplane.api.openapi import describe
from controlplane.api.problems import TABLE, on_http, on_known, on_parameters
from controlplane.api.refused import RefusalNotes
from controlplane.api.routes import (
    cordons,
    documents,
    events,
    fleet,
    health,
    ledger,
    operations,
    people,
    tenancy,
    workloads,
)
from controlplane.api.routes.agents import AgentDoor, agent_router
from controlplane.api.streams import EventHub
from controlplane.bootstrap import Container
from controlplane.services.errors import Forbidden

VERSION = "v1"
ROUTERS: Sequence[APIRouter] = (
    workloads.router,
    tenancy.router,
    people.router,
    documents.router,
    fleet.router,
    cordons.router,
    operations.router,
    events.router,
    ledger.router,
    health.alive,
    health.router,
)


def create_app(container: Container) -> ASGIApp:
    """The app for people: /api/v1, /healthz, /readyz, /metrics."""
    return _app(container, "Muster", ROUTERS)


def create_agent_app(container: Container) -> ASGIApp:
    """The app for agents, on a listener of its own: /agent/v1, and /healthz for whoever stands before it."""
    door = AgentDoor(container.uow_factory, container.signer(), container.waker, container.settings)
    return _app(container, "Muster agents", (agent_router(door), health.alive))


def _app(container: Container, title: str, routers: Sequence[APIRouter]) -> ASGIApp:
    app = FastAPI(title=title, version=VERSION, docs_url=None, redoc_url=None, openapi_url="/openapi.json")
    app.state.container = container
    app.state.door = Door.of(container)
    app.state.events = EventHub(container)
    for router in routers:
        app.include_router(router)
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    app.state.routes = routes
    app.openapi = cache(lambda: describe(app, routes))  # type: ignore[method-assign]  # as FastAPI tells one to
    for error in TABLE:
        app.add_exception_handler(error, on_known)
    app.add_exception_handler(Forbidden, RefusalNotes())
    app.add_exception_handler(RequestValidationError, on_parameters)
    app.add_exception_handler(HTTPException, on_http)
    return Edge(app, container.settings.body_bytes_max)
