"""After a restore: the rows speak of a past; nothing is planned or ordered before each cluster has told everything."""

from collections.abc import Iterator

import pytest

from controlplane.contract.agent.attempts import AttemptObservation
from controlplane.services import recovery, removal
from controlplane.services.attempt_batch import By
from controlplane.services.errors import Conflict, NotFound
from tests.services import agents
from tests.services.agents import Agent, node
from tests.services.planes import Plane
from tests.support.databases import Database


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    plane = Plane(database)
    yield plane
    plane.close()


@pytest.fixture
def east(plane: Plane) -> Agent:
    return agents.ready(plane, "east", *(node(f"east-{number}") for number in range(4)))


@pytest.fixture
def team(plane: Plane) -> int:
    return plane.queue("team", nominal=64)


def begin(plane: Plane) -> recovery.Recovery:
    with plane.uow() as uow:
        return recovery.begin(uow, "operator")


def status(plane: Plane) -> recovery.Recovery:
    with plane.uow() as uow:
        return recovery.status(uow)


def end(plane: Plane, *without: str) -> recovery.Recovery:
    with plane.uow() as uow:
        return recovery.end(uow, "operator", without)


def settle(plane: Plane) -> int:
    """What the sweep `end-recovery` does."""
    with plane.uow() as uow:
        return recovery.settle(uow)


def attempts_of(plane: Plane, workload: str) -> list[tuple[int, str, str | None]]:
    rows = plane.rows(
        """SELECT attempt, state, reason ->> 'code' AS code FROM attempt
           WHERE workload_id = CAST(:id AS uuid) ORDER BY attempt""",
        id=workload,
    )
    return [(row.attempt, row.state, row.code) for row in rows]


def test_a_recovering_plane_places_nothing_and_plans_again_once_every_cluster_was_heard(
    plane: Plane, east: Agent, team: int
) -> None:
    west = agents.ready(plane, "west", node("west-0"))
    epoch = east.hello().plane_epoch
    assert begin(plane).waiting == ("east", "west")
    waiting = plane.workload("waits", team, pods=1)
    agents.plan(plane)
    assert plane.state(waiting) == "pending"

    for agent in (east, west):
        assert plane.state(waiting) == "pending"
        reply = agent.hello()
        assert (reply.mode, reply.plane_epoch > epoch) == ("recovery", True)
        agent.sync(whole=True)
        agents.plan(plane)
    assert status(plane).since is None
    assert plane.state(waiting) == "reserved"
    assert east.hello().mode == "normal"


def test_what_runs_as_the_rows_say_runs_on(plane: Plane, east: Agent, team: int) -> None:
    workload, name = agents.placed(plane, east, team)
    east.run(name)
    begin(plane)
    east.hello()
    assert east.sync().directives_jws is None, "no order before everything was told"
    east.sync(attempts=[east.told(name, "started")], pods=east.pods(name, "running"), whole=True)
    assert attempts_of(plane, workload) == [(1, "running", None)]
    east.finish(name)
    assert plane.state(workload) == "succeeded"
    east.sync()
    east.bury(name)


def test_what_the_cluster_knows_nothing_of_is_over_and_is_not_made_there_again(
    plane: Plane, east: Agent, team: int
) -> None:
    """It had been ordered, and after the backup it ended: its old orders must not start it anew."""
    workload, name = agents.placed(plane, east, team)
    begin(plane)
    east.hello()
    told_before = list(east.kinds[name])
    east.sync(whole=True)
    assert attempts_of(plane, workload) == [(1, "stopping", "plane-restored")]
    east.sync()
    assert east.kinds[name][len(told_before) :] == ["tombstone"]
    east.bury(name)
    assert attempts_of(plane, workload) == [(1, "ended", "plane-restored")]
    assert plane.state(workload) == "pending"


def test_a_list_in_parts_ends_only_what_none_of_its_parts_named(plane: Plane, east: Agent, team: int) -> None:
    kept, kept_name = agents.placed(plane, east, team, pods=1, name="kept")
    east.run(kept_name)
    lost, _ = agents.placed(plane, east, team, pods=1, name="lost")
    begin(plane)
    east.hello()
    middle = {"object_id": kept_name, "pod_set": "zzz", "index": 0}
    east.sync(pods=east.pods(kept_name, "running"), part={"until": middle})
    assert status(plane).waiting == ("east",)
    east.sync(attempts=[east.told(kept_name, "started")], part={"since": middle})
    assert attempts_of(plane, kept) == [(1, "running", None)]
    assert attempts_of(plane, lost) == [(1, "stopping", "plane-restored")]
    assert status(plane).since is None


def test_a_workload_of_which_an_unknown_attempt_runs_is_not_started_a_second_time(
    plane: Plane, east: Agent, team: int
) -> None:
    """It was started after the backup. Its number is never given again, and it waits while it is told of."""
    workload = plane.workload("gang", team, pods=1)
    begin(plane)
    east.hello()
    unknown = AttemptObservation(
        object_id=f"{workload}.3", workload=workload, attempt=3, applied_gen=2, state="started"
    )
    answered = east.sync(attempts=[unknown], whole=True)
    assert [(each.object_id, each.code) for each in answered.rejected] == [(f"{workload}.3", "unknown-object")]
    assert status(plane).since is None
    agents.plan(plane)
    assert plane.state(workload) == "pending"

    plane.do(
        "UPDATE workload SET not_before = now() - interval '1 second'"
    )  # it was told of for the last time long ago
    agents.plan(plane)
    assert attempts_of(plane, workload) == [(4, "placed", None)]


