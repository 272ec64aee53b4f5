"""Read models for callers: what they may see of Workloads, Queues, the fleet and the plane, in pages by key.

Never writes. A cursor is opaque to callers: the key of the last item, bound to the list and filter it came from.
"""

import base64
import binascii
import hashlib
import json
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from controlplane.contract.rest.common import Page
from controlplane.contract.rest.fleet import ClusterView, DeviceView, NodeView
from controlplane.contract.rest.operations import AuditView, CycleView, RebalanceView
from controlplane.contract.rest.tenancy import QueueView
from controlplane.contract.rest.workloads import WorkloadSummary, WorkloadView
from controlplane.core.facts.queries import AuditFilter, FleetFilter, PageOf, Scope, WorkloadFilter
from controlplane.core.facts.tenancy import Principal
from controlplane.core.ids import WorkloadId
from controlplane.services import authz
from controlplane.services.authz import Action
from controlplane.services.errors import Conflict, Malformed, NotFound
from controlplane.services.ports.unit_of_work import UnitOfWork

LIMIT_MAX = 500
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Paging:
    """How many items, and after which."""

    limit: int = 100
    cursor: str | None = None


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
    key = _key(paging, "workloads", wanted, 2)
    after = None
    if key is not None:
        try:
            after = datetime.fromisoformat(key[0]), str(uuid.UUID(key[1]))
        except ValueError:
            raise _bad_cursor() from None
    found = uow.queries.workloads(scope_of(principal), wanted, after, paging.limit)
    return _page(found, "workloads", wanted)


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
    return _page(uow.queries.nodes(wanted, _after(paging, "nodes", wanted) or 0, paging.limit), "nodes", wanted)


def devices(uow: UnitOfWork, principal: Principal, wanted: FleetFilter, paging: Paging) -> Page[DeviceView]:
    """By id."""
    authz.require(principal, Action.CLUSTER_READ)
    return _page(uow.queries.devices(wanted, _after(paging, "devices", wanted) or 0, paging.limit), "devices", wanted)


def cycles(uow: UnitOfWork, principal: Principal, pool: str | None, paging: Paging) -> Page[CycleView]:
    """Youngest first."""
    authz.require(principal, Action.PLANE_READ)
    return _page(uow.queries.cycles(pool, _after(paging, "cycles", pool), paging.limit), "cycles", pool)


def rebalance(uow: UnitOfWork, principal: Principal, pool: str) -> RebalanceView:
    """The latest report of the Pool; raises NotFound."""
    authz.require(principal, Action.CLUSTER_READ)
    report = uow.queries.rebalance(pool)
    if report is None:
        raise NotFound(f"there is no rebalancing report of pool {pool[:100]} yet")
    return report


def audit(uow: UnitOfWork, principal: Principal, wanted: AuditFilter, paging: Paging) -> Page[AuditView]:
    """Youngest first."""
    authz.require(principal, Action.AUDIT_READ)
    return _page(uow.queries.audit(wanted, _after(paging, "audit", wanted), paging.limit), "audit", wanted)


def _page(found: PageOf[Item], kind: str, wanted: object) -> Page[Item]:
    following = None if found.last is None else _cursor(found.last, kind, wanted)
    return Page(items=found.items, next=following)


def _after(paging: Paging, kind: str, wanted: object) -> int | None:
    key = _key(paging, kind, wanted, 1)
    if key is None:
        return None
    if not key[0].isascii() or not key[0].isdigit() or len(key[0]) > 18:
        raise _bad_cursor()
    return int(key[0])


def _cursor(key: tuple[str, ...], kind: str, wanted: object) -> str:
    text = json.dumps([_binding(kind, wanted), *key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _key(paging: Paging, kind: str, wanted: object, length: int) -> list[str] | None:
    if paging.cursor is None:
        return None
    padded = paging.cursor + "=" * (-len(paging.cursor) % 4)
    try:
        parts = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
    except (ValueError, binascii.Error, RecursionError):
        raise _bad_cursor() from None
    if not isinstance(parts, list) or len(parts) != length + 1 or not all(isinstance(part, str) for part in parts):
        raise _bad_cursor()
    if parts[0] != _binding(kind, wanted):
        raise _bad_cursor()
    return parts[1:]


def _binding(kind: str, wanted: object) -> str:
    """No secret: what a caller may see is asked again at every page, so a forged cursor shows nothing new."""
    return hashlib.sha256(f"{kind} {wanted!r}".encode()).hexdigest()[:16]


def _bad_cursor() -> Malformed:
    return Malformed("this cursor is not from this list and filter", slug="invalid-cursor")
