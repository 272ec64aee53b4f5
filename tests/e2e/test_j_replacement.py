"""Story (j): running work heals, whoever can be reached."""

from tests.e2e.federation import Federation, Pod, Site, gang
from tests.kube.client import Json
from tests.kube.objects import RACK, NodeShape

REPLACED_SECONDS = 45  # the Job controller waits ten before it replaces a pod that failed


def replaced(site: Site, workload: Json, lost: Pod) -> bool:
    """Another pod runs as that rank, where the first one did."""
    others = [pod for pod in site.pods_of(workload) if pod.rank == lost.rank and pod.name != lost.name]
    return [(pod.node, pod.phase, pod.attempt) for pod in others] == [(lost.node, "Running", lost.attempt)]


def test_a_pod_that_is_taken_away_comes_back_as_its_rank_on_its_node_even_while_the_plane_is_dark(
    federation: Federation,
) -> None:
    """Story (j): in east with the plane's knowledge, in west without."""
    east, west = federation.sites
    for site in federation.sites:
        federation.add_nodes(site, 5, NodeShape(topology={RACK: 5}))
    gangs = [
        (site, federation.submit(gang(f"in-{site.name}", 4, rack="rack", clusters={"avoid": [other.name]})))
        for site, other in ((east, west), (west, east))
    ]
    for _, workload in gangs:
        federation.wait_state(workload, "running")
    pods = {site.name: site.pods_of(workload) for site, workload in gangs}

    west.to_plane.cut()
    for site in federation.sites:
        evicted, deleted = pods[site.name][1], pods[site.name][2]
        site.evict("nlp", evicted.name)
        site.kube.client.delete("Pod", deleted.name, "nlp")
    for site, workload in gangs:
        for lost in pods[site.name][1:3]:
            federation.wait_for(
                lambda at=(site, workload, lost): replaced(*at),  # type: ignore[misc]  # a default binds the loop's variable
                f"rank {lost.rank} in {site.name} to be back",
                REPLACED_SECONDS,
            )
    west.to_plane.heal()
    federation.wait_cluster(west, "ready")

    assert federation.usage("lab/nlp")["running"] == 64
    for site, workload in gangs:
        seen = federation.workload(workload)
        assert [(each["attempt"], each["state"]) for each in seen["attempts"]] == [(1, "running")]
        for pod in site.pods_of(workload):
            site.kube.end_pod("nlp", pod.name)
        ended = federation.wait_state(workload, "succeeded")
        assert [(each["attempt"], each["outcome"]) for each in ended["attempts"]] == [(1, "succeeded")]
