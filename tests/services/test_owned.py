"""What counts of what clusters own, on the real path: accounts, planner, submit, and what an admin removes."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy.exc import OperationalError

from controlplane.core.facts.planning import Horizon
from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.records import World
from controlplane.core.scenario import tree_of
from controlplane.db.snapshot_reader import SqlSnapshotReader
from controlplane.services import accounting, owned
from controlplane.services.ports.unit_of_work import UnitOfWork, run
from tests.services.agents import node, ready
from tests.services.planes import H100, Plane
from tests.support.databases import Database


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    """A cluster of 64 devices and a root that owns them."""
    made = Plane(database)
    made.cluster("eu-west", nodes=8)
    made.queue("lab")
    made.do("INSERT INTO quota (queue_id, flavor) SELECT id, :flavor FROM queue", flavor=H100)
    look(made)
    yield made
    made.close()


def look(plane: Plane) -> int:
    """As the periodic job does."""

    def work(uow: UnitOfWork) -> int:
        changed = owned.settle(uow)
        accounting.sync_accounts(uow)
        return changed

    return run(plane.uow, work)


def tell(plane: Plane, units: int) -> None:
    """Each of the 8 nodes is said to have so many devices, and the accounts follow at once, as for an inventory."""
    plane.do("UPDATE node_flavor SET owned = :units, allocatable = :units, capacity = :units", units=units)
    run(plane.uow, accounting.sync_accounts)


def later(plane: Plane, **time: int) -> None:
    plane.do("UPDATE cluster_owned SET since = since - CAST(:time AS interval)", time=timedelta(**time))


def quota(plane: Plane) -> int:
    """What the root has: by its account and by what its planner reads, which must not differ."""
    root = plane.rows("SELECT id FROM queue WHERE path = 'lab'")[0].id
    stored = plane.rows("SELECT subtree FROM account WHERE queue_id = :root", root=root)[0].subtree
    reading = SqlSnapshotReader(plane.engine).read(plane.pool, None)
    world = World(reading.pool)
    world.apply(reading.changes)
    assert tree_of(world.freeze()).account(QueueId(root), FlavorName(H100)).s == stored
    return int(stored)


def test_a_probe_that_goes_mad_cuts_nobody_at_once(plane: Plane) -> None:
    tell(plane, 0)
    assert quota(plane) == 64
    assert look(plane) == 1, "it falls from now on"
    assert quota(plane) == 64
    later(plane, minutes=3)
    look(plane)
    assert quota(plane) == 64, "a third of a device is none"
    tell(plane, 8)
    look(plane)
    assert plane.rows("SELECT units, peak, since FROM cluster_owned") == [(64, 64, None)]


def test_what_stays_away_falls_by_the_policy_of_its_pool_until_it_meets_what_is_told(plane: Plane) -> None:
    plane.do(
        """INSERT INTO policy (pool_id, version, spec, created_at, created_by)
           VALUES (:pool, 1000, '{"inventory_fall_permille_per_hour": 250}', now(), 'test')""",
        pool=plane.pool,
    )
    plane.do("UPDATE pool SET policy_version = 1000 WHERE id = :pool", pool=plane.pool)
    tell(plane, 3)
    look(plane)
    later(plane, hours=1)
    look(plane)
    assert quota(plane) == 48
    later(plane, hours=2)
    look(plane)
    assert quota(plane) == 24, "24 are told, and it would have fallen to 16"
    assert look(plane) == 0, "and nothing more is to be written"


def test_more_counts_as_soon_as_it_is_told_whatever_counted(plane: Plane) -> None:
    tell(plane, 16)
    assert quota(plane) == 128


@pytest.mark.planted_violation  # its nodes stay, which a removal takes along
def test_a_cluster_that_an_admin_removed_counts_no_more_at_once(plane: Plane) -> None:
    tell(plane, 0)
    look(plane)
    assert quota(plane) == 64
    plane.do("UPDATE cluster SET removed_at = now()")
    run(plane.uow, accounting.sync_accounts)
    assert quota(plane) == 0


def test_what_counts_in_another_pool_is_known_there_and_here(plane: Plane) -> None:
    other = plane.do("INSERT INTO pool (name) VALUES ('other') RETURNING id")
    tell(plane, 0)
    look(plane)
    reader = SqlSnapshotReader(plane.engine)
    for pool, since in ((other, None), (other, Horizon(1))):
        changes = reader.read(type(plane.pool)(pool), since).changes
        assert {(each.table.value, each.value) for each in changes if each.table.value.startswith("owned")} == {
            ("owned_elsewhere", 64)
        }


def test_a_gang_that_a_mad_probe_leaves_no_cluster_for_is_not_refused(plane: Plane) -> None:
    tell(plane, 0)
    with plane.uow() as uow:
        assert uow.workloads.owned_totals() == {H100: {"eu-west": 64}}


def test_a_node_that_is_told_to_be_gone_counts_no_more_at_once_and_devices_of_one_that_is_there_do(
    database: Database,
) -> None:
    plane = Plane(database)
    agent = ready(plane, "eu", node("n1"), node("n2"), node("n3"))
    plane.queue("lab")
    plane.do("INSERT INTO quota (queue_id, flavor) SELECT id, :flavor FROM queue", flavor=H100)
    look(plane)
    assert quota(plane) == 24
    agent.report(removed=["uid-n3"])
    assert quota(plane) == 16
    agent.report(node("n2", devices=0))
    look(plane)
    assert quota(plane) == 16
    agent.report(removed=["uid-n2"])
    assert quota(plane) == 16, "it was told to have none before, so it is not known whose they were"
    later(plane, hours=5)
    look(plane)
    assert quota(plane) == 8
    plane.close()


def test_what_counts_is_worked_out_while_nobody_else_changes_it(plane: Plane) -> None:
    """Else a rack that is taken out meanwhile would count again."""
    with plane.uow() as uow:
        uow.ledger.told_owned()
        with pytest.raises(OperationalError, match="lock"):
            plane.rows("SELECT FROM cluster_owned FOR UPDATE NOWAIT")
