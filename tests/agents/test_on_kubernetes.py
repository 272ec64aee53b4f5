"""The agent's hands and eyes on a real Kubernetes, with the account and the rights that its chart renders."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agents import policy
from agents.cluster import ClusterUnreachable, LeadershipLost
from agents.facts import NodeFacts
from agents.identity import Keeper
from agents.inventory import Inventory
from agents.kube import manifests
from agents.kube.client import KubeClient, KubeError
from agents.kube.client import connect as connect_client
from agents.kube.cluster import KubeCluster as AgentCluster
from agents.kube.cluster import connect
from agents.kube.keys import SecretStore
from agents.kube.lease import Election
from agents.settings import AgentSettings
from controlplane.contract.agent.attempts import ANNOTATION_RANK, LABEL_ATTEMPT, LABEL_WORKLOAD, Directive
from tests.agents.bench import UID, Bench, a_start, a_tombstone, an_apply
from tests.helm.render import InstalledAgent, install_agent
from tests.kube.cluster import KubeCluster
from tests.kube.objects import NodeShape, job
from tests.kube.proxy import TcpProxy

NODES = tuple(f"node-{index}" for index in range(4))
LONG = 60.0


@pytest.fixture
def tenant(kube: KubeCluster) -> str:
    kube.add_nodes(4, NodeShape(gpus=8, topology={"topology.muster.dev/rack": 2}))
    return kube.new_namespace()


@pytest.fixture
def installed(kube: KubeCluster, tenant: str) -> InstalledAgent:
    return install_agent(kube, [tenant])


@asynccontextmanager
async def opened(installed: InstalledAgent, holder: str = "one", *, lease: bool = True) -> AsyncIterator[AgentCluster]:
    settings = AgentSettings(
        plane_url="https://plane.example", cluster="east", namespace=installed.namespace, lease=lease
    )
    rules = policy.read(installed.policy_file)
    cluster, _ = await connect(
        settings, installed.kubeconfig, holder, lambda name: policy.allows_namespace(rules, name)
    )
    try:
        await cluster.open()
        yield cluster
    finally:
        await cluster.close()


def a_gang(tenant: str, **annotations: str) -> Directive:
    template: dict[str, object] = {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "registry.example/train@sha256:" + "0" * 64}]},
    }
    return an_apply(nodes=NODES, namespace=tenant, template=template)


@pytest.mark.parametrize("kind", ["Job", "Pods"])
async def test_a_gang_is_prepared_started_finished_and_cleaned_away(
    kube: KubeCluster, installed: InstalledAgent, tenant: str, kind: str
) -> None:
    template = a_gang(tenant, **{"test.muster.dev/run-seconds": "1"}).apply
    assert template is not None
    apply = an_apply(nodes=NODES, namespace=tenant, template=dict(template.pod_sets[0].template), kind=kind)
    async with opened(installed) as cluster, Bench(cluster) as bench:
        assert cluster.view.bound == {tenant}
        bench.work.take([apply])
        await bench.until_state(apply.object_id, "prepared", LONG)
        pods = {pod.index: await _raw(kube, tenant, pod.uid) for pod in bench.pods(apply.object_id)}
        assert [pods[index]["spec"]["nodeSelector"]["kubernetes.io/hostname"] for index in range(4)] == list(NODES)
        assert [pods[index]["metadata"]["annotations"][ANNOTATION_RANK] for index in range(4)] == list("0123")
        assert {pod["spec"]["priorityClassName"] for pod in pods.values()} == {"muster-workload"}
        assert {pod["spec"]["preemptionPolicy"] for pod in pods.values()} == {"Never"}
        bench.work.take([a_start(apply)])
        pods_seen = await bench.until_phases(apply.object_id, "succeeded", 4, LONG)
        assert [pod.node for pod in pods_seen] == list(NODES)
        bench.work.take([a_tombstone(apply)])
        await bench.until_state(apply.object_id, "gone", LONG)
    for found in ("Pod", "Job", "Service"):
        assert not kube.client.list_all(found, tenant, labels=LABEL_WORKLOAD)


async def test_the_inventory_is_read_and_foreign_pods_are_subtracted_whatever_labels_they_bear(
    kube: KubeCluster, installed: InstalledAgent
) -> None:
    closed = kube.new_namespace("closed")
    theirs = job("theirs", closed, 1, gpus=3)
    theirs["spec"]["template"]["metadata"].setdefault("labels", {}).update({LABEL_WORKLOAD: UID, LABEL_ATTEMPT: "1"})
    async with opened(installed) as cluster:
        inventory = Inventory()
        kube.client.create(theirs)
        await _until(lambda: any(pod.node for pod in cluster.view.pods.values()))
        assert not list(cluster.view.pods_of(f"{UID}.1"))
        inventory.update(cluster.view, [f"{UID}.1"])
        delta = inventory.next_delta()
        assert delta is not None
        assert delta.whole
        assert {len(node.devices) for node in delta.nodes} == {8}
        assert sorted(resource.foreign for node in delta.nodes for resource in node.resources) == [0, 0, 0, 3]
        assert {node.domains["rack"] for node in delta.nodes} == {"rack-0", "rack-1"}


async def test_a_job_of_that_name_that_is_not_ours_is_left_alone(
    kube: KubeCluster, installed: InstalledAgent, tenant: str
) -> None:
    apply = a_gang(tenant)
    assert apply.apply is not None
    name = manifests.base_name(apply.apply, apply.workload, apply.attempt)
    before = kube.client.create(job(name, tenant, 1, gpus=0, gates=["example.com/wait"]))
    async with opened(installed) as cluster, Bench(cluster) as bench:
        bench.work.take([apply])
        seen = await bench.until_state(apply.object_id, "rejected", LONG)
        assert seen.rejection is not None
        assert seen.rejection.code == "name-conflict"
        bench.work.take([a_tombstone(apply)])
        await bench.until_state(apply.object_id, "gone", LONG)
    after = kube.client.get("Job", name, tenant)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]
    assert "labels" not in after["metadata"] or LABEL_WORKLOAD not in after["metadata"]["labels"]


async def test_a_namespace_that_is_not_bound_to_us_is_a_reason(kube: KubeCluster, installed: InstalledAgent) -> None:
    other = kube.new_namespace("closed")
    apply = an_apply(nodes=NODES, namespace=other)
    async with opened(installed) as cluster, Bench(cluster) as bench:
        bench.work.take([apply])
        seen = await bench.until_state(apply.object_id, "rejected", LONG)
        assert seen.rejection is not None
        assert seen.rejection.code == "cluster-without-namespace"
    assert not kube.client.list_all("Job", other)


async def test_a_quota_that_refuses_pods_is_told_in_its_own_words(
    kube: KubeCluster, installed: InstalledAgent, tenant: str
) -> None:
    quota: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "two", "namespace": tenant},
    }
    kube.client.create({**quota, "spec": {"hard": {"pods": "2"}}})
    await _until(lambda: (kube.client.get("ResourceQuota", "two", tenant).get("status") or {}).get("hard"))
    apply = a_gang(tenant)
    async with opened(installed) as cluster, Bench(cluster) as bench:
        bench.work.take([apply])
        seen = await bench.until_state(apply.object_id, "rejected", LONG)
        assert seen.rejection is not None
        assert seen.rejection.code == "refused-by-cluster"
        assert "exceeded quota: two" in str(seen.rejection.facts["words"])


async def test_a_pod_that_is_deleted_comes_back_on_its_ranks_node_though_nobody_orders_it(
    kube: KubeCluster, installed: InstalledAgent, tenant: str
) -> None:
    apply = a_gang(tenant)
    async with opened(installed) as cluster, Bench(cluster) as bench:
        bench.work.take([apply, a_start(apply)])
        await bench.until_phases(apply.object_id, "running", 4, LONG)
        lost = bench.pod(apply.object_id, 2)
        kube.client.delete("Pod", lost.name, tenant)
        await bench.until(
            lambda: (pod := bench.pod(apply.object_id, 2)).uid != lost.uid and pod.phase == "Running", within=60
        )
        assert bench.pod(apply.object_id, 2).node == "node-2"
        assert all(pod.phase != "failed" for pod in bench.pods(apply.object_id))


async def test_the_view_survives_an_api_server_that_goes_away_and_comes_back(
    kube: KubeCluster, tenant: str, kube_proxy: Callable[[int], TcpProxy]
) -> None:
    proxy = kube_proxy(int(kube.url.rpartition(":")[2]))
    installed = install_agent(kube, [tenant], url=kube.url.replace(kube.url.rpartition(":")[2], str(proxy.port)))
    async with opened(installed, lease=False) as cluster:
        proxy.cut()
        kube.add_nodes(1, prefix="late")
        kube.delete_node("node-3")
        await _until(lambda: _stale(cluster), within=60)
        assert "node-3" in cluster.view.nodes, "what is not seen is not gone"
        proxy.heal()
        await _until(lambda: _names(cluster) == {"node-0", "node-1", "node-2", "late-0"}, within=60)
        await _until(lambda: not _stale(cluster), within=60)


async def test_an_account_that_may_not_read_pods_does_not_take_the_cluster_for_empty(
    kube: KubeCluster, installed: InstalledAgent
) -> None:
    role = kube.client.get("ClusterRole", "muster-agent")
    without = [rule for rule in role["rules"] if "pods" not in rule["resources"]]
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}
    kube.client.patch("ClusterRole", "muster-agent", {"rules": [*without, nodes]})
    client = await connect_client(installed.kubeconfig)
    await _until_refused(client, "/api/v1/pods")
    await client.close()
    async with opened(installed, lease=False) as cluster:
        assert len(cluster.view.nodes) == 4
        assert not cluster.view.is_reachable
        kube.client.patch("ClusterRole", "muster-agent", {"rules": role["rules"]})
        # Soon: an API server that has just begun refuses everybody for a moment.
        await _until(lambda: not _stale(cluster), within=30)


async def test_only_one_of_two_replicas_leads_and_the_other_takes_over(
    installed: InstalledAgent,
) -> None:
    client = await connect_client(installed.kubeconfig)
    counted = _Counted(client)
    first = Election(client, installed.namespace, "first")
    second = Election(counted, installed.namespace, "second")
    try:
        await first.win()
        waiting = asyncio.create_task(second.win())
        await _until(lambda: counted.answers == 2)  # so what the first one says was understood
        assert first.is_leader()
        assert not second.is_leader()
        await first.give_up()
        await asyncio.wait_for(waiting, 10)  # a Lease that is not given up would last for fifteen
        assert second.is_leader()
        with pytest.raises(LeadershipLost):
            await asyncio.wait_for(first.keep(), 60)
    finally:
        await client.close()


async def test_the_key_is_kept_in_its_secret_before_it_is_used(kube: KubeCluster, installed: InstalledAgent) -> None:
    client = await connect_client(installed.kubeconfig)
    try:
        first = Keeper(SecretStore(client, installed.namespace))
        await first.open()
        assert kube.client.get("Secret", "muster-agent-key", installed.namespace)["data"]["identity.json"]
        again = Keeper(SecretStore(client, installed.namespace))
        await again.open()
        assert again.identity == first.identity
    finally:
        await client.close()


async def test_without_an_api_server_opening_says_so(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
        " clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: a, user: {token: t}}]}"
    )
    settings = AgentSettings(plane_url="https://plane.example", cluster="east", lease=False)
    cluster, _ = await connect(settings, path, "one", lambda _: True)
    with pytest.raises(ClusterUnreachable):
        await cluster.open()
    await cluster.close()


class _Counted(KubeClient):
    """The same client, and how many answers it had."""

    def __init__(self, client: KubeClient) -> None:
        self.__dict__.update(client.__dict__)
        self.answers = 0

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        answer = await super().request(method, path, body, query, content_type)
        self.answers += 1
        return answer


async def _raw(kube: KubeCluster, namespace: str, uid: str) -> dict[str, Any]:
    found = await asyncio.to_thread(kube.client.list_all, "Pod", namespace)
    return next(each for each in found if each["metadata"]["uid"] == uid)


async def _until(ask: Callable[[], object], within: float = 60.0) -> None:
    async with asyncio.timeout(within):
        while True:
            with contextlib.suppress(AssertionError):
                if ask():
                    return
            await asyncio.sleep(0.05)


async def _until_refused(client: KubeClient, path: str, within: float = 60.0) -> None:
    """Rights that were changed are known to the API server a moment later."""
    async with asyncio.timeout(within):
        while True:
            try:
                await client.request("GET", path)
            except KubeError:
                return
            await asyncio.sleep(0.05)


def _stale(cluster: AgentCluster) -> bool:
    cluster.look_after()
    return not cluster.view.is_reachable


def _names(cluster: AgentCluster) -> set[str]:
    cluster.look_after()
    nodes: dict[str, NodeFacts] = cluster.view.nodes
    return set(nodes)
