"""What one question may do to others that are asked of the same process: nothing that they would notice."""

import json
from pathlib import Path

import pytest

from controlplane.bootstrap import build_container
from controlplane.core.ids import FlavorName, PoolId, QueueId
from controlplane.core.scenario import tree_of
from controlplane.services.errors import TooMany
from controlplane.services.live_worlds import LiveWorlds
from controlplane.services.snapshots import read_whole
from tests.services.planes import H100, Plane
from tests.support.api import settings_for
from tests.support.databases import Database


def break_down(worlds: LiveWorlds, pool: PoolId, queue: QueueId) -> None:
    with worlds.of(pool) as world:
        world.tree.charge(queue, FlavorName(H100), 8)
        raise ZeroDivisionError


def test_a_question_that_broke_down_half_way_leaves_nothing_behind(plane: Plane) -> None:
    worlds = LiveWorlds(plane.tools.reader, questions_max=1)
    lab = QueueId(plane.queue("lab", nominal=32))
    plane.cluster("east", nodes=2)
    with pytest.raises(ZeroDivisionError):
        break_down(worlds, plane.pool, lab)
    with worlds.of(plane.pool) as world:
        assert world.tree.account_rows() == tree_of(world.snapshot).account_rows()


def test_more_questions_than_a_process_answers_at_once_are_told_to_come_again(plane: Plane) -> None:
    other = PoolId(plane.do("INSERT INTO pool (name) VALUES ('other') RETURNING id"))
    worlds = LiveWorlds(plane.tools.reader, questions_max=1)
    with worlds.of(plane.pool), pytest.raises(TooMany), worlds.of(other):
        pytest.fail("it was answered")
    with worlds.of(plane.pool) as world:
        assert world.snapshot.pool == plane.pool, "the place is free again"


def test_who_reads_a_pool_whole_takes_no_news_from_those_who_read_it_warm(
    plane: Plane, database: Database, valkey: str, tmp_path: Path
) -> None:
    container = build_container(settings_for(database, valkey, tmp_path))
    lab = plane.queue("lab", nominal=32)
    with container.live_worlds.of(plane.pool) as before:
        assert not before.snapshot.spent
    budget = {"flavor": H100, "deviceHours": 10, "per": "month", "hard": True}
    plane.do(
        """UPDATE queue SET budgets = sent.spec -> 'budgets', spec = sent.spec
           FROM (SELECT CAST(:spec AS jsonb)) AS sent (spec) WHERE id = :lab""",
        spec=json.dumps({"budgets": [budget]}), lab=lab,
    )  # fmt: skip
    _, whole = read_whole(container.snapshot_reader, plane.pool)
    with container.live_worlds.of(plane.pool) as after:
        assert after.snapshot.spent == whole.spent != ()
    container.engine.dispose()
