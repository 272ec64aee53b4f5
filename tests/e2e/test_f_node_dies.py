"""Story (f): an exit code is not a verdict."""

from tests.e2e.federation import Federation, gang
from tests.kube.objects import RACK, NodeShape


def test_ranks_that_exit_because_a_node_died_are_no_failure_of_the_program(federation: Federation) -> None:
    """Story (f)."""
    east = federation.east
    federation.add_nodes(east, 5, NodeShape(topology={RACK: 5}))
    gang_hit = federation.submit(gang("hit", 4))
    federation.wait_state(gang_hit, "running")
    waiting = federation.submit(gang("waiting", 4))
    federation.wait_for(lambda: federation.workload(waiting)["reasons"], "a stored Reason")
    dead, *others = east.pods_of(gang_hit)

    east.kube.stop_kubelet(dead.node)
    for pod in others:
        east.kube.end_pod("nlp", pod.name, exit_code=1)
    federation.wait_state(gang_hit, "stopping")
    east.kube.mark_node(dead.node)

    federation.wait_state(gang_hit, "running")
    first, second = federation.attempts(gang_hit)
    assert first["verdict"] == "infrastructure"
    assert first["reason"]["code"] == "node-lost"
    assert second["state"] == "running"
    seen = federation.workload(gang_hit)
    assert (seen["programFailures"], seen["infrastructureEnds"]) == (0, 1)
    pods = [pod for pod in east.pods_of(gang_hit) if pod.attempt == 2]
    assert len(pods) == 4
    assert dead.node not in {pod.node for pod in pods}
    assert federation.workload(waiting)["state"] == "pending", "the older one keeps its place"
