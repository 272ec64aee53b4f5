"""Sessions, sequence numbers, cursors and digests: what makes an exchange safe to repeat, to lose and to mix up."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from controlplane.contract.agent.sync import ListPart, PodPlace
from controlplane.core.ids import WorkloadId
from controlplane.core.lifecycle import Outcome
from controlplane.services import sync
from controlplane.services.attempt_batch import By
from controlplane.services.attempts import stop
from controlplane.services.errors import Conflict
from tests.builders.rows import Rows
from tests.services.agents import Agent, directives, node, placed, plan, ready, tools
from tests.services.planes import Plane
from tests.support.databases import Database


@pytest.fixture
def agent(plane: Plane) -> Agent:
    return ready(plane, "eu", node("n1"), node("n2"), node("n3"), node("n4"))


@pytest.fixture
def team(plane: Plane, agent: Agent) -> int:
    return plane.queue("team", nominal=32)


def states(plane: Plane) -> set[str]:
    return {row.state for row in plane.rows("SELECT state FROM attempt")}


def test_a_newer_session_ends_the_older_one(plane: Plane, agent: Agent, team: int) -> None:
    _, name = placed(plane, agent, team)
    older = agent.request(attempts=[agent.told(name, "prepared")], pods=agent.pods(name, "gated"))
    first = agent.epoch
    agent.hello()
    assert agent.epoch == first + 1
    with pytest.raises(Conflict) as refusal:
        sync.exchange(tools(plane), agent.known(), older)
    assert refusal.value.slug == "session-superseded"
    assert states(plane) == {"placed"}, "what a superseded session says changes nothing"


def test_a_namespace_that_a_session_brings_wakes_the_planner_and_one_that_was_there_does_not(
    plane: Plane, agent: Agent
) -> None:
    def version() -> int:
        return int(plane.rows("SELECT dirty_version FROM pool")[0].dirty_version)

    before = version()
    agent.hello()
    assert version() == before
    agent.hello(namespaces=["team", "other"])
    assert version() == before + 1


def test_the_same_request_gets_the_same_answer_and_is_taken_once(plane: Plane, agent: Agent, team: int) -> None:
    _, name = placed(plane, agent, team)
    request = agent.request(attempts=[agent.told(name, "prepared")], pods=agent.pods(name, "gated"))
    first = sync.exchange(tools(plane), agent.known(), request)
    audited = plane.rows("SELECT count(*) AS n FROM audit")[0].n
    again = sync.exchange(tools(plane), agent.known(), request)
    assert again == first
    assert [each.kind for each in directives(again)] == ["start"]
    assert plane.rows("SELECT count(*) AS n FROM audit")[0].n == audited


def test_a_request_that_was_overtaken_is_refused(plane: Plane, agent: Agent) -> None:
    late = agent.request()
    agent.sync()
    with pytest.raises(Conflict):
        sync.exchange(tools(plane), agent.known(), late)


def test_a_request_that_waits_gives_way_to_the_next_one(plane: Plane, agent: Agent) -> None:
    taken = sync.take(tools(plane), agent.known(), agent.request())
    assert sync.answer(tools(plane), taken, is_last=False) is None
    agent.sync()
    with pytest.raises(Conflict):
        sync.answer(tools(plane), taken, is_last=True)


def test_a_request_that_waits_is_answered_when_something_is_to_be_told(plane: Plane, agent: Agent, team: int) -> None:
    taken = sync.take(tools(plane), agent.known(), agent.request())
    assert sync.answer(tools(plane), taken, is_last=False) is None
    plane.workload("gang", team, pods=1)
    plan(plane)
    reply = sync.answer(tools(plane), taken, is_last=False)
    assert reply is not None
    assert [each.kind for each in directives(reply)] == ["apply"]


def test_many_at_once_with_one_number_are_taken_once(plane: Plane, agent: Agent, team: int) -> None:
    _, name = placed(plane, agent, team)
    request = agent.request(attempts=[agent.told(name, "prepared")], pods=agent.pods(name, "gated"))
    with ThreadPoolExecutor(6) as many:
        replies = list(many.map(lambda _: sync.exchange(tools(plane), agent.known(), request), range(12)))
    assert all(reply == replies[0] for reply in replies)
    starts = plane.rows("SELECT count(*) AS n FROM directive WHERE kind = 'start'")[0].n
    assert starts == 1


def test_directives_come_in_order_once_and_again_from_the_beginning(plane: Plane, agent: Agent, team: int) -> None:
    for number in range(3):
        plane.workload(f"gang-{number}", team, pods=1)
    plan(plane)
    told = directives(agent.sync())
    assert [each.number for each in told] == [1, 2, 3]
    assert agent.sync().directives_jws is None
    agent.cursor = 0
    assert [each.number for each in directives(agent.sync())] == [1, 2, 3]


def test_long_streams_come_in_chunks(plane: Plane, agent: Agent, team: int) -> None:
    for number in range(205):
        plane.workload(f"gang-{number}", team, pods=1, devices=0)
    plan(plane)
    first = agent.sync()
    assert (len(directives(first)), first.more, first.cursor) == (200, True, 200)
    rest = agent.sync()
    assert (len(directives(rest)), rest.more, rest.cursor) == (5, False, 205)


def test_large_orders_come_at_most_a_mebibyte_at_once(plane: Plane, agent: Agent, team: int) -> None:
    for number in range(3):
        plane.workload(f"gang-{number}", team, pods=1)
    plane.do("UPDATE workload SET spec = jsonb_set(spec, '{podSets,0,template,note}', to_jsonb(repeat('x', 600000)))")
    plan(plane)
    sizes = []
    for _ in range(3):
        reply = agent.sync()
        sizes.append((len(directives(reply)), reply.more))
    assert sizes == [(1, True), (1, True), (1, False)]


def test_a_batch_is_signed_for_this_cluster_and_plane_epoch(plane: Plane, agent: Agent, team: int) -> None:
    plane.workload("gang", team, pods=1)
    plan(plane)
    reply = agent.sync()
    assert reply.directives_jws is not None
    assert [(each.gen, each.kind) for each in agent.wanted.values()] == [(1, "apply")]
    body = agent.wanted[agent.only()].apply
    assert body is not None
    assert (body.world_size, body.namespace, body.pins[0].resource, body.pins[0].amount) == (
        1,
        "team",
        "nvidia.com/gpu",
        8,
    )


def test_a_tombstone_takes_the_place_of_all_that_was_ordered_before(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.prepare(name)
    with plane.uow() as uow:
        stop(uow, uow.attempts.live_of([WorkloadId(gang)]), Outcome.PREEMPTED, None, By("test"))
    agent.cursor = 0
    assert [each.kind for each in directives(agent.sync())] == ["tombstone"]
    agent.cursor = 0
    assert [each.kind for each in directives(agent.sync())] == ["tombstone"], "until it is gone"
    agent.bury(name)
    agent.cursor = 0
    assert agent.sync().directives_jws is None
    assert plane.state(gang) == "pending", "whoever was preempted waits again"


def test_an_agent_back_after_hours_hears_no_deletion(plane: Plane, agent: Agent, team: int) -> None:
    """T45: a reconnect never deletes without a fresh order, not even one that lists nothing of ours."""
    gang, name = placed(plane, agent, team)
    agent.run(name)
    plane.do("UPDATE cluster SET last_heard_at = last_heard_at - interval '5 hours'")
    agent.hello()
    told = directives(agent.sync())
    assert [each.kind for each in told] == ["apply", "start"]
    assert plane.state(gang) == "running"


def test_objects_of_an_older_attempt_that_reappear_get_a_tombstone_and_change_nothing(
    plane: Plane, agent: Agent, team: int
) -> None:
    """T94: the stale copy is deleted, and it neither blocks nor stands for the new one."""
    gang, name = placed(plane, agent, team)
    agent.run(name)
    seen = agent.pods(name, "running")
    with plane.uow() as uow:
        stop(uow, uow.attempts.live_of([WorkloadId(gang)]), Outcome.PREEMPTED, None, By("test"))
    agent.sync()
    agent.bury(name)
    plan(plane)
    agent.sync()
    assert agent.only() == f"{gang}.2"
    reply = agent.sync(attempts=[agent.told(name, "started", gen=2)], pods=seen)
    assert [(each.object_id, each.code) for each in reply.rejected] == [(name, "stale-attempt")]
    assert agent.kinds[name][-1] == "tombstone"
    assert plane.state(gang) == "reserved"
    agent.bury(name)
    agent.run(f"{gang}.2")
    assert plane.state(gang) == "running"


def test_a_requeued_gangs_nodes_belong_to_the_attempt_that_had_them(plane: Plane, agent: Agent, team: int) -> None:
    """T99: the old attempt's pods keep their nodes, the new one's are its own, whatever is said of the old."""
    _, name = placed(plane, agent, team)
    agent.run(name)
    late = agent.pods(name, "failed", [0])
    agent.sync(pods=agent.pods(name, "failed", [1], disrupted=True))
    agent.bury(name)
    plane.do("UPDATE node SET cordoned_by_us = 'test' WHERE id IN (SELECT node_id FROM pod)")
    plane.wake()
    plan(plane)
    agent.sync()
    agent.sync(pods=late)
    rows = plane.rows("SELECT attempt, node_id, state FROM pod ORDER BY attempt, rank")
    old, new = [r for r in rows if r.attempt == 1], [r for r in rows if r.attempt == 2]
    assert {r.node_id for r in old}.isdisjoint({r.node_id for r in new})
    assert {r.state for r in new} == {"placed"}


def test_running_with_nothing_behind_it_is_found_out_by_a_whole_list(plane: Plane, agent: Agent, team: int) -> None:
    """T35, T06: a gang whose objects are gone does not run for ever and does not keep its quota; it is tried again."""
    gang, name = placed(plane, agent, team)
    agent.run(name)
    agent.sync()
    assert plane.state(gang) == "running", "a request that names nothing says nothing"
    agent.sync(whole=True)
    assert (plane.state(gang), agent.kinds[name][-1]) == ("stopping", "tombstone")
    agent.bury(name)
    assert plane.state(gang) == "pending"
    [row] = plane.rows("SELECT reasons FROM workload")
    assert "vanished from eu" in str(row.reasons), "the reason names the cluster"
    assert plane.rows("SELECT coalesce(sum(pending + posted), 0) AS used FROM account")[0].used == 0


def test_a_part_of_a_list_says_nothing_of_what_lies_outside_of_it(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    between = PodPlace(object_id=name, pod_set=agent.pods(name, "running")[0].pod_set, index=1)
    agent.sync(part=ListPart(until=PodPlace(object_id=name)))
    agent.sync(part=ListPart(until=between), pods=agent.pods(name, "running", [0]))
    agent.sync(part=ListPart(since=between), pods=agent.pods(name, "running", [1]))
    assert plane.state(gang) == "running"
    agent.sync(part=ListPart(since=between))
    assert plane.state(gang) == "stopping"
    assert {(row.rank, row.state) for row in plane.rows("SELECT rank, state FROM pod")} == {(0, "running"), (1, "gone")}


def test_a_copy_that_ended_out_of_step_is_no_success(plane: Plane, agent: Agent, team: int) -> None:
    """T11: only every pod's own success is one; a gang that is merely gone is tried again."""
    gang, name = placed(plane, agent, team)
    agent.run(name)
    agent.sync(pods=[*agent.pods(name, "succeeded", [0]), *agent.pods(name, "gone", [1])])
    assert plane.state(gang) == "stopping"
    agent.bury(name)
    assert plane.state(gang) == "pending"


