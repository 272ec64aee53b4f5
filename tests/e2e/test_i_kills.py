"""Story (i): any process may end at any moment."""

import pytest

from tests.e2e.checks import settled, started_whole
from tests.e2e.federation import Federation, gang
from tests.kube.objects import RACK, NodeShape

RANKS = 8
BACK_SECONDS = 90.0
BEFORE_THE_PLAN = {"worker", "planner"}


@pytest.mark.parametrize("name", ["worker", "planner", "api", "agent", "valkey", "postgres"])
def test_whatever_is_killed_in_the_middle_nothing_is_lost_and_nothing_doubled(
    federation: Federation, name: str
) -> None:
    """Story (i)."""
    east = federation.east
    federation.add_nodes(east, RANKS, NodeShape(topology={RACK: RANKS}))
    began = east.now()
    workload = federation.submit(gang("llama", RANKS, rack="rack"))
    if name not in BEFORE_THE_PLAN:
        federation.wait_for(lambda: east.pods_of(workload), "the first pods")
    kill(federation, name)
    federation.wait_state(workload, "running", within=BACK_SECONDS)

    pods = east.pods_of(workload)
    started_whole(east.pod_history(workload, began), RANKS)
    assert [pod.rank for pod in pods] == list(range(RANKS))
    assert federation.usage("lab/nlp")["used"] == 8 * RANKS

    for pod in pods[: RANKS // 2]:
        east.kube.end_pod("nlp", pod.name)
    kill(federation, name)
    for pod in pods[RANKS // 2 :]:
        east.kube.end_pod("nlp", pod.name)
    ended = federation.wait_state(workload, "succeeded", within=BACK_SECONDS)
    assert [(each["attempt"], each["outcome"]) for each in ended["attempts"]] == [(1, "succeeded")]
    settled(federation)
    federation.plane.wait_ready()


def kill(federation: Federation, name: str) -> None:
    """`kill -9`; who watches over it starts it again."""
    if name == "agent":
        federation.east.kill_agent()
    else:
        federation.plane.kill(name)
