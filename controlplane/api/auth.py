"""Who calls: bearer tokens of people and services. Agents sign their requests instead (`agent_auth`)."""

import secrets
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from controlplane.api.callers import RecentCallers
from controlplane.api.edge import afterwards
from controlplane.api.limits import CallerLimits
from controlplane.api.problems import request_id_of
from controlplane.bootstrap import Container
from controlplane.core.facts.collisions import Collision, Unavailable
from controlplane.core.facts.tenancy import Principal
from controlplane.services import authz, tokens
from controlplane.services.authz import Caller
from controlplane.services.errors import Unauthenticated

PAGE_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Door:
    """What a process keeps for those who call: how often each may, and what signs the cursors of their lists."""

    limits: CallerLimits
    page_key: bytes
    callers: RecentCallers = field(default_factory=RecentCallers)

    @classmethod
    def of(cls, container: Container) -> Self:
        """Every process of a plane signs with the same key; one without the plane's secrets, with one of its own."""
        settings = container.settings
        limits = CallerLimits(settings.requests_per_second, settings.requests_burst)
        if settings.secrets_dir is None:
            return cls(limits, secrets.token_bytes(PAGE_KEY_BYTES))
        return cls(limits, container.signer().derived("cursors"))


def container_of(request: Request) -> Container:
    """What this process works with."""
    container = request.app.state.container
    assert isinstance(container, Container)
    return container


async def caller_of(request: Request) -> Caller:
    """A dependency: the caller, who may come this far; raises Unauthenticated, TooMany, Forbidden."""
    token = bearer_of(request)
    door: Door = request.app.state.door
    door.limits.before(token)  # whoever asks too often costs no look at the database
    if _may_change_rights(request):
        door.callers.changing()
        afterwards(request.scope, door.callers.changed)
    principal = door.callers.get(token)
    if principal is None:
        ticket = door.callers.ticket()
        principal = await run_in_threadpool(_look_up, container_of(request), token)
        door.callers.keep(token, principal, ticket)
    door.limits.known(token, principal.actor)
    caller = Caller(replace(principal, page_key=door.page_key), request_id_of(request))
    request.state.caller = caller
    authz.admit(principal, request.method, request.scope["route"].path)
    return caller


def _look_up(container: Container, token: str) -> Principal:
    with container.glance_factory() as uow:
        principal = tokens.principal_of(uow, token)
        is_first_today = principal.token is not None and principal.token.last_used_on != uow.now.date()
    if is_first_today:
        _note_use(container, principal)
    return principal


def _may_change_rights(request: Request) -> bool:
    """Whether this request may end tokens or roles: every edit but those of Workloads."""
    return request.method not in {"GET", "HEAD"} and not request.scope["path"].startswith("/api/v1/workloads")


def bearer_of(request: Request) -> str:
    """The token that the request bears; raises Unauthenticated."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if not scheme:
        raise Unauthenticated("send a token: Authorization: Bearer …")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("the scheme is Bearer")
    return token.strip()


def _note_use(container: Container, principal: Principal) -> None:
    """Once per token and day. Where it cannot be written, the next request of the day tries again."""
    assert principal.token is not None
    with suppress(Collision, Unavailable), container.uow_factory() as uow:
        uow.people.touch_token(principal.token.id, uow.now.date())


Calling = Annotated[Caller, Depends(caller_of)]
"""The type of a route's argument that is the caller."""