def test_an_agent_that_knows_other_objects_is_asked_for_everything(plane: Plane, agent: Agent, team: int) -> None:
    placed(plane, agent, team)
    assert not agent.sync(desired_digest=agent.digest()).want_full_list
    agent.gens.clear()  # its cluster's memory was restored from before
    reply = agent.sync(desired_digest=agent.digest())
    assert reply.want_full_list
    assert [each.kind for each in directives(reply)] == ["apply"], "and is told everything again"
    agent.gens.clear()
    assert not agent.sync(desired_digest=agent.digest()).want_full_list, "but not in every breath"


def test_a_cluster_whose_api_server_is_away_says_nothing_of_its_pods(plane: Plane, agent: Agent, team: int) -> None:
    """T58: one failed call is no news; what was last seen stands."""
    gang, name = placed(plane, agent, team)
    agent.run(name)
    agent.sync(kube_reachable=False, whole=True, pods=agent.pods(name, "failed"))
    assert plane.state(gang) == "running"


def test_directives_that_a_crash_left_without_a_number_are_numbered_by_the_sweep(
    plane: Plane, agent: Agent, team: int, database: Database
) -> None:
    plane.workload("gang", team, pods=1)
    plan(plane)
    rows = Rows(database)
    rows.as_superuser("DELETE FROM directive_number")
    rows.dispose()
    assert agent.sync().directives_jws is None
    with plane.uow() as uow:
        assert sync.number_left_over(uow, 10) == 1
    with plane.uow() as uow:
        assert sync.number_left_over(uow, 10) == 0
    assert [each.kind for each in directives(agent.sync())] == ["apply"]


