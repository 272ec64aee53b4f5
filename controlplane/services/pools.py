"""Pools by name. `default` is always there: it is made when it is first named."""

from controlplane.core.facts.tenancy import PoolFact
from controlplane.services.errors import Fault, Invalid
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
