"""Story (c): who waits learns why, and starts when there is room."""

from tests.e2e.federation import H100, Federation, gang
from tests.kube.objects import RACK, NodeShape, job


def test_a_gang_that_fits_nowhere_says_why_and_starts_when_another_ends(federation: Federation) -> None:
    """Story (c)."""
    east = federation.east
    federation.add_nodes(east, 4, NodeShape(topology={RACK: 4}))
    federation.add_nodes(federation.west, 2, NodeShape(topology={RACK: 2}))
    manifest = job("first", "nlp", 4)  # as people have it already
    manifest["metadata"] |= {
        "labels": {"muster.dev/queue": "lab.nlp"},
        "annotations": {"muster.dev/topology-required": "rack", "muster.dev/flavors": H100},
    }
    first = federation.submit(manifest)
    federation.wait_state(first, "running")

    second = federation.submit(gang("second", 3, rack="rack"))
    federation.wait_for(lambda: federation.workload(second)["reasons"], "a stored Reason")
    told = federation.explain(second)
    assert federation.workload(second)["state"] == "pending"
    assert "second" in told
    assert "rack" in told
    for site in federation.sites:
        assert site.name in told, told
    (reason, *_) = federation.workload(second)["reasons"]
    assert reason["facts"], "a Reason has numbers"
    assert not [pod for site in federation.sites for pod in site.pods_of(second)]

    for pod in east.pods_of(first):
        east.kube.end_pod("nlp", pod.name)
    federation.wait_state(first, "succeeded")
    federation.wait_state(second, "running")
    assert len(east.pods_of(second)) == 3