def test_an_agent_keeps_nothing_back_with_numbers_that_nobody_gave_nor_what_is_not_for_its_pool(
    plane: Plane, east: Agent, team: int
) -> None:
    """Who broke into one cluster may do harm there, and not to all that waits."""
    workload = plane.workload("gang", team, pods=1)
    other = plane.workload("other", team, pods=1)
    plane.do("INSERT INTO pool (name) VALUES ('elsewhere')")
    plane.do("UPDATE workload SET pool_id = (SELECT id FROM pool WHERE name = 'elsewhere') WHERE name = 'other'")
    made_up = [
        AttemptObservation(object_id=f"{name}.{number}", workload=name, attempt=number, applied_gen=1, state="started")
        for name, number in ((workload, 2**31 - 1), (other, 2))
    ]
    answered = east.sync(attempts=made_up)
    assert {each.code for each in answered.rejected} == {"unknown-object"}
    kept = plane.rows("SELECT attempts_seen, not_before FROM workload")
    assert [(row.attempts_seen, row.not_before) for row in kept] == [(0, None)] * 2
    agents.plan(plane)
    assert attempts_of(plane, workload) == [(1, "placed", None)]


def test_objects_that_name_no_order_are_no_word_about_their_pods(plane: Plane, east: Agent, team: int) -> None:
    workload, name = agents.placed(plane, east, team)
    east.run(name)
    begin(plane)
    east.hello()
    east.sync(attempts=[east.told(name, "unknown", gen=0)], whole=True)
    assert attempts_of(plane, workload) == [(1, "running", None)]
    assert status(plane).since is None


def test_an_operator_may_go_on_without_a_cluster_that_will_not_come_but_must_name_it(plane: Plane, east: Agent) -> None:
    west = agents.ready(plane, "west", node("west-0"))
    begin(plane)
    with pytest.raises(Conflict, match="west"):
        end(plane, "east")
    with pytest.raises(NotFound, match="nowhere"):
        end(plane, "nowhere")
    assert end(plane, "east", "west").since is None
    assert west.hello().mode == "recovery", "it still gets no order before it has told everything"
    assert west.sync().directives_jws is None


def test_the_last_cluster_that_is_awaited_may_be_removed_instead(plane: Plane, east: Agent, team: int) -> None:
    """It will never come; and nobody else would end the recovery."""
    agents.ready(plane, "west", node("west-0"))
    begin(plane)
    east.hello()
    east.sync(whole=True)
    assert status(plane).waiting == ("west",)
    with plane.uow() as uow:
        removal.remove(uow, "west", "lost", By("principal:1"))
    assert settle(plane) == 1
    assert status(plane).since is None
    waiting = plane.workload("waits", team, pods=1)
    agents.plan(plane)
    assert plane.state(waiting) == "reserved"


def test_where_no_cluster_is_there_to_be_heard_a_recovery_is_over_soon(plane: Plane, team: int) -> None:
    """Else one that is accepted later would never get work, since nobody waits for its word."""
    assert begin(plane).waiting == ()
    assert settle(plane) == 1
    agents.ready(plane, "east", node("east-0"))
    waiting = plane.workload("waits", team, pods=1)
    agents.plan(plane)
    assert plane.state(waiting) == "reserved"


def test_two_last_clusters_that_are_heard_at_once_end_the_recovery_all_the_same(plane: Plane, east: Agent) -> None:
    agents.ready(plane, "west", node("west-0"))
    begin(plane)
    with plane.uow() as one, plane.uow() as other:
        for uow, name in ((one, "east"), (other, "west")):
            cluster = uow.fleet.cluster_named(name)
            assert cluster is not None
            recovery.heard_whole(uow, cluster)
    assert (status(plane).since is not None, status(plane).waiting) == (True, ()), "each saw the other one missing"
    assert settle(plane) == 1
    assert status(plane).since is None


def test_while_somebody_is_awaited_or_nothing_is_recovered_there_is_nothing_to_settle(
    plane: Plane, east: Agent
) -> None:
    assert settle(plane) == 0
    begin(plane)
    assert settle(plane) == 0
    assert status(plane).waiting == ("east",)


def test_beginning_again_starts_over_with_a_higher_epoch(plane: Plane, east: Agent) -> None:
    begin(plane)
    first = east.hello()
    east.sync(whole=True)
    begin(plane)
    second = east.hello()
    assert second.mode == "recovery"
    assert second.plane_epoch > first.plane_epoch
    assert second.incarnation != first.incarnation


def test_a_session_from_before_is_over(plane: Plane, east: Agent) -> None:
    begin(plane)
    with pytest.raises(Conflict):
        east.sync()
