"""Clusters as they are made and applied. Taking one away is no edit of a document: what runs there is asked about."""

from collections.abc import Sequence

from controlplane.contract.rest.fleet import ClusterCreate, ClusterDocument, ClusterSpec
from controlplane.core.facts.fleet import Document
from controlplane.core.ids import ClusterId
from controlplane.services import fleet, wire
from controlplane.services.authz import Action, Caller, require
from controlplane.services.edits import Edit, record
from controlplane.services.errors import Conflict, Invalid
from controlplane.services.pools import pool_named
from controlplane.services.ports.unit_of_work import UnitOfWork


def create_cluster(uow: UnitOfWork, caller: Caller, wanted: ClusterCreate) -> ClusterId:
    """A new Cluster in state `created`; raises Forbidden, Invalid, Conflict where one has its name."""
    require(caller.principal, Action.CLUSTER_WRITE)
    pool = pool_named(uow, wanted.spec.pool)
    return fleet.create_cluster(
        uow, wanted.name, pool.name, wanted.labels, _stored(wanted.spec), caller.principal.actor
    )


def write(uow: UnitOfWork, caller: Caller, edits: Sequence[Edit]) -> None:
    """Make or change them; raises Invalid, Conflict."""
    changed = [each for each in edits if each.is_change and each.after is not None]
    for each in changed:
        _write(uow, caller, each)
    record(uow, caller, changed)


def _write(uow: UnitOfWork, caller: Caller, edit: Edit) -> None:
    assert isinstance(edit.document, ClusterDocument)
    name, labels, spec = edit.name, edit.document.metadata.labels, edit.document.spec
    try:
        pool = pool_named(uow, spec.pool)
    except Invalid as error:
        raise edit.refused("/spec/pool", error.slug, error.detail) from None
    was = uow.fleet.cluster_named(name)
    if was is None:
        fleet.create_cluster(uow, name, pool.name, labels, _stored(spec), caller.principal.actor)
        return
    if was.pool != pool.id:
        raise Conflict(f"{name} is in another pool; that cannot change yet", slug="pool-fixed")
    uow.fleet.set_spec(was.id, labels, _stored(spec))
    uow.wake_pool(pool.id)  # its labels, facts or network domain may be what somebody waits for
    if wire.told_at_hello(was.spec) != wire.told_at_hello(_stored(spec)):
        uow.agents.end_sessions(was.id)  # its agent says hello again and is told
        uow.notify_cluster(was.id)


def _stored(spec: ClusterSpec) -> Document:
    """With every default in it, since those who read it take it as it is."""
    stored: Document = spec.model_dump(mode="json", by_alias=True, exclude={"nodes"}, exclude_none=True)
    return stored
