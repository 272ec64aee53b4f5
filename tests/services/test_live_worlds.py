"""A process's live worlds: remembered between questions, and true for each."""

from datetime import timedelta
from itertools import count

import pytest

from controlplane.core.facts.planning import Horizon, Reading
from controlplane.core.ids import PoolId, WorkloadId
from controlplane.core.index import FleetIndex
from controlplane.core.scenario import tree_of
from controlplane.services.live_worlds import LiveWorld, LiveWorlds
from controlplane.services.ports.planning import SnapshotReader
from controlplane.services.snapshots import read_whole
from tests.services.planes import Plane


class Counted:
    """A reader that notes which of its readings were whole, and fails when it is told to."""

    def __init__(self, reader: SnapshotReader) -> None:
        self.reader = reader
        self.were_whole: list[bool] = []
        self.fails = False

    def read(self, pool: PoolId, since: Horizon | None) -> Reading:
        self.were_whole.append(since is None)
        if self.fails:
            raise ConnectionError("gone")
        return self.reader.read(pool, since)


@pytest.fixture
def reader(plane: Plane) -> Counted:
    return Counted(plane.tools.reader)


def asked(worlds: LiveWorlds, pool: PoolId) -> LiveWorld:
    with worlds.of(pool) as world:
        return world


def test_each_question_is_answered_from_what_is_true_now(plane: Plane, reader: Counted) -> None:
    worlds = LiveWorlds(reader)
    lab = plane.queue("lab", nominal=32)
    plane.cluster("east", nodes=2)
    planner, numbers = plane.planner(), count()

    def changes() -> None:
        plane.workload(f"gang-{next(numbers)}", lab, pods=1)
        planner.step()
        plane.workload(f"gang-{next(numbers)}", lab, pods=9)
        plane.cluster(f"west-{next(numbers)}", nodes=1)
        plane.do("UPDATE quota SET nominal = 24")
        planner.step()

    for is_changed in (False, True, True):
        if is_changed:
            changes()
        world = asked(worlds, plane.pool)
        _, whole = read_whole(plane.tools.reader, plane.pool)
        assert world.snapshot == whole
        fresh = FleetIndex(whole.clusters, whole.nodes)
        assert world.index.free == fresh.free
        assert world.tree.account_rows() == tree_of(whole).account_rows()
    assert reader.were_whole == [True, False, False]


def test_after_a_reading_that_failed_all_is_read_anew(plane: Plane, reader: Counted) -> None:
    worlds = LiveWorlds(reader)
    lab = plane.queue("lab", nominal=32)
    asked(worlds, plane.pool)
    reader.fails = True
    with pytest.raises(ConnectionError):
        asked(worlds, plane.pool)
    reader.fails = False
    waiting = plane.workload("gang", lab, pods=1)
    assert WorkloadId(waiting) in asked(worlds, plane.pool).snapshot.waiting
    assert reader.were_whole == [True, False, True]


def test_few_worlds_are_remembered_and_none_that_nobody_asks_for(plane: Plane, reader: Counted) -> None:
    other = PoolId(plane.do("INSERT INTO pool (name) VALUES ('other') RETURNING id"))
    worlds = LiveWorlds(reader, worlds_max=1)
    for pool in (plane.pool, other, plane.pool):
        asked(worlds, pool)
    assert reader.were_whole == [True, True, True]
    reader.were_whole.clear()
    worlds = LiveWorlds(reader, idle_max=timedelta(0))
    for pool in (plane.pool, other, plane.pool):
        asked(worlds, pool)
    assert reader.were_whole == [True, True, True], "the first one was let go while the other was asked for"
