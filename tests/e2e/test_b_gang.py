"""Story (b): a gang's whole life."""

from collections.abc import Sequence

from controlplane.contract.agent.attempts import LABEL_ATTEMPT, LABEL_WORKLOAD
from tests.e2e.checks import settled, started_whole
from tests.e2e.federation import Federation, Pod, Site, environment_of, gang
from tests.kube.client import Json
from tests.kube.objects import RACK, NodeShape

RANKS = 16


def test_a_gang_with_a_required_rack_starts_whole_rank_by_rank_finds_itself_and_settles(
    federation: Federation,
) -> None:
    """Story (b)."""
    east = federation.east
    federation.add_nodes(east, 2 * RANKS, NodeShape(topology={RACK: RANKS}))
    began = east.now()
    workload = federation.submit(gang("llama", RANKS, rack="rack"))
    federation.wait_state(workload, "running")

    pods = east.pods_of(workload)
    assert [pod.rank for pod in pods] == list(range(RANKS))
    assert {pod.phase for pod in pods} == {"Running"}
    nodes = {each["name"]: each for each in federation.nodes(cluster="east")}
    assert len({nodes[pod.node]["domains"]["rack"] for pod in pods}) == 1
    in_rack_order = sorted((pod.node for pod in pods), key=lambda name: int(name.rpartition("-")[2]))
    assert [pod.node for pod in pods] == in_rack_order
    started_whole(east.pod_history(workload, began), RANKS)
    members_find_each_other(east, workload, pods)
    usage = federation.usage("lab/nlp")
    assert (usage["used"], usage["running"], usage["pending"]) == (128, 128, 0)

    for pod in pods:
        east.kube.end_pod("nlp", pod.name)
    ended = federation.wait_state(workload, "succeeded")
    assert [(each["attempt"], each["outcome"]) for each in ended["attempts"]] == [(1, "succeeded")]
    settled(federation)


def members_find_each_other(site: Site, workload: Json, pods: Sequence[Pod]) -> None:
    """A headless Service with a stable name for each member, and the environment that launchers read."""
    (service,) = site.kube.client.list_all("Service", "nlp", labels=f"{LABEL_WORKLOAD}={workload['id']}")
    name = service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]
    for pod in pods:
        assert pod.raw["spec"]["subdomain"] == name
        assert pod.raw["metadata"]["labels"][LABEL_ATTEMPT] == "1"
        told = environment_of(pod)
        assert told["RANK"] == told["MUSTER_RANK"] == told["JAX_PROCESS_ID"] == str(pod.rank)
        assert told["WORLD_SIZE"] == told["MUSTER_WORLD_SIZE"] == str(RANKS)
        assert told["MASTER_ADDR"] == f"{pods[0].raw['spec']['hostname']}.{name}.nlp.svc"
        assert told["MASTER_PORT"].isdecimal()
        assert told["MUSTER_ATTEMPT"] == "1"

    def hosts() -> bool:
        slices = site.kube.client.list_all("EndpointSlice", "nlp", labels=f"kubernetes.io/service-name={name}")
        found = {each["hostname"]: each["targetRef"]["name"] for part in slices for each in part["endpoints"] or ()}
        return found == {pod.raw["spec"]["hostname"]: pod.name for pod in pods}

    site.kube.wait_for(hosts, "an address for each member's host name", seconds_max=20)
