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
    quota = f"lab/nlp may use 16 more {H100} now, and 24 are asked for (32 of 48 in use at lab)."
    assert [each["sentence"] for each in federation.workload(second)["reasons"]] == [quota]
    assert told.startswith("second of lab/nlp has waited for ")
    assert told.endswith(
        f"It asks for 3 pods with 24 devices in all. It does not start now because: {quota}"
        f" east has room for 0 of 3 pods of 8 {H100} each in its best rack (none)."
        f" west owns 16 {H100} in all, and 24 are asked for."
    )
    assert not [pod for site in federation.sites for pod in site.pods_of(second)]

    for pod in east.pods_of(first):
        east.kube.end_pod("nlp", pod.name)
    federation.wait_state(first, "succeeded")
    federation.wait_state(second, "running")
    assert len(east.pods_of(second)) == 3
