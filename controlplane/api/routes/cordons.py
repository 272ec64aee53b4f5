"""/api/v1/clusters, nodes, devices: taken out of planning and put back, emptied, removed."""

from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, TypeAdapter

from controlplane.api.auth import Calling, container_of
from controlplane.api.bodies import SentBody
from controlplane.api.openapi import takes
from controlplane.api.parameters import Number, RemovalQuery
from controlplane.api.preconditions import Demanded, Stated, mark
from controlplane.contract.rest.cordons import CordonAsked, DrainAsked, RemovalView
from controlplane.contract.rest.fleet import ClusterView, DeviceView, NodeView
from controlplane.services import cordons, drains, fleet_queries, removal
from controlplane.services.attempt_batch import By
from controlplane.services.authz import Action, Caller, require
from controlplane.services.ports.unit_of_work import UnitOfWork, run
from controlplane.services.validation import parsed

Model = TypeVar("Model", bound=BaseModel)
router = APIRouter(prefix="/api/v1", tags=["fleet"])


@router.post("/clusters/{name}/cordon", openapi_extra=takes(CordonAsked))
def cordon_cluster(
    request: Request, name: str, caller: Calling, body: SentBody, expected: Stated, response: Response
) -> ClusterView:
    """Let a Cluster take no new work; what runs there runs on. With `for` it takes work again by itself."""
    wish = _wish(body)
    return _changed(
        request,
        response,
        lambda uow: cordons.cordon_cluster(uow, name, wish, _by(caller), expected),
        lambda uow: fleet_queries.cluster(uow, caller.principal, name),
    )


@router.post("/clusters/{name}/uncordon")
def uncordon_cluster(request: Request, name: str, caller: Calling, expected: Stated, response: Response) -> ClusterView:
    """Let a Cluster take work again. Twice is once."""
    return _changed(
        request,
        response,
        lambda uow: cordons.cordon_cluster(uow, name, None, _by(caller), expected),
        lambda uow: fleet_queries.cluster(uow, caller.principal, name),
    )


@router.post("/clusters/{name}/drain", openapi_extra=takes(DrainAsked))
def drain_cluster(
    request: Request, name: str, caller: Calling, body: SentBody, expected: Stated, response: Response
) -> ClusterView:
    """Empty a Cluster: no new work at once; what still runs after `deadline` is stopped and goes elsewhere."""
    asked = parsed(TypeAdapter(DrainAsked), body.one)
    wish = cordons.Wish(asked.reason, asked.deadline)
    return _changed(
        request,
        response,
        lambda uow: drains.drain(uow, name, wish, _by(caller), expected),
        lambda uow: fleet_queries.cluster(uow, caller.principal, name),
    )


@router.post("/clusters/{name}/undrain")
def undrain_cluster(request: Request, name: str, caller: Calling, expected: Stated, response: Response) -> ClusterView:
    """Let a Cluster take work again, and call off its removal; what was told to stop still stops."""
    return _changed(
        request,
        response,
        lambda uow: drains.undrain(uow, name, _by(caller), expected),
        lambda uow: fleet_queries.cluster(uow, caller.principal, name),
    )


@router.get("/clusters/{name}/removal")
def show_removal(request: Request, name: str, caller: Calling) -> RemovalView:
    """What removing a Cluster would do to the work there, for each choice of `work`."""
    with container_of(request).uow_factory() as uow:
        return fleet_queries.consequences(uow, caller.principal, name)


@router.delete(
    "/clusters/{name}",
    status_code=204,
    response_model=None,
    responses={202: {"model": RemovalView, "description": "It is being emptied, and removed once it is empty"}},
)
def remove_cluster(
    request: Request, name: str, caller: Calling, expected: Demanded, asked: Annotated[RemovalQuery, Query()]
) -> Response:
    """Remove a Cluster; `work` says what becomes of what lives there (see `removal`). Its name is free afterwards."""
    require(caller.principal, Action.CLUSTER_WRITE)

    def work(uow: UnitOfWork) -> RemovalView | None:
        is_done = removal.remove(uow, name, asked.work, _by(caller), expected)
        return None if is_done else removal.consequences(uow, name)

    left = run(container_of(request).uow_factory, work)
    if left is None:
        return Response(status_code=204)
    return Response(left.model_dump_json(by_alias=True), 202, media_type="application/json")


