"""Pools and their Policies: by name, as applied, deleted. `default` is always there: it is made when first named."""

from collections.abc import Sequence

from controlplane.contract.rest.tenancy import PolicyDocument
from controlplane.core.facts.tenancy import PoolFact
from controlplane.core.ids import PoolId
from controlplane.services.authz import Caller
from controlplane.services.edits import Edit, record
from controlplane.services.errors import Conflict, Fault, Invalid
from controlplane.services.ports.unit_of_work import UnitOfWork

DEFAULT = "default"


def pool_named(uow: UnitOfWork, name: str) -> PoolFact:
    """The Pool; raises Invalid where there is none."""
    if name == DEFAULT:
        uow.fleet.ensure_pool(DEFAULT)
    pool = uow.tenancy.pool(name)
    if pool is None:
        words = f"there is no pool {name}"
        raise Invalid(words, slug="pool-unknown", faults=(Fault("/spec/pool", words, "pool-unknown"),))
    return pool


def write_pools(uow: UnitOfWork, caller: Caller, edits: Sequence[Edit]) -> None:
    """Make or change them."""
    changed = [each for each in edits if each.is_change and each.after is not None]
    for each in changed:
        assert each.after is not None
        uow.documents.put_pool(each.name, each.after.labels, each.after.spec)
    record(uow, caller, changed)


def write_policies(uow: UnitOfWork, caller: Caller, edits: Sequence[Edit]) -> None:
    """Give each Pool a next version; raises Invalid where there is no Pool of that name."""
    changed = [each for each in edits if each.is_change and each.after is not None]
    versions = {}
    for each in edits:
        if each.after is None:
            continue
        assert isinstance(each.document, PolicyDocument)
        try:
            pool = pool_named(uow, each.name)  # a Policy has its Pool's name
        except Invalid as error:
            raise each.refused("/metadata/name", error.slug, error.detail) from None
        if not each.is_change:
            continue
        spec = each.document.spec.model_dump(mode="json", exclude_none=True)
        version = uow.documents.add_policy(pool.id, each.after.labels, spec, caller.principal.actor)
        versions[each.name] = {"version": version}
    record(uow, caller, changed, versions)


def delete_policies(uow: UnitOfWork, caller: Caller, edits: Sequence[Edit]) -> None:
    """Back to the defaults, by a next version that says nothing."""
    gone = [each for each in edits if each.is_change and each.after is None]
    versions = {}
    for each in gone:
        assert each.before is not None
        assert each.before.id is not None
        version = uow.documents.add_policy(PoolId(each.before.id), {}, {}, caller.principal.actor)
        versions[each.name] = {"version": version}
    record(uow, caller, gone, versions)


def delete_pools(uow: UnitOfWork, caller: Caller, edits: Sequence[Edit]) -> None:
    """Take Pools away in which nothing lives; raises Conflict. Their Policies go with them."""
    gone = [each for each in edits if each.is_change and each.after is None]
    more = {}
    for each in gone:
        if each.name == DEFAULT:
            raise Conflict("the pool default is always there", slug="pool-in-use")
        assert each.before is not None
        assert each.before.id is not None
        pool = PoolId(each.before.id)
        use = uow.documents.pool_use(pool)
        if use.clusters or use.workloads:
            clusters = f"the clusters {', '.join(use.clusters)}" if use.clusters else ""
            workloads = f"{use.workloads} live workloads" if use.workloads else ""
            words = " and ".join(filter(None, (clusters, workloads)))
            raise Conflict(f"pool {each.name} has {words}", slug="pool-in-use")
        if uow.tenancy.policy(pool):
            version = uow.documents.add_policy(pool, {}, {}, caller.principal.actor)
            more[each.name] = {"policy version": version}
        uow.documents.delete_pool(pool)
    record(uow, caller, gone, more)
