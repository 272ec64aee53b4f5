"""/api/v1/cycles, pools, rebalance, doctor, audit, schema: what the plane tells of itself."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from controlplane.api import compressed
from controlplane.api.auth import Calling, container_of
from controlplane.api.parameters import AuditQuery, CycleQuery, Number
from controlplane.contract.rest.common import Json, Page
from controlplane.contract.rest.operations import AuditView, CycleView, DoctorView, PlanView, RebalanceView
from controlplane.contract.rest.planning import CycleRecordView, ReplayView, SnapshotView
from controlplane.contract.rest.schemas import SCHEMA_KINDS, schema_of
from controlplane.core.facts.queries import AuditFilter
from controlplane.services import queries, replay, snapshots
from controlplane.services.authz import Action, require
from controlplane.services.errors import NotFound

router = APIRouter(prefix="/api/v1", tags=["operations"])


@router.get("/cycles")
def list_cycles(request: Request, caller: Calling, asked: Annotated[CycleQuery, Query()]) -> Page[CycleView]:
    """Planning cycles that changed something, youngest first."""
    with container_of(request).uow_factory() as uow:
        return queries.cycles(uow, caller.principal, asked.pool, asked.paging)


@router.get("/cycles/{number}")
def show_cycle(request: Request, number: Number, caller: Calling) -> CycleView:
    """One planning cycle, while it is kept (`MUSTER_CYCLE_RETENTION_HOURS`)."""
    with container_of(request).uow_factory() as uow:
        return queries.cycle(uow, caller.principal, number)


@router.get("/cycles/{number}/plan")
def show_plan(request: Request, number: Number, caller: Calling) -> PlanView:
    """What a cycle decided, in order, and why others wait."""
    with container_of(request).uow_factory() as uow:
        return queries.plan(uow, caller.principal, number)


@router.get("/cycles/{number}/replay")
def replay_cycle(request: Request, number: Number, caller: Calling) -> ReplayView:
    """Run a stored cycle again, and say whether the plan is the same, bit for bit."""
    require(caller.principal, Action.PLANE_READ)
    with container_of(request).uow_factory() as uow:
        chain = replay.chain_to(uow, number)
    return replay.view(replay.rerun(chain))


@router.get("/cycles/{number}/record", response_model=CycleRecordView)
def show_record(request: Request, number: Number, caller: Calling) -> Response:
    """What it takes to run a stored cycle again elsewhere: the planner's world and its changes since."""
    require(caller.principal, Action.PLANE_READ)
    with container_of(request).uow_factory() as uow:
        chain = replay.chain_to(uow, number)
    return compressed.answer(request, replay.record_of(chain))


@router.get("/pools/{pool}/snapshot", response_model=SnapshotView)
def show_snapshot(request: Request, pool: Annotated[str, Path(max_length=63)], caller: Calling) -> Response:
    """A Pool's live world as its planner would have it now, to be planned on elsewhere."""
    container = container_of(request)
    found = snapshots.pool_snapshot(container.uow_factory, container.snapshot_reader, caller.principal, pool)
    return compressed.answer(request, found)


@router.get("/rebalance")
def show_rebalance(
    request: Request,
    caller: Calling,
    pool: Annotated[str, Query(max_length=63)] = "default",
) -> RebalanceView:
    """The latest report-only rebalancing pass of a Pool."""
    with container_of(request).uow_factory() as uow:
        return queries.rebalance(uow, caller.principal, pool)


@router.get("/doctor")
def run_doctor(request: Request, caller: Calling) -> DoctorView:
    """Check every invariant that stored rows can show, now."""
    require(caller.principal, Action.PLANE_READ)
    violations = container_of(request).violations()
    return DoctorView(healthy=not violations, violations=violations)


@router.get("/audit")
def list_audit(request: Request, caller: Calling, asked: Annotated[AuditQuery, Query()]) -> Page[AuditView]:
    """Who did what, youngest first."""
    wanted = AuditFilter(asked.known_kind(), asked.object, asked.actor, asked.since)
    with container_of(request).uow_factory() as uow:
        return queries.audit(uow, caller.principal, wanted, asked.paging)


@router.get("/schema/{kind}")
def show_schema(kind: str, _: Calling) -> dict[str, Json]:
    """JSON Schema of a document's kind."""
    if kind not in SCHEMA_KINDS:
        raise NotFound(f"there is no kind {kind[:63]}; there are {', '.join(SCHEMA_KINDS)}")
    return schema_of(kind)