@router.get("/clusters/{cluster}/nodes/{name}")
def show_node(request: Request, cluster: str, name: str, caller: Calling, response: Response) -> NodeView:
    """One machine, by name."""
    return _shown(request, response, lambda uow: fleet_queries.node(uow, caller.principal, cluster, name))


@router.post("/clusters/{cluster}/nodes/{name}/cordon", openapi_extra=takes(CordonAsked))
def cordon_node_named(
    request: Request, cluster: str, name: str, caller: Calling, body: SentBody, expected: Stated, response: Response
) -> NodeView:
    """Take a machine out of planning; what runs there runs on. The cordon ends with the Node object."""
    wish = _wish(body)
    return _changed(
        request,
        response,
        lambda uow: cordons.cordon_node(uow, cluster, name, wish, _by(caller), expected),
        lambda uow: fleet_queries.node(uow, caller.principal, cluster, name),
    )


@router.post("/clusters/{cluster}/nodes/{name}/uncordon")
def uncordon_node_named(
    request: Request, cluster: str, name: str, caller: Calling, expected: Stated, response: Response
) -> NodeView:
    """Put a machine back. Twice is once."""
    return _changed(
        request,
        response,
        lambda uow: cordons.cordon_node(uow, cluster, name, None, _by(caller), expected),
        lambda uow: fleet_queries.node(uow, caller.principal, cluster, name),
    )


@router.get("/devices/{number}")
def show_device(request: Request, number: Number, caller: Calling, response: Response) -> DeviceView:
    """One card, partition or shared slot."""
    return _shown(request, response, lambda uow: fleet_queries.device(uow, caller.principal, number))


@router.post("/devices/{number}/cordon", openapi_extra=takes(CordonAsked))
def cordon_device(
    request: Request, number: Number, caller: Calling, body: SentBody, expected: Stated, response: Response
) -> DeviceView:
    """Take one device out of planning: its node gives one unit less. Who uses it goes on."""
    wish = _wish(body)
    return _changed(
        request,
        response,
        lambda uow: cordons.cordon_device(uow, number, wish, _by(caller), expected),
        lambda uow: fleet_queries.device(uow, caller.principal, number),
    )


@router.post("/devices/{number}/uncordon")
def uncordon_device(
    request: Request, number: Number, caller: Calling, expected: Stated, response: Response
) -> DeviceView:
    """Put a device back. Twice is once."""
    return _changed(
        request,
        response,
        lambda uow: cordons.cordon_device(uow, number, None, _by(caller), expected),
        lambda uow: fleet_queries.device(uow, caller.principal, number),
    )


def _wish(body: SentBody) -> cordons.Wish:
    asked = parsed(TypeAdapter(CordonAsked), body.one)
    return cordons.Wish(asked.reason, asked.for_)


def _by(caller: Caller) -> By:
    """Who may; raises Forbidden."""
    require(caller.principal, Action.CLUSTER_WRITE)
    return By(caller.principal.actor, caller.request_id)


def _changed(
    request: Request,
    response: Response,
    change: Callable[[UnitOfWork], object],
    look: Callable[[UnitOfWork], tuple[Model, str]],
) -> Model:
    """Change it, and answer how it stands then."""

    def work(uow: UnitOfWork) -> tuple[Model, str]:
        change(uow)
        return look(uow)

    view, tag = run(container_of(request).uow_factory, work)
    mark(response, tag)
    return view


def _shown(request: Request, response: Response, look: Callable[[UnitOfWork], tuple[Model, str]]) -> Model:
    with container_of(request).uow_factory() as uow:
        view, tag = look(uow)
    mark(response, tag)
    return view
