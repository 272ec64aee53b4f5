"""A release of the plane's chart from install to uninstall, by helm itself on a real API server.

KWOK runs no container, so the test plays the two hooks' pods: what the first would do it does, and then both end.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.helm.render import AGENT_CHART, PLANE_CHART, PLANE_NAMESPACE, helm
from tests.helm.test_plane_on_a_real_cluster import run_as_hook
from tests.kube.client import Json
from tests.kube.cluster import KubeCluster
from tests.support.waiting import eventually

HELM_SECONDS = 110
SETTINGS = ("--set", "agents.url=https://agents.muster.example.com", "--namespace", PLANE_NAMESPACE)
KEPT = "muster-signing-key"


def play(kube: KubeCluster, folder: Path) -> list[str]:
    """Do what the pods of hooks that run now would do, and end them well; their components."""
    ended = []
    for pod in kube.client.list_all("Pod", PLANE_NAMESPACE, "app.kubernetes.io/component in (signing-key, migration)"):
        name, component = str(pod["metadata"]["name"]), str(pod["metadata"]["labels"]["app.kubernetes.io/component"])
        if pod.get("status", {}).get("phase") != "Running":
            continue
        command = pod["spec"]["containers"][0]["command"]
        # A right that was given just now may not be known yet: the pod would fail, and its Job start another.
        if component == "migration" or run_as_hook(kube, command, folder).returncode == 0:
            kube.end_pod(PLANE_NAMESPACE, name)
            ended.append(component)
    return ended


@contextmanager
def helm_at_work(kube: KubeCluster, *arguments: str) -> Iterator[Callable[[], CompletedProcess[str] | None]]:
    """Helm in a thread, as its hooks wait for the test; the value asks what it has said, None while it runs."""
    said: list[CompletedProcess[str]] = []
    command = (*arguments, "--kubeconfig", str(kube.kubeconfig))
    thread = threading.Thread(target=lambda: said.append(helm(*command, seconds_max=HELM_SECONDS)), daemon=True)
    thread.start()
    yield lambda: said[0] if said else None
    thread.join(HELM_SECONDS)


def carried_out(kube: KubeCluster, folder: Path, *arguments: str) -> list[str]:
    """Run helm to its end with the test as its hooks' pods; the hooks in the order in which they ran."""
    ran: list[str] = []
    with helm_at_work(kube, *arguments) as said:

        def step() -> bool:
            ran.extend(play(kube, folder))
            return said() is not None

        eventually(step, within=HELM_SECONDS, what="helm's end", pause=0.3)
        done = said()
    assert done is not None
    assert done.returncode == 0, done.stdout + done.stderr
    return ran


def names(kube: KubeCluster, kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in kube.client.list_all(kind, PLANE_NAMESPACE)}


@pytest.mark.timeout(400)
def test_a_release_is_installed_upgraded_and_taken_away_and_its_key_stays(
    restricted: KubeCluster, tmp_path: Path
) -> None:
    kube = restricted
    ran = carried_out(kube, tmp_path, "install", "muster", str(PLANE_CHART), *SETTINGS)
    assert ran == ["signing-key", "migration"]
    assert names(kube, "Deployment") == {"muster-api", "muster-worker", "muster-planner", "muster-beat"}
    assert names(kube, "Job") == set(), "what a hook made goes with the hook"
    assert names(kube, "Role") == set()
    key = kube.client.get("Secret", KEPT, PLANE_NAMESPACE)["data"]

    ran = carried_out(kube, tmp_path, "upgrade", "muster", str(PLANE_CHART), *SETTINGS, "--set", "logLevel=DEBUG")
    assert ran == ["signing-key", "migration"]
    assert kube.client.get("Secret", KEPT, PLANE_NAMESPACE)["data"] == key
    assert level(kube) == "DEBUG"

    done = helm(
        "uninstall", "muster", "--namespace", PLANE_NAMESPACE, "--kubeconfig", str(kube.kubeconfig), seconds_max=60
    )
    assert done.returncode == 0, done.stderr
    eventually(lambda: names(kube, "Deployment") == set(), within=30, what="no Deployment")
    assert kube.client.get("Secret", KEPT, PLANE_NAMESPACE)["data"] == key


def test_the_agent_s_chart_is_installed_and_taken_away(restricted: KubeCluster) -> None:
    kube = restricted
    where = ("--namespace", PLANE_NAMESPACE, "--kubeconfig", str(kube.kubeconfig))
    told = ("--set", "plane.url=https://agents.muster.example.com", "--set", "cluster.name=eu")
    done = helm("install", "muster-agent", str(AGENT_CHART), *told, *where, seconds_max=60)
    assert done.returncode == 0, done.stderr

    def ready() -> int:
        status = kube.client.get("Deployment", "muster-agent", PLANE_NAMESPACE)["status"]
        return int(status.get("readyReplicas", 0))

    kube.wait_for(lambda: ready() == 2, "two agents")
    second = helm("install", "another", str(AGENT_CHART), *told, *where, seconds_max=60)
    assert second.returncode != 0, "two agents in one cluster would be two masters"
    assert "muster-agent" in second.stderr
    assert helm("uninstall", "muster-agent", *where, seconds_max=60).returncode == 0
    eventually(lambda: not names(kube, "Deployment"), within=30, what="no Deployment")


def level(kube: KubeCluster) -> str:
    deployment: Json = kube.client.get("Deployment", "muster-api", PLANE_NAMESPACE)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return str(next(each["value"] for each in container["env"] if each["name"] == "MUSTER_LOG_LEVEL"))
