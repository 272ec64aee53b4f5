"""/api/v1/clusters, /api/v1/nodes, /api/v1/devices: what there is, and who may speak for it."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import TypeAdapter

from controlplane.api.auth import Calling, container_of
from controlplane.api.bodies import SentBody
from controlplane.api.openapi import takes
from controlplane.api.parameters import IDEMPOTENCY_KEY, DeviceQuery, FleetQuery, IdempotencyKey
from controlplane.api.preconditions import Stated, mark
from controlplane.api.routes.workloads import replayable
from controlplane.contract.rest.common import Page
from controlplane.contract.rest.fleet import (
    ClusterCreate,
    ClusterView,
    Cordon,
    DeviceView,
    EnrolmentTokenCreate,
    EnrolmentTokenView,
    NodeView,
)
from controlplane.core.facts.queries import FleetFilter
from controlplane.core.ids import ClusterId, NodeId
from controlplane.services import cluster_documents, cordons, enrolment, fleet_queries, queries
from controlplane.services.attempt_batch import By
from controlplane.services.authz import Action, Caller, require
from controlplane.services.errors import NotFound
from controlplane.services.idempotency import Answer, carry_out, once
from controlplane.services.ports.unit_of_work import UnitOfWork, run
from controlplane.services.preconditions import UNCONDITIONAL, Expected
from controlplane.services.validation import parsed

router = APIRouter(prefix="/api/v1", tags=["fleet"])


@router.post("/clusters", status_code=201, response_model=EnrolmentTokenView, openapi_extra=takes(ClusterCreate))
def create_cluster(request: Request, caller: Calling, body: SentBody, _key: IdempotencyKey = None) -> Response:
    """Make a Cluster, and the one-time token with which its agent enrols; the token is shown this once.

    A repeated request (the same `Idempotency-Key`) is answered without the token.
    """
    wanted = parsed(TypeAdapter(ClusterCreate), body.one)
    asked = EnrolmentTokenCreate(token_valid=wanted.token_valid, auto_accept=wanted.auto_accept)

    def work(uow: UnitOfWork) -> Answer:
        cluster = cluster_documents.create_cluster(uow, caller, wanted)
        return _token(uow, caller, request, cluster, wanted.name, asked)

    key = once(caller.principal, request.headers.get(IDEMPOTENCY_KEY), b"cluster", body.raw)
    return replayable(carry_out(container_of(request).uow_factory, key, work))


@router.get("/clusters")
def list_clusters(request: Request, caller: Calling) -> Page[ClusterView]:
    """Every Cluster, by name. Always one page."""
    with container_of(request).uow_factory() as uow:
        return Page(items=queries.clusters(uow, caller.principal))


@router.get("/clusters/{name}")
def show_cluster(request: Request, name: str, caller: Calling, response: Response) -> ClusterView:
    """One Cluster: its state, what it owns and what is free."""
    with container_of(request).uow_factory() as uow:
        view, tag = fleet_queries.cluster(uow, caller.principal, name)
    mark(response, tag)
    return view


@router.post(
    "/clusters/{name}/enrolment-tokens",
    status_code=201,
    response_model=EnrolmentTokenView,
    openapi_extra=takes(EnrolmentTokenCreate),
)
def issue_token(request: Request, name: str, caller: Calling, body: SentBody, _key: IdempotencyKey = None) -> Response:
    """Another one-time token for a Cluster that is there; a repeated request is answered without it."""
    asked = parsed(TypeAdapter(EnrolmentTokenCreate), body.one)

    def work(uow: UnitOfWork) -> Answer:
        return _token(uow, caller, request, _cluster(uow, caller, name), name, asked)

    key = once(caller.principal, request.headers.get(IDEMPOTENCY_KEY), b"enrolment", name.encode(), body.raw)
    return replayable(carry_out(container_of(request).uow_factory, key, work))


@router.post("/clusters/{name}/accept")
def accept_cluster(request: Request, name: str, caller: Calling, expected: Stated, response: Response) -> ClusterView:
    """An admin's word that an enrolled Cluster may take work. Twice is once."""

    def work(uow: UnitOfWork) -> tuple[ClusterView, str]:
        enrolment.accept(uow, _cluster(uow, caller, name, expected), caller.principal.actor, caller.request_id)
        return fleet_queries.cluster(uow, caller.principal, name)

    view, tag = run(container_of(request).uow_factory, work)
    mark(response, tag)
    return view


