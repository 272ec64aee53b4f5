"""Every way that an Attempt goes, told by an agent, on a real database; the doctor looks at the end of each."""

import pytest

from controlplane.core.facts.queries import Scope
from controlplane.core.ids import WorkloadId
from controlplane.services import attempts, fleet
from controlplane.services.explaining import explained
from controlplane.services.live_worlds import LiveWorlds
from tests.services.agents import Agent, node, placed, plan, ready, tell_time
from tests.services.planes import H100, Plane


@pytest.fixture
def agent(plane: Plane) -> Agent:
    return ready(plane, "eu", node("n1"), node("n2"), node("n3"))


@pytest.fixture
def team(plane: Plane, agent: Agent) -> int:
    return plane.queue("team", nominal=24)


def usage(plane: Plane) -> tuple[int, int]:
    [row] = plane.rows("SELECT coalesce(sum(pending), 0) AS pending, coalesce(sum(posted), 0) AS posted FROM account")
    return int(row.pending), int(row.posted)


def held(plane: Plane) -> int:
    return int(plane.rows("SELECT coalesce(sum(held), 0) AS held FROM node_flavor")[0].held)


def attempt_of(plane: Plane, workload: str) -> tuple[str, str | None, str | None]:
    rows = plane.rows(
        "SELECT state, outcome, verdict FROM attempt WHERE workload_id = CAST(:id AS uuid) ORDER BY attempt DESC",
        id=workload,
    )
    return rows[0].state, rows[0].outcome, rows[0].verdict


