"""What pods say: shown with their attempt, and told to whoever asks why; what is no longer true is not said."""

import pytest

from controlplane.contract.rest.workloads import PodWords
from controlplane.core.facts.queries import Scope
from controlplane.core.ids import WorkloadId
from controlplane.services.explaining import explained
from controlplane.services.live_worlds import LiveWorlds
from tests.services.agents import Agent, node, placed, ready
from tests.services.planes import Plane

EVERYTHING = Scope()
NO_IMAGE = 'ErrImagePull: failed to resolve "registry.example/none:1": no such host'


@pytest.fixture
def agent(plane: Plane) -> Agent:
    return ready(plane, "eu", *(node(f"n{number}") for number in range(12)))


@pytest.fixture
def team(plane: Plane, agent: Agent) -> int:
    return plane.queue("team", nominal=96)


def words(plane: Plane, workload: str, attempt: int = 1) -> list[PodWords]:
    with plane.uow() as uow:
        found = uow.queries.workload(EVERYTHING, WorkloadId(workload))
    assert found is not None
    return next(each for each in found.attempts if each.attempt == attempt).words


def explanation(plane: Plane, workload: str) -> str:
    return explained(plane.uow, LiveWorlds(plane.tools.reader), EVERYTHING, WorkloadId(workload)).text


def test_a_missing_image_is_told_while_it_is_missing_and_not_after(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.prepare(name)
    agent.sync(attempts=[agent.told(name, "started")], pods=agent.pods(name, "pending", waiting=NO_IMAGE))
    assert [(each.rank, each.state, each.text) for each in words(plane, gang)] == [
        (0, "pending", NO_IMAGE), (1, "pending", NO_IMAGE),
    ]  # fmt: skip
    assert explanation(plane, gang).count(NO_IMAGE) == 1, "two ranks, one sentence"

    agent.sync(pods=agent.pods(name, "running"))

    assert words(plane, gang) == []
    assert NO_IMAGE not in explanation(plane, gang)


def test_last_words_come_with_the_end_and_stay_when_the_pod_is_gone(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    agent.sync(pods=agent.pods(name, "failed", [1], exit_code=1, reason="Error", message="step 7\nNaN in loss"))
    agent.sync(pods=agent.pods(name, "gone", [0], message="saved at step 6"))
    agent.sync(pods=agent.pods(name, "gone", [1]))

    told = words(plane, gang)

    assert {(each.rank, each.exit_code, each.text) for each in told} == {
        (1, 1, "step 7\nNaN in loss"), (0, None, "saved at step 6"),
    }  # fmt: skip
    assert {each.node for each in told} <= {f"n{number}" for number in range(12)}


def test_of_a_large_gang_eight_pods_speak_and_who_failed_goes_first(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team, pods=12)
    agent.run(name)
    agent.sync(pods=agent.pods(name, "succeeded", range(11), exit_code=0, message="done"))
    agent.sync(pods=agent.pods(name, "failed", [11], exit_code=3, message="out of memory"))

    told = words(plane, gang)

    assert [each.rank for each in told] == [11, 0, 1, 2, 3, 4, 5, 6]


def test_a_pod_that_only_completed_said_nothing(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    agent.sync(pods=agent.pods(name, "succeeded", exit_code=0, reason="Completed"))
    assert words(plane, gang) == []
