"""The test clusters themselves: what the stories rely on must be true of them, or a story proves nothing."""

import httpx
import pytest

from tests.kube.client import Json, KubeError
from tests.kube.cluster import KubeCluster
from tests.kube.objects import RACK, NodeShape, job

GATE = "test.muster.dev/wait"


def pods_of(kube: KubeCluster, namespace: str, count: int, phase: str = "") -> list[Json]:
    """The pods of a namespace once there are `count` of them, all in `phase` if one is named."""

    def ask() -> list[Json]:
        pods = kube.client.list_all("Pod", namespace)
        fits = len(pods) == count and (not phase or all(pod["status"]["phase"] == phase for pod in pods))
        return pods if fits else []

    return kube.wait_for(ask, f"{count} pods {phase}")


def a_running_pod(kube: KubeCluster, **annotations: str) -> tuple[str, str]:
    """The namespace and name of a pod that runs on the one node `node-0`."""
    kube.add_nodes(1)
    namespace = kube.new_namespace()
    kube.client.create(job("one", namespace, 1, annotations=annotations))
    (pod,) = pods_of(kube, namespace, 1, "Running")
    return namespace, pod["metadata"]["name"]


def test_gated_pods_go_exactly_where_they_are_pinned_and_end_as_told(kube: KubeCluster) -> None:
    nodes = kube.add_nodes(16, NodeShape(topology={RACK: 4}))
    namespace = kube.new_namespace()
    annotations = {"test.muster.dev/run-seconds": "0.2", "test.muster.dev/exit-code": "0"}
    kube.client.create(job("gang", namespace, 16, gates=[GATE], annotations=annotations))
    pods = pods_of(kube, namespace, 16)

    for rank, pod in enumerate(pods):
        pin: list[Json] = [
            {"op": "add", "path": "/spec/nodeSelector", "value": {"kubernetes.io/hostname": nodes[rank]}},
            {"op": "remove", "path": "/spec/schedulingGates"},
        ]
        kube.client.patch("Pod", pod["metadata"]["name"], pin, namespace, how="json")

    ended = {pod["metadata"]["name"]: pod for pod in pods_of(kube, namespace, 16, "Succeeded")}
    assert [ended[pod["metadata"]["name"]]["spec"]["nodeName"] for pod in pods] == nodes
    kube.wait_for(lambda: kube.client.get("Job", "gang", namespace)["status"].get("succeeded") == 16, "a complete Job")


def test_nodes_look_like_nvidia_nodes_in_racks(kube: KubeCluster) -> None:
    kube.add_nodes(8, NodeShape(topology={RACK: 4}))

    nodes = kube.client.list_all("Node")

    assert {node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes} == {"8"}
    assert [node["metadata"]["labels"][RACK] for node in nodes] == ["rack-0"] * 4 + ["rack-1"] * 4
    assert all(node["metadata"]["labels"]["nvidia.com/gpu.product"].startswith("NVIDIA-") for node in nodes)


def test_members_of_a_gang_have_addresses_under_their_names(kube: KubeCluster) -> None:
    kube.add_nodes(4)
    namespace = kube.new_namespace()
    labels = {"gang": "one"}
    manifest = job("gang", namespace, 4)
    manifest["spec"]["template"]["metadata"]["labels"] = labels
    manifest["spec"]["template"]["spec"]["subdomain"] = "gang"
    kube.client.create(manifest)
    spec = {"clusterIP": "None", "selector": labels, "ports": [{"port": 29500}]}
    metadata = {"name": "gang", "namespace": namespace}
    kube.client.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})

    def addresses() -> dict[str, str]:
        endpoints = [
            endpoint
            for each in kube.client.list_all("EndpointSlice", namespace)
            for endpoint in each["endpoints"] or []
            if endpoint["conditions"]["ready"]
        ]
        return {each["hostname"]: each["addresses"][0] for each in endpoints}

    kube.wait_for(lambda: len(addresses()) == 4, "four addresses")
    assert set(addresses()) == {f"gang-{rank}" for rank in range(4)}
    assert len(set(addresses().values())) == 4


def test_an_exit_code_makes_the_pod_and_its_job_fail(kube: KubeCluster) -> None:
    kube.add_nodes(1)
    namespace = kube.new_namespace()
    annotations = {"test.muster.dev/run-seconds": "0.1", "test.muster.dev/exit-code": "7"}
    kube.client.create(job("bad", namespace, 1, annotations=annotations))

    (pod,) = pods_of(kube, namespace, 1, "Failed")

    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


