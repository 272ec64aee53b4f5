"""Story (g): silence of a cluster is no news of its pods."""

from datetime import datetime

from tests.e2e.checks import settled
from tests.e2e.federation import UNREACHABLE_SECONDS, Federation, Site, gang
from tests.kube.client import Json
from tests.kube.objects import RACK, NodeShape


def test_a_cluster_that_is_cut_off_keeps_its_pods_and_its_quota_and_resumes(federation: Federation) -> None:
    """Story (g); T07, T46, T58, T69."""
    east = federation.east
    federation.add_nodes(east, 4, NodeShape(topology={RACK: 4}))
    workload = federation.submit(gang("steady", 2))
    federation.wait_state(workload, "running")
    pods = [(pod.name, pod.raw["metadata"]["uid"], pod.node) for pod in east.pods_of(workload)]
    known = len(federation.audit("cluster"))

    blink(federation, east)
    assert len(federation.audit("cluster")) == known, "a connection that breaks is no loss"

    east.to_plane.cut()
    lost_at = federation.wait_cluster(east, "suspect")["lostAt"]
    other = federation.submit(gang("other", 2))
    assert federation.wait_cluster(east, "unreachable")["lostAt"] == lost_at, "the loss is noted once"
    lapsed = next(line for line in federation.audit("cluster") if line["stateTo"] == "unreachable")
    waited = datetime.fromisoformat(lapsed["at"]) - datetime.fromisoformat(lost_at)
    assert waited.total_seconds() >= UNREACHABLE_SECONDS, "grace is counted from the loss"

    east.kube.end_pod("nlp", pods[0][0])
    holds(federation, workload)
    federation.wait_for(lambda: "east is unreachable" in federation.explain(other), "why the other one waits")
    assert federation.workload(other)["state"] == "pending"
    assert [(pod.name, pod.raw["metadata"]["uid"], pod.node) for pod in east.pods_of(workload)] == pods

    east.to_plane.heal()
    assert federation.wait_cluster(east, "ready")["lostAt"] is None
    federation.wait_state(other, "running")
    holds(federation, workload)
    for name in (pods[1][0], *(pod.name for pod in east.pods_of(other))):
        east.kube.end_pod("nlp", name)
    for each in (workload, other):
        ended = federation.wait_state(each, "succeeded")
        assert [(each["attempt"], each["outcome"]) for each in ended["attempts"]] == [(1, "succeeded")]
    settled(federation)


def blink(federation: Federation, site: Site) -> None:
    """Every connection to the plane breaks, and the next one is as good as before."""
    heard = federation.cluster(site)["lastHeardAt"]
    site.to_plane.reset()
    site.to_plane.heal()
    federation.wait_for(lambda: federation.cluster(site)["lastHeardAt"] > heard, f"a word from {site.name}")


def holds(federation: Federation, workload: Json) -> None:
    """Runs in its first Attempt, and is charged for it."""
    seen = federation.workload(workload)
    assert (seen["state"], [each["state"] for each in seen["attempts"]]) == ("running", ["running"])
    assert federation.usage("lab/nlp")["running"] >= 16
