"""/api/v1/whoami, /api/v1/tokens, /api/v1/bindings: who calls, with what, and who may do what where."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import TypeAdapter

from controlplane.api.auth import Calling, container_of
from controlplane.api.bodies import SentBody
from controlplane.api.openapi import takes
from controlplane.api.parameters import IDEMPOTENCY_KEY, BindingQuery, IdempotencyKey, Number, TokenQuery
from controlplane.api.routes.workloads import replayable
from controlplane.contract.rest.common import Page
from controlplane.contract.rest.people import (
    BindingCreate,
    BindingView,
    TokenCreate,
    TokenSummary,
    TokenView,
    WhoAmI,
)
from controlplane.core.facts.people import PeopleFilter
from controlplane.services import people, queries, tokens
from controlplane.services.idempotency import Answer, carry_out, once
from controlplane.services.ports.unit_of_work import UnitOfWork, run
from controlplane.services.validation import parsed

router = APIRouter(prefix="/api/v1", tags=["people"])


@router.get("/whoami")
def who_am_i(caller: Calling) -> WhoAmI:
    """Who the caller is to the plane, and what its token may."""
    principal = caller.principal
    roles = [
        each.role if each.queue_path is None else f"{each.role} of {each.queue_path}" for each in principal.bindings
    ]
    token = principal.token
    return WhoAmI(
        principal=principal.name,
        kind=principal.kind,
        roles=roles,
        scopes=sorted(principal.scopes),
        token=None if token is None else token.id,
        expires_at=None if token is None else token.expires_at,
    )


@router.post("/tokens", status_code=201, response_model=TokenView, openapi_extra=takes(TokenCreate))
def create_token(request: Request, caller: Calling, body: SentBody, _key: IdempotencyKey = None) -> Response:
    """A bearer token for a person or service, who gets the role; its text is shown this once, and stored nowhere.

    A repeated request (the same `Idempotency-Key`) is answered without the text.
    """
    wanted = parsed(TypeAdapter(TokenCreate), body.one)

    def work(uow: UnitOfWork) -> Answer:
        made = tokens.create(uow, caller, wanted)
        told = made.model_copy(update={"token": ""}).model_dump(mode="json", by_alias=True)
        return Answer(201, told, shown_once={"token": made.token})

    key = once(caller.principal, request.headers.get(IDEMPOTENCY_KEY), b"token", body.raw)
    return replayable(carry_out(container_of(request).uow_factory, key, work))


@router.get("/tokens")
def list_tokens(request: Request, caller: Calling, asked: Annotated[TokenQuery, Query()]) -> Page[TokenSummary]:
    """One's own tokens; a lead sees those of the own subtree, administrators and auditors all. Never their text."""
    wanted = PeopleFilter(principal=asked.principal, kind=asked.kind, ended=asked.ended)
    with container_of(request).uow_factory() as uow:
        return queries.tokens(uow, caller.principal, wanted, asked.paging)


@router.delete("/tokens/{number}", status_code=204)
def revoke_token(request: Request, number: Number, caller: Calling) -> None:
    """End a token at once."""
    run(container_of(request).uow_factory, lambda uow: tokens.revoke(uow, caller, number))


@router.post(
    "/bindings",
    status_code=201,
    response_model=BindingView,
    responses={200: {"model": BindingView, "description": "It had the role already"}},
    openapi_extra=takes(BindingCreate),
)
def create_binding(request: Request, caller: Calling, body: SentBody) -> Response:
    """Give a person or service a role in a Queue's subtree, or everywhere; 200 where it had it already."""
    wanted = parsed(TypeAdapter(BindingCreate), body.one)
    view, is_new = run(container_of(request).uow_factory, lambda uow: people.bind(uow, caller, wanted))
    return JSONResponse(view.model_dump(mode="json", by_alias=True), 201 if is_new else 200)


@router.get("/bindings")
def list_bindings(request: Request, caller: Calling, asked: Annotated[BindingQuery, Query()]) -> Page[BindingView]:
    """Who has which role where: one's own; a lead sees those in the own subtree, administrators and auditors all."""
    wanted = PeopleFilter(principal=asked.principal, kind=asked.kind, queue=asked.queue, role=asked.role)
    with container_of(request).uow_factory() as uow:
        return queries.bindings(uow, caller.principal, wanted, asked.paging)


@router.delete("/bindings/{number}", status_code=204)
def delete_binding(request: Request, number: Number, caller: Calling) -> None:
    """Take a role away; it counts from the next request on. The last administrator stays."""
    run(container_of(request).uow_factory, lambda uow: people.unbind(uow, caller, number))