def test_a_pod_runs_until_it_is_told_to_end(kube: KubeCluster) -> None:
    namespace, name = a_running_pod(kube)

    kube.end_pod(namespace, name, exit_code=3)

    (pod,) = pods_of(kube, namespace, 1, "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_a_pod_can_start_before_it_is_ready(kube: KubeCluster) -> None:
    namespace, name = a_running_pod(kube, **{"test.muster.dev/ready-delay": "0.5"})

    def is_ready() -> bool:
        pod = kube.client.get("Pod", name, namespace)
        return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"]["conditions"])

    assert not is_ready()
    kube.wait_for(is_ready, "a ready pod")


def test_an_image_that_cannot_be_pulled_keeps_its_pod_waiting(kube: KubeCluster) -> None:
    kube.add_nodes(1)
    namespace = kube.new_namespace()
    kube.client.create(job("slow", namespace, 1, annotations={"test.muster.dev/pull-error": "ImagePullBackOff"}))
    (pod,) = pods_of(kube, namespace, 1)
    name = pod["metadata"]["name"]

    def waits() -> bool:
        (status,) = kube.client.get("Pod", name, namespace)["status"].get("containerStatuses", [{}])
        return bool(status) and status["state"]["waiting"]["reason"] == "ImagePullBackOff"

    kube.wait_for(waits, "a waiting container")
    kube.client.patch("Pod", name, {"metadata": {"annotations": {"test.muster.dev/pull-error": None}}}, namespace)
    pods_of(kube, namespace, 1, "Running")


def test_a_deleted_pod_says_how_it_ended_and_its_job_makes_another(kube: KubeCluster) -> None:
    kube.add_nodes(1)
    namespace = kube.new_namespace()
    manifest = job("again", namespace, 1)
    manifest["spec"] |= {"podReplacementPolicy": "Failed", "backoffLimit": 5}
    kube.client.create(manifest)
    (first,) = pods_of(kube, namespace, 1, "Running")

    kube.client.delete("Pod", first["metadata"]["name"], namespace)

    def replacement() -> bool:
        uids = {pod["metadata"]["uid"] for pod in kube.client.list_all("Pod", namespace)}
        return bool(uids) and first["metadata"]["uid"] not in uids

    kube.wait_for(replacement, "a replacement pod")


def test_nothing_moves_on_a_dead_machine_until_it_is_mended(kube: KubeCluster) -> None:
    namespace, name = a_running_pod(kube)

    kube.break_node("node-0")

    def taints() -> set[str]:
        return {taint["key"] for taint in kube.client.get("Node", "node-0")["spec"].get("taints", [])}

    kube.wait_for(lambda: "node.kubernetes.io/unreachable" in taints(), "a taint")
    kube.client.delete("Pod", name, namespace)
    assert kube.client.get("Pod", name, namespace)["metadata"]["deletionTimestamp"]

    kube.mend_node("node-0")
    kube.wait_for(lambda: not kube.client.find("Pod", name, namespace), "the pod to be gone")
    kube.wait_for(lambda: not taints(), "the taints to be gone")


def test_a_service_account_may_do_nothing_that_no_role_gives(kube: KubeCluster) -> None:
    namespace = kube.new_namespace()
    client = kube.client_of(namespace, "default")
    with pytest.raises(KubeError) as refused:
        client.list_all("Node")
    client.close()
    assert refused.value.code == httpx.codes.FORBIDDEN


def test_the_native_pod_group_api_is_served(kube: KubeCluster) -> None:
    assert kube.client.path("PodGroup", "x") == "/apis/scheduling.k8s.io/v1beta1/namespaces/x/podgroups"


def test_an_api_server_that_was_killed_comes_back_with_everything(kube: KubeCluster) -> None:
    kube.add_nodes(2)
    kube.kill()
    with pytest.raises(httpx.ConnectError):
        kube.client.list_all("Node")

    kube.restart()

    assert len(kube.client.list_all("Node")) == 2


def test_two_clusters_share_nothing(two_kubes: tuple[KubeCluster, KubeCluster]) -> None:
    first, second = two_kubes
    first.add_nodes(2)
    assert not second.client.list_all("Node")
