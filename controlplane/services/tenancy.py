"""Documents that people apply: Queues with their Quotas, Pools, Policies, Clusters; all of a request or none of it.

A change of the quota tree brings the ledger's accounts along in the same transaction. A Quota cut below what is in
use kills nothing: it is taken, with a warning, and stops admission until usage has fallen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.contract.rest.common import Warned
from controlplane.contract.rest.documents import Applied, Document
from controlplane.contract.rest.fleet import ClusterCreate, ClusterDocument, FlavorDocument
from controlplane.contract.rest.tenancy import PolicyDocument, PoolDocument, QueueDocument, WindowDocument
from controlplane.contract.rest.workloads import WorkloadDocument
from controlplane.core.facts.tenancy import NewQueue, QueueFact, QuotaChange
from controlplane.core.ids import ClusterId, FlavorName, QueueId
from controlplane.core.quota import DEPTH_MAX, ImpossibleTree, QuotaTree
from controlplane.core.tenancy import Quota
from controlplane.services import accounting, fleet, wire
from controlplane.services.authz import Action, Caller, require
from controlplane.services.errors import Conflict, Invalid, NotFound
from controlplane.services.pools import pool_named
from controlplane.services.ports.unit_of_work import UnitOfWork
from controlplane.services.submission import Submission, submit


@dataclass(frozen=True, slots=True)
class Sent:
    """One document of a request; `manifest` where it came as a Kubernetes object."""

    document: Document
    manifest: Mapping[str, object] | None = None


_ORDER = (
    PoolDocument,
    PolicyDocument,
    ClusterDocument,
    FlavorDocument,
    WindowDocument,
    QueueDocument,
    WorkloadDocument,
)


def apply(uow: UnitOfWork, caller: Caller, sent: Sequence[Sent], new_id: Callable[[], str]) -> list[Applied]:
    """Take every document, parents before children whatever their order; raises Invalid, Conflict, Forbidden."""
    ordered = sorted(sent, key=lambda one: (_ORDER.index(type(one.document)), one.document.metadata.name.count("/")))
    queues = [one.document for one in ordered if isinstance(one.document, QueueDocument)]
    _refuse_twice(ordered)
    applied: list[Applied] = []
    for one in ordered:
        if isinstance(one.document, WorkloadDocument):
            continue
        applied.append(_apply_one(uow, caller, one.document))
    if queues:
        applied = _with_warnings(applied, _resynced(uow, queues))
    for one in ordered:
        if isinstance(one.document, WorkloadDocument):
            submitted = submit(uow, caller, Submission(one.document, one.manifest), new_id)
            warnings = [Warned(code="template", detail=words) for words in submitted.warnings]
            name = one.document.metadata.name
            applied.append(Applied(kind="Workload", name=name, result="submitted", id=submitted.id, warnings=warnings))
    for pool in uow.tenancy.pools():
        uow.wake_pool(pool.id)
    return applied


def move_queue(uow: UnitOfWork, caller: Caller, path: str, target: str) -> QueueId:
    """Give a Queue another place in the tree; refuses cycles, depth, and what has live work. Returns its id."""
    require(caller.principal, Action.QUEUE_WRITE)
    queue = uow.tenancy.queue(path)
    if queue is None:
        raise NotFound(f"there is no queue {path}")
    if target == path:
        return queue.id
    if target.startswith(path + "/"):
        raise Invalid(f"{path} cannot go below itself", slug="queue-cycle")
    if uow.tenancy.queue(target) is not None:
        raise Conflict(f"there is a queue {target} already", slug="name-conflict")
    below = [each for each in uow.tenancy.queues() if each.path == path or each.path.startswith(path + "/")]
    if any(uow.tenancy.live_workloads(each.id) for each in below):
        raise Conflict(f"{path} has live workloads; they end first", slug="queue-in-use")
    deepest = max(each.path.count("/") for each in below) - path.count("/")
    parent = _parent(uow, target, extra=deepest)
    uow.tenancy.move_queue(queue.id, None if parent is None else parent.id, target)
    _sync(uow)
    _audit(uow, caller, "queue.move", "queue", target, {"from": path})
    return queue.id


def delete_queue(uow: UnitOfWork, caller: Caller, path: str) -> None:
    """Take a Queue out of the tree; refused while it has Queues below it or live work."""
    require(caller.principal, Action.QUEUE_WRITE)
    queue = uow.tenancy.queue(path)
    if queue is None:
        raise NotFound(f"there is no queue {path}")
    if any(each.parent == queue.id for each in uow.tenancy.queues()) or uow.tenancy.live_workloads(queue.id):
        raise Conflict(f"{path} has queues below it or live workloads", slug="queue-in-use")
    uow.tenancy.delete_queue(queue.id)
    _sync(uow)
    _audit(uow, caller, "queue.delete", "queue", path, {})


def _apply_one(uow: UnitOfWork, caller: Caller, document: Document) -> Applied:
    match document:
        case QueueDocument():
            return _apply_queue(uow, caller, document)
        case PoolDocument():
            return _apply_pool(uow, caller, document)
        case PolicyDocument():
            return _apply_policy(uow, caller, document)
        case ClusterDocument():
            return _apply_cluster(uow, caller, document)
        case _:
            require(caller.principal, Action.POLICY_WRITE)
            words = "flavors come from what agents report, so there is nothing to store"
            return Applied(
                kind=document.kind, name=document.metadata.name, result="unchanged",
                warnings=[Warned(code="nothing-to-do", detail=words)],
            )  # fmt: skip


def _apply_queue(uow: UnitOfWork, caller: Caller, document: QueueDocument) -> Applied:
    require(caller.principal, Action.QUEUE_WRITE)
    path = document.metadata.name
    parent = _parent(uow, path)
    if parent is not None and uow.tenancy.live_workloads(parent.id):
        raise Conflict(f"{parent.path} has live workloads, so it must stay a leaf", slug="queue-in-use")
    was = uow.tenancy.queue(path)
    spec = document.spec
    queue = uow.tenancy.put_queue(
        NewQueue(
            path=path,
            parent=None if parent is None else parent.id,
            weight=spec.weight,
            namespace=spec.namespace or "",
            labels=document.metadata.labels,
            spec=spec.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        )
    )
    quotas = tuple(_quota(each.flavor, each.nominal, each.borrow, each.lend, parent) for each in spec.quotas)
    uow.tenancy.set_quotas(QuotaChange(queue, quotas))
    _audit(uow, caller, Action.QUEUE_WRITE, "queue", path, {"quotas": len(quotas), "weight": spec.weight})
    return Applied(kind="Queue", name=path, result="created" if was is None else "changed", id=str(queue))


def _quota(flavor: str, nominal: int | None, borrow: int | None, lend: int | None, parent: QueueFact | None) -> Quota:
    """Only a root may leave its nominal open: it counts what clusters own."""
    return Quota(FlavorName(flavor), nominal if parent is None else nominal or 0, borrow, lend)


def _parent(uow: UnitOfWork, path: str, extra: int = 0) -> QueueFact | None:
    if path.count("/") + 1 + extra > DEPTH_MAX:
        raise Invalid(f"{path} is deeper than {DEPTH_MAX} levels", slug="queue-too-deep")
    above = path.rpartition("/")[0]
    if not above:
        return None
    parent = uow.tenancy.queue(above)
    if parent is None:
        raise Invalid(f"{path} needs its parent {above} first", slug="queue-unknown")
    return parent


def _apply_pool(uow: UnitOfWork, caller: Caller, document: PoolDocument) -> Applied:
    require(caller.principal, Action.POLICY_WRITE)
    name = document.metadata.name
    was = uow.tenancy.pool(name)
    pool = uow.tenancy.put_pool(name, document.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    _audit(uow, caller, "pool.write", "pool", name, {})
    return Applied(kind="Pool", name=name, result="created" if was is None else "unchanged", id=str(pool))


def _apply_policy(uow: UnitOfWork, caller: Caller, document: PolicyDocument) -> Applied:
    require(caller.principal, Action.POLICY_WRITE)
    name = document.metadata.name
    pool = pool_named(uow, name)  # a Policy has its Pool's name
    spec = document.spec.model_dump(mode="json", exclude_none=True)
    if uow.tenancy.policy(pool.id) == spec:
        return Applied(kind="Policy", name=name, result="unchanged", id=str(pool.policy_version))
    version = uow.tenancy.add_policy(pool.id, spec, caller.principal.actor)
    _audit(uow, caller, Action.POLICY_WRITE, "policy", name, {"version": version})
    return Applied(kind="Policy", name=name, result="changed", id=str(version))


def _apply_cluster(uow: UnitOfWork, caller: Caller, document: ClusterDocument) -> Applied:
    require(caller.principal, Action.CLUSTER_WRITE)
    name, spec = document.metadata.name, document.spec
    pool = pool_named(uow, spec.pool)
    stored = spec.model_dump(mode="json", by_alias=True, exclude={"nodes"}, exclude_none=True)
    was = uow.fleet.cluster_named(name)
    if was is None:
        cluster = fleet.create_cluster(uow, name, pool.name, document.metadata.labels, stored, caller.principal.actor)
        return Applied(kind="Cluster", name=name, result="created", id=str(cluster))
    if was.pool != pool.id:
        raise Conflict(f"{name} is in another pool; that cannot change yet", slug="pool-fixed")
    uow.fleet.set_spec(was.id, document.metadata.labels, stored)
    if wire.told_at_hello(was.spec) != wire.told_at_hello(stored):
        uow.agents.end_sessions(was.id)  # its agent says hello again and is told
        uow.notify_cluster(was.id)
    _audit(uow, caller, Action.CLUSTER_WRITE, "cluster", name, {})
    return Applied(kind="Cluster", name=name, result="changed", id=str(was.id))


def create_cluster(uow: UnitOfWork, caller: Caller, wanted: ClusterCreate) -> ClusterId:
    """A new Cluster in state `created`; raises Forbidden, Invalid, Conflict where one has its name."""
    require(caller.principal, Action.CLUSTER_WRITE)
    pool = pool_named(uow, wanted.spec.pool)
    spec = wanted.spec.model_dump(mode="json", by_alias=True, exclude={"nodes"}, exclude_none=True)
    return fleet.create_cluster(uow, wanted.name, pool.name, wanted.labels, spec, caller.principal.actor)


def _refuse_twice(sent: Sequence[Sent]) -> None:
    seen: set[tuple[str, str, str]] = set()
    for one in sent:
        queue = one.document.spec.queue if isinstance(one.document, WorkloadDocument) else ""
        key = (one.document.kind, one.document.metadata.name, queue)
        if key in seen:
            raise Conflict(f"{key[0]} {key[1]} stands there twice", slug="name-conflict")
        seen.add(key)


def _sync(uow: UnitOfWork) -> None:
    try:
        accounting.sync_accounts(uow)
    except ImpossibleTree as error:
        raise Invalid(str(error), slug="queue-cycle" if "cycle" in str(error) else "quota-conflict") from None


def _resynced(uow: UnitOfWork, queues: Sequence[QueueDocument]) -> dict[str, list[Warned]]:
    """Bring the accounts along, and say where more is in use now than the new limits allow."""
    _sync(uow)
    usage = {(key.queue, key.flavor): amount for key, amount in uow.ledger.leaf_usage().items()}
    tree = QuotaTree(uow.tenancy.tree(), usage, uow.ledger.owned())
    ids = {queue.path: queue.id for queue in tree.queues.values()}
    warnings: dict[str, list[Warned]] = {}
    for document in queues:
        path = document.metadata.name
        for quota in document.spec.quotas:
            account = tree.account(ids[path], FlavorName(quota.flavor))
            limit = account.s + (account.b or 0)
            if account.available() < 0 or (account.b is not None and account.u > limit):
                words = (
                    f"{account.u} {quota.flavor} are in use and {limit} are allowed; nothing starts until that falls"
                )
                warnings.setdefault(path, []).append(Warned(code="overdraft", detail=words))
    return warnings


def _with_warnings(applied: list[Applied], warnings: Mapping[str, list[Warned]]) -> list[Applied]:
    return [
        one.model_copy(update={"warnings": warnings[one.name]}) if one.kind == "Queue" and one.name in warnings else one
        for one in applied
    ]


def _audit(
    uow: UnitOfWork, caller: Caller, action: str, kind: str, object_id: str, facts: Mapping[str, object]
) -> None:
    uow.audit.record(
        actor=caller.principal.actor, action=action, object_kind=kind, object_id=object_id, facts=facts,
        request_id=caller.request_id,
    )  # fmt: skip
