"""Story (d): what was borrowed is given back."""

from tests.e2e.federation import Federation, gang
from tests.kube.objects import RACK, NodeShape


def test_when_the_owners_work_comes_the_newest_borrower_leaves_whole(federation: Federation) -> None:
    """Story (d)."""
    east = federation.east
    federation.add_nodes(east, 6, NodeShape(topology={RACK: 6}))
    federation.set_quotas({"nlp": 16, "vision": 32})
    gangs = []
    for name in ("own", "older", "newest"):  # one after the other: of one cycle none is newer than another
        gangs.append(federation.submit(gang(name, 2)))
        federation.wait_state(gangs[-1], "running")
    own, older, newest = gangs
    assert federation.usage("lab/nlp")["borrowed"] == 32
    left = {pod.node for pod in east.pods_of(newest)}

    asker = federation.submit(gang("asker", 2, queue="lab/vision"))
    federation.wait_state(asker, "running")

    assert {pod.node for pod in east.pods_of(asker)} == left
    assert federation.workload(own)["state"] == federation.workload(older)["state"] == "running"
    returned = federation.wait_state(newest, "pending")
    assert [(each["attempt"], each["outcome"]) for each in returned["attempts"]] == [(1, "preempted")]
    assert returned["programFailures"] == 0
    assert not east.pods_of(newest)
    assert (federation.usage("lab/nlp")["borrowed"], federation.usage("lab/vision")["used"]) == (16, 16)

    for pod in east.pods_of(asker):
        east.kube.end_pod("vision", pod.name)
    federation.wait_state(newest, "running")
    assert [pod.attempt for pod in east.pods_of(newest)] == [2, 2]
