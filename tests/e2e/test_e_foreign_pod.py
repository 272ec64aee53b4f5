"""Story (e): somebody else was quicker."""

from tests.e2e.federation import Federation, gang
from tests.kube.objects import RACK, NodeShape, job


def test_an_attempt_whose_devices_a_foreign_pod_took_is_voided_whole_and_planned_again(
    federation: Federation,
) -> None:
    """Story (e)."""
    east = federation.east
    federation.add_nodes(east, 8, NodeShape(topology={RACK: 4}))
    began = east.now()
    east.to_plane.go_deaf()  # the plan is made, and the order is on its way
    workload = federation.submit(gang("late", 4, rack="rack"))
    federation.wait_state(workload, "reserved")
    (attempt,) = federation.attempts(workload)
    planned = [each["node"] for each in attempt["placements"][0]["nodes"]]
    thief = job("thief", "vision", 1)
    thief["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": planned[2]}
    east.kube.client.create(thief)
    east.kube.wait_for(
        lambda: [raw for raw in east.kube.client.list_all("Pod", "vision") if raw["spec"].get("nodeName")],
        "the foreign pod to be bound",
    )
    east.to_plane.heal()

    federation.wait_state(workload, "running")
    first, second = federation.attempts(workload)
    assert first["outcome"] == "voided"
    assert first["reason"]["code"] == "foreign-pods"
    assert second["state"] == "running"
    pods = east.pods_of(workload)
    assert [pod.attempt for pod in pods] == [2] * 4
    assert not {pod.node for pod in pods} & set(planned), "the other rack"
    assert all(pod.is_gated for pod in east.pod_history(workload, began) if pod.attempt == 1 and not pod.is_ending)
    assert federation.workload(workload)["programFailures"] == 0