@router.post("/clusters/{name}/revoke")
def revoke_cluster(request: Request, name: str, caller: Calling, expected: Stated, response: Response) -> ClusterView:
    """Ban the keys, Session and open tokens of a Cluster's agent; what runs there runs on."""

    def work(uow: UnitOfWork) -> tuple[ClusterView, str]:
        enrolment.revoke(uow, _cluster(uow, caller, name, expected), caller.principal.actor, caller.request_id)
        return fleet_queries.cluster(uow, caller.principal, name)

    view, tag = run(container_of(request).uow_factory, work)
    mark(response, tag)
    return view


@router.get("/nodes")
def list_nodes(request: Request, caller: Calling, asked: Annotated[FleetQuery, Query()]) -> Page[NodeView]:
    """Machines with what is held and free on each."""
    wanted = FleetFilter(cluster=asked.cluster, node=asked.node, flavor=asked.flavor)
    with container_of(request).uow_factory() as uow:
        return queries.nodes(uow, caller.principal, wanted, asked.paging)


@router.post("/nodes/{number}/cordon", status_code=204, openapi_extra=takes(Cordon), deprecated=True)
def cordon_node(request: Request, number: int, caller: Calling, body: SentBody) -> None:
    """The same as by name, without an end; an empty reason puts it back."""
    require(caller.principal, Action.CLUSTER_WRITE)
    wanted = parsed(TypeAdapter(Cordon), body.one)
    wish = cordons.Wish(wanted.reason) if wanted.reason else None
    by = By(caller.principal.actor, caller.request_id)
    run(container_of(request).uow_factory, lambda uow: cordons.cordon_node_numbered(uow, NodeId(number), wish, by))


@router.get("/devices")
def list_devices(request: Request, caller: Calling, asked: Annotated[DeviceQuery, Query()]) -> Page[DeviceView]:
    """Cards, partitions and shared slots with their health."""
    wanted = FleetFilter(cluster=asked.cluster, node=asked.node, flavor=asked.flavor, health=asked.health)
    with container_of(request).uow_factory() as uow:
        return queries.devices(uow, caller.principal, wanted, asked.paging)


def _cluster(uow: UnitOfWork, caller: Caller, name: str, expected: Expected = UNCONDITIONAL) -> ClusterId:
    """The Cluster that an admin speaks of; locked where something is expected of it."""
    require(caller.principal, Action.CLUSTER_WRITE)
    found = uow.fleet.cluster_named(name)
    if found is not None and expected:
        found = uow.fleet.lock_cluster(found.id)
    if found is None:
        raise NotFound(f"there is no cluster {name}")
    expected.check(str(found.version), f"cluster {name}")
    return found.id


def _token(
    uow: UnitOfWork, caller: Caller, request: Request, cluster: ClusterId, name: str, asked: EnrolmentTokenCreate
) -> Answer:
    issued = enrolment.issue_token(
        uow,
        cluster,
        caller.principal.actor,
        valid_seconds=asked.token_valid,
        auto_accept=asked.auto_accept,
        request_id=caller.request_id,
    )
    told = EnrolmentTokenView(
        cluster=name,
        token="",
        expires_at=issued.expires_at,
        auto_accept=asked.auto_accept,
        agent_url=container_of(request).settings.agent_audience(),
    )
    return Answer(201, told.model_dump(mode="json", by_alias=True), shown_once={"token": issued.token})
