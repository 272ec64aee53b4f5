"""Story (h): an order to end outlives the silence of whoever must carry it out."""

from tests.e2e.checks import settled
from tests.e2e.federation import Federation, gang
from tests.kube.objects import RACK, NodeShape


def test_what_is_cancelled_while_its_cluster_is_unreachable_is_deleted_on_reconnect(federation: Federation) -> None:
    """Story (h); T09."""
    east = federation.east
    federation.add_nodes(east, 3, NodeShape(topology={RACK: 3}))
    workload, kept = (federation.submit(gang(name, pods)) for name, pods in (("unwanted", 2), ("wanted", 1)))
    for each in (workload, kept):
        federation.wait_state(each, "running")
    (bystander,) = east.pods_of(kept)

    east.to_plane.cut()
    east.kill_agent()  # the next one knows nothing but what the cluster remembers
    federation.wait_cluster(east, "unreachable")
    federation.cancel(workload)
    assert federation.workload(workload)["state"] == "cancelling"
    assert "east is unreachable" in federation.explain(workload)
    assert federation.usage("lab/nlp")["used"] == 24, "nothing is free before it is proven gone"
    assert [pod.phase for pod in east.pods_of(workload)] == ["Running"] * 2

    east.to_plane.heal()
    ended = federation.wait_state(workload, "cancelled")
    assert [(each["attempt"], each["outcome"]) for each in ended["attempts"]] == [(1, "cancelled")]
    assert not east.pods_of(workload)
    assert federation.usage("lab/nlp")["used"] == 8
    federation.wait_for(lambda: not east.objects_of(workload), "no object of what was cancelled")
    (untouched,) = east.pods_of(kept)
    assert untouched.raw["metadata"]["uid"] == bystander.raw["metadata"]["uid"]

    east.kube.end_pod("nlp", untouched.name)
    federation.wait_state(kept, "succeeded")
    settled(federation)
