"""/api/v1/apply and /api/v1/documents: what people write, as they write it; read, compared, changed and taken away."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from controlplane.api.auth import Calling, container_of
from controlplane.api.bodies import Body, SentBody
from controlplane.api.openapi import takes
from controlplane.api.parameters import IDEMPOTENCY_KEY, IdempotencyKey, PageQuery, Word
from controlplane.api.preconditions import Demanded, Stated, mark
from controlplane.api.routes.workloads import label_pairs, replayable
from controlplane.contract.rest.common import Page
from controlplane.contract.rest.documents import (
    DOCUMENT_KINDS,
    JOB_SCHEMA,
    Applied,
    ApplyAnswer,
    DocumentView,
)
from controlplane.services import applying, stored_documents
from controlplane.services.applying import How, Sent, WouldBe
from controlplane.services.documents import document_from
from controlplane.services.errors import Fault, Invalid, Malformed
from controlplane.services.foreseeing import foresee
from controlplane.services.forms import EDITED
from controlplane.services.idempotency import Answer, carry_out, once
from controlplane.services.ports.unit_of_work import UnitOfWork, rehearse, run
from controlplane.services.reading import Value
from controlplane.services.stored_documents import DocumentFilter

Labels = Annotated[list[str], Field(max_length=10)]
APPLIED = takes(*DOCUMENT_KINDS.values(), others={"Job": JOB_SCHEMA}, many=True)
PUT = takes(*(DOCUMENT_KINDS[kind] for kind in EDITED))
router = APIRouter(prefix="/api/v1", tags=["documents"])


class ApplyQuery(BaseModel):
    """How documents are applied. `label` (key=value, may come again) says what `prune` may take.

    `plan`, with `dryRun`: also who would start, wait or have to leave.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dry_run: Annotated[bool, Field(alias="dryRun")] = False
    plan: bool = False
    prune: bool = False
    label: Labels = Field(default_factory=list)


class DocumentQuery(PageQuery):
    """Which documents; `label` is key=value and may come again."""

    kind: Word = None
    label: Labels = Field(default_factory=list)


@router.post("/apply", response_model=ApplyAnswer, openapi_extra=APPLIED)
def apply_documents(
    request: Request,
    caller: Calling,
    body: SentBody,
    asked: Annotated[ApplyQuery, Query()],
    expected: Stated,
    _key: IdempotencyKey = None,
) -> Response:
    """Apply one or more documents (a YAML stream, a JSON object or a JSON list): all of them, or none.

    `dryRun=true` says what would change and changes nothing; its `basis`, sent as `If-Match` with the same documents,
    lets them be applied only while that is still what would change. With `plan=true` it tells as well who would start,
    wait or have to leave by the next planning cycles, were they applied now.
    """
    container = container_of(request)
    sent = [_sent(value, index) for index, value in enumerate(_listed(body))]
    if asked.label and not asked.prune:
        raise Malformed("label says what prune may take; without prune=true it means nothing", slug="invalid-filter")
    if asked.plan and not asked.dry_run:
        raise Malformed(
            "plan says what a dry run would lead to; without dryRun=true it means nothing", slug="invalid-filter"
        )
    would_be = WouldBe()
    how = How(expected, label_pairs(asked.label) if asked.prune else None, asked.dry_run)

    def work(uow: UnitOfWork) -> Answer:
        answer = applying.apply(uow, caller, sent, container.new_id, how, would_be)
        return Answer(200, answer.model_dump(mode="json", by_alias=True))

    if asked.dry_run:
        answer = rehearse(container.uow_factory, work)
        if asked.plan:  # when the rehearsal is over: planning takes its time, and nobody waits for its locks
            found = foresee(container.uow_factory, container.live_worlds, caller.principal, would_be)
            plans = [each.model_dump(mode="json", by_alias=True) for each in found]
            answer = replace(answer, body={**answer.body, "plan": plans})
        return replayable(answer)
    key = once(caller.principal, _key_of(request), b"apply", how.said(), body.raw)
    return replayable(carry_out(container.uow_factory, key, work))


@router.get("/documents")
def list_documents(request: Request, caller: Calling, asked: Annotated[DocumentQuery, Query()]) -> Page[DocumentView]:
    """Stored documents that the caller may see, by kind and name."""
    wanted = DocumentFilter(asked.kind, label_pairs(asked.label))
    with container_of(request).uow_factory() as uow:
        return stored_documents.documents(uow, caller.principal, wanted, asked.paging)


@router.get("/documents/{kind}/{name:path}")
def show_document(request: Request, kind: str, name: str, caller: Calling, response: Response) -> DocumentView:
    """One document as people write it: applied again, it changes nothing."""
    with container_of(request).uow_factory() as uow:
        found = stored_documents.document(uow, caller.principal, kind, name)
    mark(response, found.etag)
    return found


@router.put("/documents/{kind}/{name:path}", openapi_extra=PUT)
def put_document(
    request: Request, kind: str, name: str, caller: Calling, expected: Demanded, body: SentBody, response: Response
) -> Applied:
    """Take one document: instead of the one that was seen (`If-Match`), or where there is none (`If-None-Match: *`)."""
    sent = Sent(*document_from(body.one))
    named = {"kind": sent.document.kind, "metadata/name": sent.document.metadata.name}
    for (field, said), wanted in zip(named.items(), (kind, name), strict=True):
        if said != wanted:
            words = f"the document says {field} {said}, the address {wanted[:600]}"
            raise Invalid(words, slug="invalid-value", faults=(Fault(f"/{field}", words, "invalid-value"),))
    applied = run(container_of(request).uow_factory, lambda uow: applying.put(uow, caller, sent, expected))
    if applied.etag:  # a Policy that says nothing is no document
        mark(response, applied.etag)
    return applied


@router.delete("/documents/{kind}/{name:path}", status_code=204)
def delete_document(request: Request, kind: str, name: str, caller: Calling, expected: Demanded) -> None:
    """Take one document away: a Queue or Pool in which nothing lives, a Policy (back to the defaults)."""
    run(container_of(request).uow_factory, lambda uow: applying.delete(uow, caller, kind, name, expected))


def _key_of(request: Request) -> str | None:
    return request.headers.get(IDEMPOTENCY_KEY)


def _listed(body: Body) -> list[Value]:
    values = body.values[0] if len(body.values) == 1 and isinstance(body.values[0], list) else body.values
    if not values:
        raise Malformed("there is no document in it", slug="empty-body")
    return values


def _sent(value: Value, index: int) -> Sent:
    """Pointers of faults begin with the document's place, as several may be sent."""
    try:
        return Sent(*document_from(value), place=index)
    except Invalid as error:
        faults = tuple(Fault(f"/{index}{each.pointer}", each.detail, each.slug) for each in error.faults)
        raise Invalid(f"{_named(value, index)}: {error.detail}", slug=error.slug, faults=faults) from None


def _named(value: Value, index: int) -> str:
    """How people know the document; where it has no name, its place, counted from 0 as in pointers."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if isinstance(value, dict) and isinstance(value.get("kind"), str) and isinstance(name, str):
        return f"{value['kind']} {name}"[:200]
    return f"document /{index}"