def test_finished_work_is_not_charged_after_a_restart_of_everything(plane: Plane, agent: Agent, team: int) -> None:
    """T05: two finished gangs, everything starts anew: usage is zero and nothing is placed again."""
    for number in range(2):
        _, name = placed(plane, agent, team, name=f"gang-{number}")
        agent.run(name)
        agent.finish(name)
        agent.bury(name)
    plan(plane)  # a planner that reads the world whole
    agent.hello()
    assert agent.sync().directives_jws is None
    assert plane.rows("SELECT coalesce(sum(pending + posted), 0) AS used FROM account")[0].used == 0
    assert plane.rows("SELECT count(*) AS n FROM attempt")[0].n == 2


def test_words_that_are_none_are_answered_one_by_one(plane: Plane, agent: Agent, team: int) -> None:
    _, name = placed(plane, agent, team)
    never = "00000000-0000-4000-8000-000000000000.1"
    spoiled = agent.told(name, "prepared").model_copy(update={"workload": "not-a-uuid", "object_id": "not-a-uuid.1"})
    reply = agent.sync(
        attempts=[agent.told(name, "prepared"), agent.told(never, "started", gen=1), spoiled],
        pods=agent.pods(name, "gated"),
    )
    assert {each.object_id: each.code for each in reply.rejected} == {
        never: "unknown-object",
        "not-a-uuid.1": "invalid",
    }
    assert states(plane) == {"starting"}, "what was right was taken"
