"""Break glass: `muster-agent release` lets gated pods go with no plane and no agent; nobody fights it afterwards."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from agents import policy
from agents.facts import ANNOTATION_ORDER, ANNOTATION_RAN
from agents.kube import manifests
from agents.kube.cluster import KubeCluster as AgentCluster
from agents.kube.cluster import connect
from agents.loop import wall_clock
from agents.rejections import REFUSAL_SETTLES
from agents.settings import AgentSettings
from controlplane.contract.agent.attempts import ANNOTATION_RANK, LABEL_WORKLOAD, Directive
from tests.agents.bench import NAMESPACE, UID, Bench, a_start, an_apply
from tests.agents.plane import PlaneForAgents, an_agent
from tests.helm.render import InstalledAgent, install_agent
from tests.kube.client import Json
from tests.kube.cluster import KubeCluster
from tests.kube.commands import MANAGER
from tests.kube.objects import NodeShape, job
from tests.kube.proxy import TcpProxy
from tests.support.api import serving, settings_for
from tests.support.databases import Database

NODES = tuple(f"node-{index}" for index in range(4))
OTHER_UID = "0197a000-0000-7000-8000-0000000000ff"
LONG = 30.0


@pytest.fixture
def tenant(kube: KubeCluster) -> str:
    kube.add_nodes(4, NodeShape(gpus=8))
    return kube.new_namespace()


@pytest.fixture
def installed(kube: KubeCluster, tenant: str) -> InstalledAgent:
    return install_agent(kube, [tenant])


@asynccontextmanager
async def opened(installed: InstalledAgent) -> AsyncIterator[AgentCluster]:
    settings = AgentSettings(plane_url="https://plane.example", cluster="east", lease=False)
    rules = policy.read(installed.policy_file)
    cluster, _ = await connect(settings, installed.kubeconfig, "one", lambda name: policy.allows_namespace(rules, name))
    try:
        await cluster.open()
        yield cluster
    finally:
        await cluster.close()


def a_gang(tenant: str, **others: object) -> Directive:
    template: dict[str, object] = {
        "spec": {"containers": [{"name": "main", "image": "registry.example/train@sha256:" + "0" * 64}]}
    }
    return an_apply(nodes=NODES, namespace=tenant, template=template, **others)  # type: ignore[arg-type]  # tests choose


def gangs_objects(kube: KubeCluster, apply: Directive) -> None:
    """What an agent makes of the directive, by hand: gated pods that nobody has pinned yet, and their anchor."""
    assert apply.apply is not None
    kube.apply([manifests.service(apply), manifests.job(apply, apply.apply.pod_sets[0])])


def typed(*arguments: str, kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    """`muster-agent release …`, with nothing of ours in the environment."""
    ours = {name: text for name, text in os.environ.items() if not name.startswith("MUSTER_")}
    return subprocess.run(
        [sys.executable, "-m", "agents.main", "release", *arguments, "--kubeconfig", str(kubeconfig)],
        env=ours, capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip


def pods(kube: KubeCluster, namespace: str, labels: str = LABEL_WORKLOAD) -> list[Json]:
    found = kube.client.list_all("Pod", namespace, labels=labels)
    return sorted(found, key=lambda raw: str(raw["metadata"]["name"]))


def gated(raws: list[Json]) -> list[Json]:
    return [raw for raw in raws if raw["spec"].get("schedulingGates")]


def versions(raws: list[Json]) -> dict[str, str]:
    return {raw["metadata"]["uid"]: raw["metadata"]["resourceVersion"] for raw in raws}


async def test_a_prepared_gang_runs_where_it_was_pinned_and_nothing_else_is_touched(
    kube: KubeCluster, installed: InstalledAgent, tenant: str
) -> None:
    """Twice is once, and another's gate is another's."""
    running = an_apply(
        pods=1, workload=OTHER_UID, nodes=("node-3",), namespace=tenant, name="runs", template=_small_template()
    )
    waiting = an_apply(pods=3, nodes=NODES[:3], namespace=tenant, template=_small_template())
    kube.client.create(job("theirs", tenant, 1, gpus=0, gates=["example.com/wait"]))
    async with opened(installed) as cluster, Bench(cluster) as bench:
        bench.work.take([running, a_start(running), waiting])
        await bench.until_phases(running.object_id, "running", 1, LONG)
        await bench.until_state(waiting.object_id, "prepared", LONG)
    kube.wait_for(lambda: pods(kube, tenant, "!" + LABEL_WORKLOAD), "the other Job's pod")
    before = versions(pods(kube, tenant, f"{LABEL_WORKLOAD}={OTHER_UID}"))

    done = typed("--all", kubeconfig=installed.kubeconfig)

    assert done.returncode == 0, done.stderr
    assert "let go 3 pods" in done.stdout
    mine = f"{LABEL_WORKLOAD}={UID}"
    kube.wait_for(lambda: all(raw["status"]["phase"] == "Running" for raw in pods(kube, tenant, mine)), "a gang")
    assert {raw["spec"]["nodeName"] for raw in pods(kube, tenant, mine)} == set(NODES[:3])
    assert versions(pods(kube, tenant, f"{LABEL_WORKLOAD}={OTHER_UID}")) == before
    assert len(gated(pods(kube, tenant, "!" + LABEL_WORKLOAD))) == 1

    once = versions(pods(kube, tenant))
    again = typed("--all", kubeconfig=installed.kubeconfig)
    assert (again.returncode, "let go 0 pods" in again.stdout) == (0, True), again.stderr
    assert versions(pods(kube, tenant)) == once


async def test_pods_that_nobody_had_pinned_yet_go_where_their_anchor_says(
    kube: KubeCluster, installed: InstalledAgent, tenant: str
) -> None:
    apply = a_gang(tenant)
    gangs_objects(kube, apply)
    kube.wait_for(lambda: len(gated(pods(kube, tenant))) == 4, "four gated pods")
    done = typed("--all", kubeconfig=installed.kubeconfig)
    assert done.returncode == 0, done.stdout
    kube.wait_for(lambda: all(raw["spec"].get("nodeName") for raw in pods(kube, tenant)), "four bound pods")
    ranks = {raw["metadata"]["annotations"][ANNOTATION_RANK]: raw["spec"]["nodeName"] for raw in pods(kube, tenant)}
    assert ranks == dict(zip("0123", NODES, strict=True))


def test_what_was_ordered_to_end_stays_gated_unless_that_is_asked_for(
    kube: KubeCluster, installed: InstalledAgent, tenant: str
) -> None:
    """It may run as another Attempt elsewhere by now."""
    gangs_objects(kube, a_gang(tenant))
    (anchor,) = kube.client.list_all("Service", tenant, labels=LABEL_WORKLOAD)
    note = {"metadata": {"annotations": {ANNOTATION_ORDER: "delete"}}}
    kube.client.patch("Service", anchor["metadata"]["name"], note, tenant)
    kube.wait_for(lambda: len(gated(pods(kube, tenant))) == 4, "four gated pods")
    done = typed("--all", kubeconfig=installed.kubeconfig)
    assert (done.returncode, "4 stay gated" in done.stdout) == (0, True), done.stdout
    assert len(gated(pods(kube, tenant))) == 4
    assert typed("--all", "--even-ended", kubeconfig=installed.kubeconfig).returncode == 0
    assert not gated(pods(kube, tenant))


def test_a_part_can_be_chosen_and_a_dry_run_changes_nothing(
    kube: KubeCluster, installed: InstalledAgent, tenant: str
) -> None:
    other = kube.new_namespace("other")
    admin = kube.kubeconfig
    gangs_objects(kube, a_gang(tenant, name="llama"))
    gangs_objects(kube, a_gang(tenant, name="other", workload=OTHER_UID))
    gangs_objects(kube, a_gang(other, name="llama"))
    kube.wait_for(lambda: len(gated([*pods(kube, tenant), *pods(kube, other)])) == 12, "twelve gated pods")
    before = versions([*pods(kube, tenant), *pods(kube, other)])

    tried = typed("--all", "--dry-run", kubeconfig=admin)
    assert "would let go 12 pods" in tried.stdout, tried.stderr
    assert versions([*pods(kube, tenant), *pods(kube, other)]) == before
    assert f"{tenant}/llama" in tried.stdout

    assert "let go 4 pods" in typed("--namespace", tenant, "--workload", "llama", kubeconfig=admin).stdout
    assert not gated(pods(kube, tenant, f"{LABEL_WORKLOAD}={UID}"))
    assert "let go 4 pods" in typed("--workload", OTHER_UID, kubeconfig=admin).stdout
    assert len(gated(pods(kube, other))) == 4

    closed = typed("--namespace", other, kubeconfig=installed.kubeconfig)
    assert closed.returncode == 1, "the agent's own account may do nothing there"
    assert closed.stdout.count("still gated") == 4, closed.stdout
    assert len(gated(pods(kube, other))) == 4


def test_pods_whose_anchors_nobody_can_read_stay_gated_and_are_named(
    kube: KubeCluster, installed: InstalledAgent, tenant: str
) -> None:
    """They may have been ordered to end, and nothing tells where they belong: to let them go would be a guess."""
    gangs_objects(kube, a_gang(tenant))
    kube.wait_for(lambda: len(gated(pods(kube, tenant))) == 4, "four gated pods")
    blind = an_account_that_reads_no_service(kube, tenant)

    done = typed("--namespace", tenant, kubeconfig=blind)
    assert done.returncode == 1
    assert done.stdout.count("still gated") == 4, done.stdout
    assert "services" in done.stdout
    assert len(gated(pods(kube, tenant))) == 4
    assert typed("--namespace", tenant, "--dry-run", kubeconfig=blind).returncode == 1

    assert "let go 4 pods" in typed("--namespace", tenant, "--even-ended", kubeconfig=blind).stdout
    assert not gated(pods(kube, tenant))


def an_account_that_reads_no_service(kube: KubeCluster, tenant: str) -> Path:
    """It may do with pods and nodes what release does."""
    account = {"kind": "ServiceAccount", "name": "blind", "namespace": tenant}
    rules = [{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "patch"]}]
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "blind"}
    kube.apply(
        [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "blind", "namespace": tenant}},
            {**rbac, "kind": "ClusterRole", "metadata": {"name": "blind"}, "rules": rules},
            {
                **rbac,
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "blind"},
                "roleRef": role,
                "subjects": [account],
            },
        ]
    )
    return kube.service_account_kubeconfig(tenant, "blind")


@pytest.mark.parametrize("arguments", [(), ("--all", "--namespace", "nlp"), ("--all", "--workload", "llama")])
def test_without_a_clear_selection_it_does_nothing(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = typed(*arguments, kubeconfig=tmp_path / "missing")
    assert done.returncode == 2
    assert "--all" in done.stderr


def test_without_an_account_or_an_api_server_it_says_so(tmp_path: Path) -> None:
    missing = typed("--all", kubeconfig=tmp_path / "missing")
    assert (missing.returncode, "no account" in missing.stderr) == (2, True)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
        " clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: a, user: {token: t}}]}"
    )
    dark = typed("--all", kubeconfig=kubeconfig)
    assert dark.returncode == 1
    assert "Traceback" not in dark.stderr


async def test_an_agent_that_is_there_gives_up_nothing_that_was_let_go(
    kube: KubeCluster, installed: InstalledAgent, tenant: str
) -> None:
    """One rank cannot be scheduled: else the agent would call its Attempt impossible, and the others would be ended."""
    taint = {"key": "example.com/reserved", "value": "x", "effect": "NoSchedule"}
    kube.client.patch("Node", "node-2", {"spec": {"taints": [taint]}})
    apply = a_gang(tenant)
    async with opened(installed) as cluster, Bench(cluster) as bench:
        bench.work.take([apply])
        await bench.until_state(apply.object_id, "prepared", LONG)
        done = await asyncio.to_thread(typed, "--all", kubeconfig=installed.kubeconfig)
        assert done.returncode == 0, done.stdout
        await bench.until_phases(apply.object_id, "running", 3, LONG)

        def is_refused_for_long() -> bool:
            pod = bench.pod(apply.object_id, 2)
            settled = REFUSAL_SETTLES + timedelta(seconds=1)
            return pod.unschedulable_at is not None and wall_clock() - pod.unschedulable_at > settled

        await bench.until(is_refused_for_long, LONG)
        await bench.looked_again()
        seen = bench.attempt(apply.object_id)
        assert seen is not None
        assert seen.state == "prepared"
        (anchor,) = kube.client.list_all("Service", tenant, labels=LABEL_WORKLOAD)
        assert anchor["metadata"]["annotations"][ANNOTATION_RAN] == "true"


async def test_the_plane_takes_what_was_let_go_in_the_dark_for_what_it_is_running(
    kube: KubeCluster, database: Database, valkey: str, tmp_path: Path, kube_proxy: Callable[[int], TcpProxy]
) -> None:
    """The order to start comes late, and finds its pods at work: same pods, first Attempt, charged, finished."""
    kube.add_nodes(4, NodeShape(gpus=8))
    kube.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
    kube.wait_for(lambda: kube.client.find("ServiceAccount", "default", NAMESPACE), "the account")
    installed = install_agent(kube, [NAMESPACE])
    with serving(settings_for(database, valkey, tmp_path / "secrets", poll_seconds=2)) as api:
        plane = PlaneForAgents(api, tmp_path)
        token = await plane.make_cluster()
        link = kube_proxy(int(api.agent_url.rpartition(":")[2]))
        settings = AgentSettings(plane_url=api.agent_url, cluster="east", lease=False)
        cluster, _ = await connect(settings, installed.kubeconfig, "one", lambda name: name == NAMESPACE)
        async with an_agent(plane, cluster, token, plane_url=f"http://127.0.0.1:{link.port}"):
            await plane.accept()
            await plane.until(lambda: _has_free(plane, 32))
            kube.pause(MANAGER)  # no pods yet: their order to start cannot come before the link is cut
            await plane.submit("llama", pods=4)
            await plane.plan()
            await _looked(kube, lambda: kube.client.list_all("Job", NAMESPACE))
            link.cut()
            kube.resume(MANAGER)
            await _looked(kube, lambda: len([raw for raw in gated(pods(kube, NAMESPACE)) if _pinned(raw)]) == 4)
            before = {raw["metadata"]["uid"] for raw in pods(kube, NAMESPACE)}

            done = await asyncio.to_thread(typed, "--all", kubeconfig=installed.kubeconfig)
            assert (done.returncode, "let go 4 pods" in done.stdout) == (0, True), done.stdout
            await _looked(kube, lambda: all(raw["status"]["phase"] == "Running" for raw in pods(kube, NAMESPACE)))
            assert (await plane.call("GET", "/workloads/llama"))["state"] == "reserved"

            link.heal()
            seen = await plane.until_state("llama", "running", LONG)
            assert [each["attempt"] for each in seen["attempts"]] == [1]
            assert {raw["metadata"]["uid"] for raw in pods(kube, NAMESPACE)} == before
            for raw in pods(kube, NAMESPACE):
                kube.end_pod(NAMESPACE, raw["metadata"]["name"])
            ended = await plane.until_state("llama", "succeeded", LONG)
            assert [each["outcome"] for each in ended["attempts"]] == ["succeeded"]
            await plane.until(lambda: _has_free(plane, 32), LONG)


def _small_template() -> dict[str, object]:
    return {"spec": {"containers": [{"name": "main", "image": "registry.example/train@sha256:" + "0" * 64}]}}


def _pinned(raw: Json) -> bool:
    return "kubernetes.io/hostname" in (raw["spec"].get("nodeSelector") or {})


async def _has_free(plane: PlaneForAgents, units: int) -> bool:
    flavors = (await plane.call("GET", "/clusters/east"))["flavors"]
    return bool(flavors) and flavors[0]["free"] == units


async def _looked(kube: KubeCluster, ask: Callable[[], object]) -> None:
    await asyncio.to_thread(kube.wait_for, ask, "what the test waits for", LONG)
