"""Who calls: bearer tokens of people and services. Agents sign their requests instead (`agent_auth`)."""

from typing import Annotated

from fastapi import Depends, Request

from controlplane.api.problems import request_id_of
from controlplane.bootstrap import Container
from controlplane.services import authz, tokens
from controlplane.services.authz import Caller
from controlplane.services.errors import Unauthenticated


def container_of(request: Request) -> Container:
    """What this process works with."""
    container = request.app.state.container
    assert isinstance(container, Container)
    return container


def caller_of(request: Request) -> Caller:
    """A dependency: the caller, who may come this far; raises Unauthenticated, Forbidden."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if not scheme:
        raise Unauthenticated("send a token: Authorization: Bearer …")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("the scheme is Bearer")
    with container_of(request).uow_factory() as uow:
        principal = tokens.principal_of(uow, token.strip())
    authz.admit(principal, request.method, request.scope["route"].path)
    return Caller(principal, request_id_of(request))


Calling = Annotated[Caller, Depends(caller_of)]
"""The type of a route's argument that is the caller."""
