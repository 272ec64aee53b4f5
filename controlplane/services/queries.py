"""Read models for callers: what they may see of Workloads, Queues, the fleet and the plane, in pages by key.

Never writes. Cursors are `services.cursors`.
"""

import uuid
from dataclasses import replace
from datetime import datetime

from controlplane.contract.rest.common import Page
from controlplane.contract.rest.fleet import ClusterView, DeviceView, NodeView
from controlplane.contract.rest.ledger import AccountView, TransferView
from controlplane.contract.rest.operations import AuditView, CycleView, PlanView, RebalanceView
from controlplane.contract.rest.people import BindingView, TokenSummary
from controlplane.contract.rest.tenancy import QueueView
from controlplane.contract.rest.workloads import WorkloadSummary, WorkloadView
from controlplane.core.facts.people import PeopleFilter
from controlplane.core.facts.queries import AuditFilter, FleetFilter, LedgerFilter, Scope, WorkloadFilter
from controlplane.core.facts.tenancy import Principal
from controlplane.core.ids import WorkloadId
from controlplane.services import authz, people
from controlplane.services.authz import Action
from controlplane.services.cursors import Listing, Paging
from controlplane.services.errors import Conflict, NotFound
from controlplane.services.ports.unit_of_work import UnitOfWork


def scope_of(principal: Principal) -> Scope:
    """What of the quota tree the caller may see."""
    return Scope(authz.visible_paths(principal))


def workload_id(uow: UnitOfWork, principal: Principal, reference: str) -> WorkloadId:
    """A Workload by its id or name; the live one of several. Raises NotFound, or Conflict where two are live."""
    try:
        return WorkloadId(str(uuid.UUID(reference)))
    except ValueError:
        pass
    found = uow.queries.named(scope_of(principal), reference)
    if not found:
        raise NotFound(f"there is no workload {reference[:100]}")
    if len(found) > 1:
        states = [uow.workloads.get(each) for each in found]
        live = [each for each in states if each is not None and each.state not in {"succeeded", "failed", "cancelled"}]
        if len(live) > 1:
            ids = " and ".join(each.id for each in live)
            raise Conflict(
                f"{reference} is the name of more than one live workload ({ids}); use an id", slug="ambiguous"
            )
    return found[0]


def workloads(uow: UnitOfWork, principal: Principal, wanted: WorkloadFilter, paging: Paging) -> Page[WorkloadSummary]:
    """Youngest first."""
    _known(uow, principal, wanted.queue, wanted.cluster)
    listing = Listing(principal, "workloads", wanted, paging)
    key = listing.key(2)
    after = None if key is None else (datetime.fromisoformat(key[0]), key[1])
    return listing.page(uow.queries.workloads(scope_of(principal), wanted, after, paging.limit))


def workload(uow: UnitOfWork, principal: Principal, reference: str) -> WorkloadView:
    """One with all its history; raises NotFound."""
    view = uow.queries.workload(scope_of(principal), workload_id(uow, principal, reference))
    if view is None:
        raise NotFound("there is no such workload")
    return view


def queues(uow: UnitOfWork, principal: Principal) -> list[QueueView]:
    """Every Queue that the caller may see."""
    return uow.queries.queues(scope_of(principal))


def queue(uow: UnitOfWork, principal: Principal, path: str) -> QueueView:
    """One; raises NotFound."""
    found = next((each for each in queues(uow, principal) if each.path == path), None)
    if found is None:
        raise NotFound(f"there is no queue {path}")
    return found


def clusters(uow: UnitOfWork, principal: Principal) -> list[ClusterView]:
    """Every Cluster."""
    authz.require(principal, Action.CLUSTER_READ)
    return _without_others(uow, principal, uow.queries.clusters())


def cluster(uow: UnitOfWork, principal: Principal, name: str) -> ClusterView:
    """One; raises NotFound."""
    authz.require(principal, Action.CLUSTER_READ)
    found = _without_others(uow, principal, uow.queries.clusters(name))
    if not found:
        raise NotFound(f"there is no cluster {name}")
    return found[0]


def _without_others(uow: UnitOfWork, principal: Principal, views: list[ClusterView]) -> list[ClusterView]:
    """Of a cluster's namespaces, those of Queues that the caller sees: names of others' tell who they are."""
    if authz.may(principal, Action.PLANE_READ):
        return views
    own: dict[str, str] = {}  # by path, inherited down the tree
    for each in sorted(uow.tenancy.queues(), key=lambda queue: queue.path.count("/")):
        own[each.path] = each.namespace or own.get(each.path.rpartition("/")[0], "")
    seen = {namespace for path, namespace in own.items() if authz.sees(principal, path)}
    return [view.model_copy(update={"namespaces": [at for at in view.namespaces if at in seen]}) for view in views]


def nodes(uow: UnitOfWork, principal: Principal, wanted: FleetFilter, paging: Paging) -> Page[NodeView]:
    """By id."""
    authz.require(principal, Action.CLUSTER_READ)
    _known(uow, principal, None, wanted.cluster)
    listing = Listing(principal, "nodes", wanted, paging)
    return listing.page(uow.queries.nodes(wanted, listing.number() or 0, paging.limit))


