"""A started gang that the infrastructure ended goes ahead of its Queue until it runs or ends otherwise."""

import pytest

from controlplane.core.ids import WorkloadId
from controlplane.core.lifecycle import Outcome
from controlplane.services.attempt_batch import By
from controlplane.services.attempts import check_attempts, stop
from tests.services.agents import Agent, node, placed, plan, ready, tell_time
from tests.services.planes import Plane


@pytest.fixture
def agent(plane: Plane) -> Agent:
    return ready(plane, "eu", node("n1"), node("n2"))


@pytest.fixture
def team(plane: Plane, agent: Agent) -> int:
    return plane.queue("team", nominal=24)


def test_a_gang_that_lost_a_part_gets_its_place_before_newer_work_of_higher_priority(
    plane: Plane, agent: Agent, team: int
) -> None:
    """T50: its slot does not go to others while it is on its way back."""
    gang, name = placed(plane, agent, team)
    agent.run(name)
    urgent = plane.workload("urgent", team, pods=2, priority=900)
    agent.sync(pods=agent.pods(name, "failed", [0], exit_code=137, disrupted=True))
    agent.bury(name)
    plan(plane)
    assert (plane.state(gang), plane.state(urgent)) == ("reserved", "pending")


def test_whoever_was_stopped_for_another_is_no_repair(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    agent.sync(pods=agent.pods(name, "failed", [0], exit_code=137, disrupted=True))
    agent.bury(name)
    plan(plane)
    agent.sync()
    agent.run(f"{gang}.2")
    urgent = plane.workload("urgent", team, pods=2, priority=900)
    with plane.uow() as uow:
        stop(uow, uow.attempts.live_of([WorkloadId(gang)]), Outcome.PREEMPTED, None, By("test"))
    agent.sync()
    agent.bury(f"{gang}.2")
    plan(plane)
    assert (plane.state(gang), plane.state(urgent)) == ("pending", "reserved")


def test_a_program_that_failed_is_no_repair(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    plane.do("UPDATE workload SET max_attempts = 2")
    agent.run(name)
    urgent = plane.workload("urgent", team, pods=2, priority=900)
    agent.sync(pods=agent.pods(name, "failed", [1], exit_code=1))
    agent.bury(name)
    tell_time(plane, 301)
    with plane.uow() as uow:
        check_attempts(uow, 10)
    plan(plane)
    assert (plane.state(gang), plane.state(urgent)) == ("pending", "reserved")
