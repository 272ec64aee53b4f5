"""/api/v1/workloads: submit, list, show, explain, cancel, give another priority."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import TypeAdapter

from controlplane import telemetry
from controlplane.api.auth import Calling, container_of
from controlplane.api.bodies import SentBody
from controlplane.api.openapi import takes
from controlplane.api.parameters import IDEMPOTENCY_KEY, ExplainQuery, IdempotencyKey, WorkloadQuery
from controlplane.api.preconditions import Demanded, Stated, mark
from controlplane.contract.rest.common import Page, is_label
from controlplane.contract.rest.documents import JOB_SCHEMA
from controlplane.contract.rest.explanations import Explanation
from controlplane.contract.rest.workloads import (
    WorkloadDocument,
    WorkloadPatch,
    WorkloadSummary,
    WorkloadView,
)
from controlplane.core.facts.queries import WorkloadFilter
from controlplane.core.lifecycle import WorkloadState
from controlplane.services import cancellation, explaining, priorities, queries, submission
from controlplane.services.documents import document_from
from controlplane.services.errors import Invalid, Malformed
from controlplane.services.idempotency import Answer, carry_out, once
from controlplane.services.ports.unit_of_work import UnitOfWork, run
from controlplane.services.submission import Submission
from controlplane.services.validation import parsed

SUBMITTED = takes(WorkloadDocument, others={"Job": JOB_SCHEMA})
router = APIRouter(prefix="/api/v1/workloads", tags=["workloads"])


@router.post("", status_code=201, response_model=WorkloadView, openapi_extra=SUBMITTED)
def submit_workload(request: Request, caller: Calling, body: SentBody, _key: IdempotencyKey = None) -> Response:
    """Submit a Workload document or a `batch/v1` Job manifest, as JSON or YAML."""
    container = container_of(request)
    document, manifest = document_from(body.one)
    if not isinstance(document, WorkloadDocument):
        raise Invalid(f"a {document.kind} is applied (/api/v1/apply), not submitted", slug="kind-not-allowed")
    sent = Submission(document, manifest)

    def work(uow: UnitOfWork) -> Answer:
        submitted = submission.submit(uow, caller, sent, container.new_id, container.recent)
        warnings = list(submitted.warnings)
        view = submitted.view.model_copy(update={"warnings": warnings})
        return Answer(201, view.model_dump(mode="json", by_alias=True))

    key = once(caller.principal, request.headers.get(IDEMPOTENCY_KEY), b"submit", body.raw)
    answer = carry_out(container.uow_factory, key, work)
    if not answer.is_replayed:
        telemetry.WORKLOADS_SUBMITTED.labels("Workload" if manifest is None else "Job").inc()
    return replayable(answer, {"Location": f"/api/v1/workloads/{answer.body['id']}"})


@router.get("")
def list_workloads(
    request: Request, caller: Calling, asked: Annotated[WorkloadQuery, Query()]
) -> Page[WorkloadSummary]:
    """Workloads that the caller may see, youngest first; `cursor` is the page before's `next`."""
    wanted = WorkloadFilter(
        queue=asked.queue,
        states=_states(asked.state),
        owner=asked.owner,
        name=asked.name,
        cluster=asked.cluster,
        labels=label_pairs(asked.label),
        submitted_after=asked.submitted_after,
        submitted_before=asked.submitted_before,
    )
    with container_of(request).uow_factory() as uow:
        return queries.workloads(uow, caller.principal, wanted, asked.paging)


@router.get("/{reference}")
def show_workload(request: Request, reference: str, caller: Calling, response: Response) -> WorkloadView:
    """One Workload, by id or name, with the history of its Attempts; its `ETag` is its version."""
    with container_of(request).uow_factory() as uow:
        view = queries.workload(uow, caller.principal, reference)
    mark(response, view.version)
    return view


@router.patch("/{reference}", openapi_extra=takes(WorkloadPatch))
def edit_workload(
    request: Request, reference: str, caller: Calling, expected: Demanded, body: SentBody, response: Response
) -> WorkloadView:
    """Give a live Workload another priority; above class `high` it is a lead's to give."""
    wanted = parsed(TypeAdapter(WorkloadPatch), body.one)

    def work(uow: UnitOfWork) -> WorkloadView:
        workload = queries.workload_id(uow, caller.principal, reference)
        priorities.change(uow, caller, workload, wanted.value(), expected)
        return queries.workload(uow, caller.principal, workload)

    view = run(container_of(request).uow_factory, work)
    mark(response, view.version)
    return view


@router.get("/{reference}/explain")
def explain_workload(
    request: Request, reference: str, caller: Calling, asked: Annotated[ExplainQuery, Query()]
) -> Explanation:
    """Why it stands where it stands, in words, from a planner's view of this moment; what would start it, if it waits.

    `if` (may come again) supposes that it asked otherwise: `priority=600`, `flavor=nvidia-a100-80gb`, `replicas=4`,
    `topology=preferred:rack`, `queue=research/nlp`, `clusters.max=2`; `whatIf` says whether it would start then, and
    where, or what would still stand in its way. For one that waits; nothing is changed.
    """
    container = container_of(request)
    with container.uow_factory() as uow:
        workload = queries.workload_id(uow, caller.principal, reference)
    scope = queries.scope_of(caller.principal)
    question = explaining.Asked(caller.principal, asked.texts)
    return explaining.explained(container.uow_factory, container.live_worlds, scope, workload, question)


@router.post("/{reference}/cancel")
def cancel_workload(
    request: Request, reference: str, caller: Calling, expected: Stated, response: Response
) -> WorkloadView:
    """Order its end. A second time changes nothing; a Workload that has ended by itself cannot be cancelled."""
    container = container_of(request)
    with container.uow_factory() as uow:
        workload = queries.workload_id(uow, caller.principal, reference)

    def work(uow: UnitOfWork) -> WorkloadView:
        cancellation.cancel(uow, caller, workload, expected)
        return queries.workload(uow, caller.principal, workload)

    view = run(container.uow_factory, work)
    mark(response, view.version)
    return view


def replayable(answer: Answer, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that may be one of an earlier request."""
    told = dict(headers or {})
    if answer.is_replayed:
        told["Idempotent-Replayed"] = "true"
    return JSONResponse(answer.told, answer.status, told)


def _states(text: str | None) -> tuple[str, ...]:
    states = tuple(word for word in (text or "").split(",") if word)
    if not set(states) <= set(WorkloadState):
        known = ", ".join(WorkloadState)
        raise Malformed(f"a state is one of {known}", slug="invalid-filter")
    return states


def label_pairs(given: list[str]) -> tuple[tuple[str, str], ...]:
    """A label filter; raises Malformed."""
    pairs = [text.partition("=") for text in given]
    if not all(equals and is_label(key, value) for key, equals, value in pairs):
        raise Malformed("a label filter is written key=value, both as in a label: no pattern", slug="invalid-filter")
    return tuple((key, value) for key, _, value in pairs)
