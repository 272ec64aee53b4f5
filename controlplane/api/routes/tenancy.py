"""/api/v1/queues: the quota tree."""

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import TypeAdapter

from controlplane.api.auth import Calling, container_of
from controlplane.api.bodies import SentBody
from controlplane.api.openapi import takes
from controlplane.api.preconditions import Demanded, Stated, mark
from controlplane.contract.rest.common import Page
from controlplane.contract.rest.tenancy import QueueMove, QueueView
from controlplane.services import applying, queries, stored_documents
from controlplane.services import queues as queue_edits
from controlplane.services.authz import Caller
from controlplane.services.ports.unit_of_work import UnitOfWork, run
from controlplane.services.validation import parsed

router = APIRouter(prefix="/api/v1", tags=["tenancy"])


@router.get("/queues")
def list_queues(request: Request, caller: Calling) -> Page[QueueView]:
    """Every Queue that the caller may see, parents first, with what is in use. Always one page."""
    with container_of(request).uow_factory() as uow:
        return Page(items=queries.queues(uow, caller.principal))


@router.post("/queues/{path:path}/move", openapi_extra=takes(QueueMove))
def move_queue(
    request: Request, path: str, caller: Calling, body: SentBody, expected: Stated, response: Response
) -> QueueView:
    """Give a Queue, and all below it, another place in the tree."""
    target = parsed(TypeAdapter(QueueMove), body.one).path

    def work(uow: UnitOfWork) -> QueueView:
        queue_edits.move(uow, caller, path, target, expected)
        return _shown(uow, caller, target, response)

    return run(container_of(request).uow_factory, work)


@router.get("/queues/{path:path}")
def show_queue(request: Request, path: str, caller: Calling, response: Response) -> QueueView:
    """One Queue with what is in use; its `ETag` is its document's."""
    with container_of(request).uow_factory() as uow:
        return _shown(uow, caller, path, response)


@router.delete("/queues/{path:path}", status_code=204)
def delete_queue(request: Request, path: str, caller: Calling, expected: Demanded) -> None:
    """Take a Queue without live work and without Queues below it out of the tree."""
    run(container_of(request).uow_factory, lambda uow: applying.delete(uow, caller, "Queue", path, expected))


def _shown(uow: UnitOfWork, caller: Caller, path: str, response: Response) -> QueueView:
    view = queries.queue(uow, caller.principal, path)
    mark(response, stored_documents.document(uow, caller.principal, "Queue", path).etag)
    return view
