"""Story (k): a cluster may know better than its plane."""

from tests.e2e.checks import settled
from tests.e2e.federation import Federation, gang
from tests.kube.objects import RACK, NodeShape


def test_a_node_that_the_cluster_s_scheduler_refuses_is_left_out_for_a_while(federation: Federation) -> None:
    """Story (k)."""
    east, west = federation.sites
    names = federation.add_nodes(east, 3, NodeShape(topology={RACK: 3}))
    taint = {"key": "example.com/reserved", "value": "lab-7", "effect": "NoSchedule"}
    east.kube.client.patch("Node", names[1], {"spec": {"taints": [taint]}})

    workload = federation.submit(gang("refused", 3))
    federation.wait_for(lambda: [each for each in federation.attempts(workload) if each["outcome"]], "a first end")
    seen = federation.workload(workload)
    (attempt,) = seen["attempts"]
    assert (seen["state"], attempt["outcome"]) == ("pending", "rejected")
    assert attempt["reason"]["code"] == "unmodelled-constraint"
    told = federation.explain(workload)
    assert names[1] in told
    assert "untolerated taint" in told, told
    assert "east leaves out 1 of its nodes for this workload until" in told, told
    assert seen["programFailures"] == 0

    federation.add_nodes(west, 3, NodeShape(topology={RACK: 3}))
    federation.wait_state(workload, "running")
    assert {pod.attempt for pod in west.pods_of(workload)} == {2}
    assert not east.pods_of(workload)

    east.kube.client.patch("Node", names[1], {"spec": {"taints": None}})
    later = federation.submit(gang("later", 3))  # of the same shape: it waits until the refusal is forgotten
    federation.wait_state(later, "running")
    assert {(pod.attempt, pod.node) for pod in east.pods_of(later)} == {(1, name) for name in names}
    for site, each in ((west, workload), (east, later)):
        for pod in site.pods_of(each):
            site.kube.end_pod("nlp", pod.name)
        federation.wait_state(each, "succeeded")
    settled(federation)
