"""One Node, one Device, one Cluster as callers see them, each with the ETag that an edit of it compares."""

from controlplane.contract.rest.cordons import RemovalView
from controlplane.contract.rest.fleet import ClusterView, DeviceView, NodeView
from controlplane.core.facts.queries import FleetFilter
from controlplane.core.facts.tenancy import Principal
from controlplane.services import authz, cordons, queries, removal
from controlplane.services.authz import Action
from controlplane.services.errors import NotFound
from controlplane.services.ports.unit_of_work import UnitOfWork


def cluster(uow: UnitOfWork, principal: Principal, name: str) -> tuple[ClusterView, str]:
    """The Cluster and its ETag; raises NotFound."""
    view = queries.cluster(uow, principal, name)
    return view, str(view.version)


def node(uow: UnitOfWork, principal: Principal, cluster_name: str, name: str) -> tuple[NodeView, str]:
    """The Node of this name and its ETag; raises NotFound."""
    authz.require(principal, Action.CLUSTER_READ)
    at = uow.fleet.cluster_named(cluster_name)
    if at is None:
        raise NotFound(f"there is no cluster {cluster_name}")
    fact = cordons.node_in(uow, at, name)
    [view] = uow.queries.nodes(FleetFilter(cluster=cluster_name, node=name), 0, 1).items
    return view, str(fact.cordon_version)


def device(uow: UnitOfWork, principal: Principal, number: int) -> tuple[DeviceView, str]:
    """The Device of this number and its ETag; raises NotFound."""
    authz.require(principal, Action.CLUSTER_READ)
    fact = uow.cordons.device(number)
    if fact is None:
        raise NotFound(f"there is no device {number}")
    [view] = uow.queries.devices(FleetFilter(), number - 1, 1).items  # those after the one before it
    return view, str(fact.cordon_version)


def consequences(uow: UnitOfWork, principal: Principal, name: str) -> RemovalView:
    """What removing the Cluster would do; raises Forbidden, NotFound."""
    authz.require(principal, Action.PLANE_READ)
    return removal.consequences(uow, name)