def devices(uow: UnitOfWork, principal: Principal, wanted: FleetFilter, paging: Paging) -> Page[DeviceView]:
    """By id."""
    authz.require(principal, Action.CLUSTER_READ)
    _known(uow, principal, None, wanted.cluster)
    listing = Listing(principal, "devices", wanted, paging)
    return listing.page(uow.queries.devices(wanted, listing.number() or 0, paging.limit))


def cycles(uow: UnitOfWork, principal: Principal, pool: str | None, paging: Paging) -> Page[CycleView]:
    """Youngest first."""
    authz.require(principal, Action.PLANE_READ)
    listing = Listing(principal, "cycles", pool, paging)
    return listing.page(uow.queries.cycles(pool, listing.number(), paging.limit))


def cycle(uow: UnitOfWork, principal: Principal, number: int) -> CycleView:
    """One; raises NotFound where there is none (any more)."""
    authz.require(principal, Action.PLANE_READ)
    found = uow.queries.cycle(number)
    if found is None:
        raise NotFound(f"there is no cycle {number}, or no longer")
    return found


def plan(uow: UnitOfWork, principal: Principal, number: int) -> PlanView:
    """What it decided; raises NotFound where there is none (any more)."""
    authz.require(principal, Action.PLANE_READ)
    found = uow.queries.plan(number)
    if found is None:
        raise NotFound(f"there is no cycle {number}, or no longer")
    return found


def accounts(uow: UnitOfWork, principal: Principal, wanted: LedgerFilter, paging: Paging) -> Page[AccountView]:
    """By Queue and Flavor."""
    _known(uow, principal, wanted.queue, None)
    listing = Listing(principal, "accounts", wanted, paging)
    key = listing.key(2)
    after = None if key is None else (key[0], key[1])
    return listing.page(uow.queries.accounts(scope_of(principal), wanted, after, paging.limit))


def transfers(uow: UnitOfWork, principal: Principal, wanted: LedgerFilter, paging: Paging) -> Page[TransferView]:
    """Youngest first."""
    _known(uow, principal, wanted.queue, None)
    listing = Listing(principal, "transfers", wanted, paging)
    if wanted.workload is not None:
        wanted = replace(wanted, workload=workload(uow, principal, wanted.workload).id)
    return listing.page(uow.queries.transfers(scope_of(principal), wanted, listing.number(), paging.limit))


def rebalance(uow: UnitOfWork, principal: Principal, pool: str) -> RebalanceView:
    """The latest report of the Pool; raises NotFound."""
    authz.require(principal, Action.CLUSTER_READ)
    report = uow.queries.rebalance(pool)
    if report is None:
        raise NotFound(f"there is no rebalancing report of pool {pool[:100]} yet")
    return report


def audit(uow: UnitOfWork, principal: Principal, wanted: AuditFilter, paging: Paging) -> Page[AuditView]:
    """Youngest first; who watches a subtree sees the rows of its Workloads and Queues."""
    paths = authz.paths_where(principal, Action.AUDIT_READ)
    if paths == ():
        authz.require(principal, Action.AUDIT_READ)
    listing = Listing(principal, "audit", wanted, paging)
    return listing.page(uow.queries.audit(Scope(paths), wanted, listing.number(), paging.limit))


def tokens(uow: UnitOfWork, principal: Principal, wanted: PeopleFilter, paging: Paging) -> Page[TokenSummary]:
    """One's own, those of one's subtree as a lead, all of them as whoever watches the plane."""
    listing = Listing(principal, "tokens", wanted, paging)
    return listing.page(uow.people.tokens(people.scope_of(principal), wanted, listing.number() or 0, paging.limit))


def bindings(uow: UnitOfWork, principal: Principal, wanted: PeopleFilter, paging: Paging) -> Page[BindingView]:
    """One's own, those in one's subtree as a lead, all of them as whoever watches the plane."""
    listing = Listing(principal, "bindings", wanted, paging)
    return listing.page(uow.people.bindings(people.scope_of(principal), wanted, listing.number() or 0, paging.limit))


def _known(uow: UnitOfWork, principal: Principal, queue: str | None, cluster: str | None) -> None:
    """A filter that names nothing is a mistake and no empty list; raises NotFound."""
    if queue is not None:
        require_queue(uow, principal, queue)
    if cluster is not None and uow.fleet.cluster_named(cluster) is None:
        raise NotFound(f"there is no cluster {cluster[:100]}")


def require_queue(uow: UnitOfWork, principal: Principal, path: str) -> None:
    """Raise NotFound where there is no such Queue, or none that the caller sees itself or something below."""
    if uow.tenancy.queue(path) is None or not _touches(principal, path):
        raise NotFound(f"there is no queue {path[:100]}")


def _touches(principal: Principal, path: str) -> bool:
    """Whether it sees the Queue, or one below it: whose own Queue is research/nlp may well ask for research."""
    return authz.sees(principal, path) or any(
        each.queue_path is not None and each.queue_path.startswith(f"{path}/") for each in principal.bindings
    )