def test_a_gang_is_prepared_started_run_posted_completed_and_settled(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    assert (plane.state(gang), attempt_of(plane, gang)[0], usage(plane)) == ("reserved", "placed", (16, 0))
    reply = agent.prepare(name)
    assert agent.kinds[name] == ["apply", "start"], "start is ordered in the same exchange"
    assert (attempt_of(plane, gang)[0], reply.rejected) == ("starting", [])
    agent.start(name)
    assert (plane.state(gang), attempt_of(plane, gang)[0], usage(plane)) == ("running", "running", (0, 16))
    agent.finish(name)
    assert agent.kinds[name][-1] == "tombstone"
    assert (plane.state(gang), attempt_of(plane, gang)[:2]) == ("succeeded", ("ended", "succeeded"))
    assert (usage(plane), held(plane)) == ((0, 0), 0)
    agent.bury(name)
    assert plane.rows("SELECT state FROM placement")[0].state == "gone"
    assert agent.sync().directives_jws is None, "what is gone is not told again"
    [used] = plane.rows("SELECT count(*) AS pods FROM usage_interval")
    assert used.pods == 2


def test_a_gang_that_ends_before_it_was_seen_running_has_succeeded(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.prepare(name)
    agent.finish(name)
    assert (plane.state(gang), usage(plane), held(plane)) == ("succeeded", (0, 0), 0)


def test_half_a_gang_running_is_not_running(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.prepare(name)
    agent.sync(attempts=[agent.told(name, "started")], pods=agent.pods(name, "running", [0]))
    assert (plane.state(gang), usage(plane)) == ("reserved", (16, 0))


def test_words_told_twice_or_too_late_change_nothing(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    written = plane.rows("SELECT count(*) AS n FROM audit")[0].n
    agent.sync(attempts=[agent.told(name, "prepared", gen=1)], pods=agent.pods(name, "gated"))
    agent.sync(attempts=[agent.told(name, "started")], pods=agent.pods(name, "pending"))
    agent.start(name)
    assert (plane.state(gang), attempt_of(plane, gang)[0]) == ("running", "running")
    assert {row.state for row in plane.rows("SELECT state FROM pod")} == {"running"}
    assert plane.rows("SELECT count(*) AS n FROM audit")[0].n == written


def test_a_refusal_gives_everything_back_and_leaves_the_refused_node_out(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team, pods=1)
    before = plane.rows("SELECT node_id FROM pod")[0].node_id
    refused = plane.rows("SELECT name FROM node WHERE id = :id", id=before)[0].name
    words = {"node": refused, "words": "node(s) had a taint"}
    rejection = {"code": "unmodelled-constraint", "facts": words, "nodes": [refused]}
    agent.sync(attempts=[agent.told(name, "rejected", rejection=rejection)])
    assert (plane.state(gang), attempt_of(plane, gang)[0]) == ("stopping", "stopping")
    assert usage(plane) == (8, 0), "quota comes back with the proof, not before"
    agent.bury(name)
    assert (plane.state(gang), attempt_of(plane, gang)[:2]) == ("pending", ("ended", "rejected"))
    assert (usage(plane), held(plane)) == ((0, 0), 0)
    plan(plane)
    assert plane.state(gang) == "reserved"
    after = plane.rows("SELECT node_id FROM pod ORDER BY id DESC")[0].node_id
    assert after != before


def test_foreign_pods_void_the_attempt_whole(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    rejection = {"code": "foreign-pods", "facts": {"amount": 1, "flavor": H100, "node": "n1"}, "nodes": ["n1"]}
    agent.sync(
        attempts=[agent.told(name, "rejected", rejection=rejection)],
        inventory=agent.delta(node("n1", foreign=1)),
    )
    agent.bury(name)
    assert attempt_of(plane, gang)[:2] == ("ended", "voided")
    plan(plane)
    assert plane.state(gang) == "reserved"
    names = plane.rows("SELECT n.name FROM pod p JOIN node n ON n.id = p.node_id WHERE p.attempt = 2")
    assert {row.name for row in names} == {"n2", "n3"}


def test_a_failing_program_is_given_up_once_the_evidence_window_has_passed(
    plane: Plane, agent: Agent, team: int
) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    agent.sync(pods=agent.pods(name, "failed", [1], exit_code=1))
    assert (plane.state(gang), agent.kinds[name][-1]) == ("stopping", "tombstone")
    agent.bury(name)
    assert (plane.state(gang), attempt_of(plane, gang)) == ("stopping", ("ended", "failed", None))
    assert (usage(plane), held(plane)) == ((0, 0), 0), "what is proven gone comes back at once"
    tell_time(plane, 301)
    with plane.uow() as uow:
        assert attempts.check_attempts(uow, 10) == 1
    assert (plane.state(gang), attempt_of(plane, gang)[2]) == ("failed", "program")
    [row] = plane.rows("SELECT reasons, program_failures FROM workload")
    assert (row.reasons[0]["code"], row.program_failures) == ("program-failed", 1)


def test_a_program_with_attempts_left_is_tried_again_whole(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    plane.do("UPDATE workload SET max_attempts = 2")
    agent.run(name)
    agent.sync(pods=agent.pods(name, "failed", [1], exit_code=1))
    agent.bury(name)
    tell_time(plane, 301)
    with plane.uow() as uow:
        attempts.check_attempts(uow, 10)
    assert plane.state(gang) == "pending"
    plan(plane)
    agent.sync()
    assert agent.only() == f"{gang}.2"


def test_ranks_that_exit_before_their_node_turns_not_ready_are_judged_infrastructure(
    plane: Plane, agent: Agent, team: int
) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    place = [row.node_id for row in plane.rows("SELECT node_id FROM pod ORDER BY rank")]
    dead = plane.rows("SELECT name FROM node WHERE id = :id", id=place[0])[0].name
    agent.sync(pods=agent.pods(name, "failed", [1], exit_code=1))
    agent.bury(name)
    assert plane.state(gang) == "stopping"
    agent.report(node(dead, ready=False))
    assert (plane.state(gang), attempt_of(plane, gang)[2]) == ("pending", "infrastructure")
    [row] = plane.rows("SELECT old_place, program_failures, infrastructure_ends FROM workload")
    assert (row.old_place, row.program_failures, row.infrastructure_ends) == (place, 0, 1)


def test_a_disrupted_pod_is_no_fault_of_the_program(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    agent.sync(pods=agent.pods(name, "failed", [0], exit_code=137, disrupted=True))
    agent.bury(name)
    assert (plane.state(gang), attempt_of(plane, gang)[2]) == ("pending", "infrastructure")


def test_a_card_that_falls_ill_under_a_gang_is_no_fault_of_the_program(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    where = plane.rows("SELECT n.name FROM pod p JOIN node n ON n.id = p.node_id WHERE p.rank = 0")[0].name
    agent.report(node(where, ill=1))
    agent.sync(pods=agent.pods(name, "failed", [0], exit_code=1))
    agent.bury(name)
    assert (plane.state(gang), attempt_of(plane, gang)[2]) == ("pending", "infrastructure")


def test_a_lost_node_ends_the_gang_and_keeps_only_its_own_holds(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    dead = plane.rows("SELECT n.name FROM pod p JOIN node n ON n.id = p.node_id WHERE p.rank = 0")[0].name
    agent.report(node(dead, ready=False))
    with plane.uow() as uow:
        fleet.note_listening(uow)
    plane.do("UPDATE plane SET listening_since = listening_since - interval '1 hour'")
    tell_time(plane, 30)
    with plane.uow() as uow:
        fleet.check_nodes(uow, 10)
    assert plane.state(gang) == "running", "30 s are not 60"
    tell_time(plane, 31)
    with plane.uow() as uow:
        fleet.check_nodes(uow, 10)
    assert plane.state(gang) == "stopping"
    agent.sync()
    agent.sync(
        attempts=[agent.told(name, "stopping")],
        pods=[*agent.pods(name, "gone", [1]), *agent.pods(name, "running", [0])],
    )
    assert (plane.state(gang), attempt_of(plane, gang)) == ("pending", ("ended", "lost", "infrastructure"))
    assert (usage(plane), held(plane)) == ((0, 0), 8), "the dead node's pod keeps its own hold"
    agent.report(removed=[f"uid-{dead}"])
    assert held(plane) == 0


def test_a_lost_nodes_hold_ends_when_its_pod_is_proven_gone(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    plane.do("UPDATE node SET ready = false, next_check_at = now(), ready_changed_at = now() - interval '1 hour'")
    with plane.uow() as uow:
        fleet.check_nodes(uow, 10)
    agent.sync()
    agent.sync(attempts=[agent.told(name, "stopping")])
    assert (attempt_of(plane, gang)[:2], held(plane)) == (("ended", "lost"), 16)
    agent.bury(name)
    assert held(plane) == 0


def test_a_node_object_that_vanishes_takes_its_gang_along(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    uid = plane.rows("SELECT n.uid FROM pod p JOIN node n ON n.id = p.node_id WHERE p.rank = 1")[0].uid
    agent.report(removed=[uid])
    assert plane.state(gang) == "stopping"
    assert held(plane) == 8, "with the Node object its hold goes, the other's stays"


def test_a_replacement_takes_its_rank_and_the_gang_runs_on(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    agent.sync(pods=agent.pods(name, "gated", [1], uid="second"))
    assert plane.state(gang) == "running"
    agent.sync(pods=agent.pods(name, "failed", [1], exit_code=1))
    assert plane.state(gang) == "running", "words about the pod before come too late"
    agent.sync(pods=agent.pods(name, "running", [1], uid="second"))
    agent.sync(pods=[*agent.pods(name, "succeeded", [0]), *agent.pods(name, "succeeded", [1], uid="second")])
    assert plane.state(gang) == "succeeded"


def test_a_replacement_let_go_just_before_the_stop_keeps_its_hold_until_it_is_gone(
    plane: Plane, agent: Agent, team: int
) -> None:
    """Its node was bad, so the pod counted as failed; the node came back and the agent let the next one go."""
    gang, name = placed(plane, agent, team)
    agent.run(name)
    agent.sync(pods=agent.pods(name, "failed", [1], disrupted=True))
    assert plane.state(gang) == "stopping"
    agent.sync(pods=agent.pods(name, "running", [1], uid="second"))
    agent.sync(attempts=[agent.told(name, "stopping")], pods=agent.pods(name, "gone", [0]))
    assert (plane.state(gang), held(plane)) == ("stopping", 16), "the replacement still ends"
    agent.sync(pods=agent.pods(name, "failed", [1], disrupted=True))
    assert held(plane) == 16, "words about the pod before come too late"
    agent.sync(pods=agent.pods(name, "gone", [1], uid="second"))
    assert (plane.state(gang), held(plane)) == ("pending", 0)
    assert attempt_of(plane, gang) == ("ended", "failed", "infrastructure")


def test_a_replacement_that_ends_late_does_not_excuse_the_program(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    agent.sync(pods=agent.pods(name, "failed", [1], exit_code=1))
    agent.sync(pods=agent.pods(name, "pending", [1], uid="second"))
    agent.bury(name)
    assert (plane.state(gang), held(plane)) == ("stopping", 0), "its evidence window is open"
    told = explained(plane.uow, LiveWorlds(plane.tools.reader), Scope(None), WorkloadId(gang)).text
    assert "its pods are gone. Whether its program or its machines were at fault is decided within" in told
    assert "decided when its pods are gone" not in told
    tell_time(plane, 301)
    with plane.uow() as uow:
        attempts.check_attempts(uow, 10)
    assert attempt_of(plane, gang) == ("ended", "failed", "program")
