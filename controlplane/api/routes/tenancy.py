"""/api/v1/queues, /api/v1/apply, /api/v1/tokens, /api/v1/whoami: the quota tree, documents, and who may do what."""

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import TypeAdapter

from controlplane.api.auth import Calling, container_of
from controlplane.api.bodies import Body, SentBody
from controlplane.api.openapi import takes
from controlplane.api.parameters import IDEMPOTENCY_KEY, IdempotencyKey
from controlplane.api.routes.workloads import replayable
from controlplane.contract.rest.common import Page
from controlplane.contract.rest.documents import DOCUMENT_KINDS, JOB_SCHEMA, ApplyAnswer
from controlplane.contract.rest.people import TokenCreate, TokenView, WhoAmI
from controlplane.contract.rest.tenancy import QueueMove, QueueView
from controlplane.services import queries, tenancy, tokens
from controlplane.services.documents import document_from
from controlplane.services.errors import Fault, Invalid, Malformed
from controlplane.services.idempotency import Answer, carry_out, once
from controlplane.services.ports.unit_of_work import UnitOfWork, run
from controlplane.services.reading import Value
from controlplane.services.tenancy import Sent
from controlplane.services.validation import parsed

APPLIED = takes(*DOCUMENT_KINDS.values(), others={"Job": JOB_SCHEMA}, many=True)
router = APIRouter(prefix="/api/v1", tags=["tenancy"])


@router.get("/whoami")
def who_am_i(caller: Calling) -> WhoAmI:
    """Who the caller is to the plane."""
    principal = caller.principal
    roles = [
        each.role if each.queue_path is None else f"{each.role} of {each.queue_path}" for each in principal.bindings
    ]
    return WhoAmI(principal=principal.name, kind=principal.kind, roles=roles)


@router.get("/queues")
def list_queues(request: Request, caller: Calling) -> Page[QueueView]:
    """Every Queue that the caller may see, parents first, with what is in use. Always one page."""
    with container_of(request).uow_factory() as uow:
        return Page(items=queries.queues(uow, caller.principal))


@router.post("/queues/{path:path}/move", openapi_extra=takes(QueueMove))
def move_queue(request: Request, path: str, caller: Calling, body: SentBody) -> QueueView:
    """Give a Queue, and all below it, another place in the tree."""
    target = parsed(TypeAdapter(QueueMove), body.one).path

    def work(uow: UnitOfWork) -> QueueView:
        tenancy.move_queue(uow, caller, path, target)
        return queries.queue(uow, caller.principal, target)

    return run(container_of(request).uow_factory, work)


@router.get("/queues/{path:path}")
def show_queue(request: Request, path: str, caller: Calling) -> QueueView:
    """One Queue with what is in use."""
    with container_of(request).uow_factory() as uow:
        return queries.queue(uow, caller.principal, path)


@router.delete("/queues/{path:path}", status_code=204)
def delete_queue(request: Request, path: str, caller: Calling) -> None:
    """Take a Queue without live work and without Queues below it out of the tree."""
    run(container_of(request).uow_factory, lambda uow: tenancy.delete_queue(uow, caller, path))


@router.post("/apply", response_model=ApplyAnswer, openapi_extra=APPLIED)
def apply_documents(request: Request, caller: Calling, body: SentBody, _key: IdempotencyKey = None) -> Response:
    """Apply one or more documents (a YAML stream, a JSON object or a JSON list): all of them, or none."""
    container = container_of(request)
    sent = [_sent(value, index) for index, value in enumerate(_listed(body))]

    def work(uow: UnitOfWork) -> Answer:
        applied = tenancy.apply(uow, caller, sent, container.new_id)
        return Answer(200, ApplyAnswer(applied=applied).model_dump(mode="json", by_alias=True))

    key = once(caller.principal, request.headers.get(IDEMPOTENCY_KEY), b"apply", body.raw)
    return replayable(carry_out(container.uow_factory, key, work))


@router.post("/tokens", status_code=201, openapi_extra=takes(TokenCreate))
def create_token(request: Request, caller: Calling, body: SentBody) -> TokenView:
    """A bearer token for a person or service, who gets the role; its text is shown this once."""
    wanted = parsed(TypeAdapter(TokenCreate), body.one)
    return run(container_of(request).uow_factory, lambda uow: tokens.create(uow, caller, wanted))


@router.delete("/tokens/{number}", status_code=204)
def revoke_token(request: Request, number: int, caller: Calling) -> None:
    """End a token at once."""
    run(container_of(request).uow_factory, lambda uow: tokens.revoke(uow, caller, number))


def _listed(body: Body) -> list[Value]:
    values = body.values[0] if len(body.values) == 1 and isinstance(body.values[0], list) else body.values
    if not values:
        raise Malformed("there is no document in it", slug="empty-body")
    return values


def _sent(value: Value, index: int) -> Sent:
    """Pointers of faults begin with the document's place, as several may be sent."""
    try:
        return Sent(*document_from(value))
    except Invalid as error:
        faults = tuple(Fault(f"/{index}{each.pointer}", each.detail, each.slug) for each in error.faults)
        raise Invalid(f"document {index + 1}: {error.detail}", slug=error.slug, faults=faults) from None
