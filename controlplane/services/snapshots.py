"""A Pool's live world for whoever plans on it elsewhere: the very Snapshot that its planner would have, as a record.

Never writes. It names everybody's work, so it is for those who watch the whole plane.
"""

from typing import cast

from controlplane.contract.rest.common import API_VERSION, Json
from controlplane.contract.rest.planning import SnapshotView
from controlplane.core.facts.planning import Reading
from controlplane.core.facts.tenancy import Principal
from controlplane.core.ids import PoolId
from controlplane.core.records import World, to_record
from controlplane.core.snapshot import Snapshot
from controlplane.services.authz import Action, require
from controlplane.services.errors import Conflict, NotFound
from controlplane.services.ports.planning import SnapshotReader
from controlplane.services.ports.unit_of_work import UnitOfWorkFactory

ROWS_MAX = 400_000


def pool_snapshot(
    factory: UnitOfWorkFactory, reader: SnapshotReader, principal: Principal, pool: str, rows_max: int = ROWS_MAX
) -> SnapshotView:
    """Raises Forbidden, NotFound, and Conflict where the Pool has more rows than anybody should be sent at once."""
    require(principal, Action.PLANE_READ)
    with factory() as uow:
        found = uow.tenancy.pool(pool)
    if found is None:
        raise NotFound(f"there is no pool {pool[:100]}")
    reading, snapshot = read_whole(reader, found.id)
    rows = len(reading.changes)
    if rows > rows_max:
        words = f"pool {pool} has {rows} rows, and at most {rows_max} are sent at once"
        raise Conflict(words, slug="snapshot-too-large")
    return SnapshotView(
        api_version=API_VERSION,
        kind="Snapshot",
        now=reading.now,
        policy=cast("dict[str, Json]", to_record(reading.policy)),
        snapshot=cast("dict[str, Json]", to_record(snapshot)),
    )


def read_whole(reader: SnapshotReader, pool: PoolId) -> tuple[Reading, Snapshot]:
    """Everything of a Pool as it is now."""
    reading = reader.read(pool, None)
    world = World(pool, reading.pool_name)
    world.apply(reading.changes)
    return reading, world.freeze()
