"""The plane's chart on a real API server: every object is taken, every pod admitted where pods must be restricted."""

import json
import os
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import pytest

from controlplane.services.signing import KEY_FILE
from tests.helm.render import PLANE_NAMESPACE, render_plane
from tests.helm.test_plane_chart import ROLES
from tests.helm.values import PLANE_EVERYTHING
from tests.kube.client import Json, KubeError
from tests.kube.cluster import KubeCluster
from tests.support.databases import ROOT

FOREIGN = {"Certificate"}
SECONDS_MAX = 60


def without_choices_of_node(manifests: list[Json]) -> list[Json]:
    """The full values choose nodes by a label that no node of the test has."""
    for each in manifests:
        each.get("spec", {}).get("template", {}).get("spec", {}).pop("nodeSelector", None)
    return manifests


@pytest.mark.parametrize("values", [None, PLANE_EVERYTHING], ids=["least", "everything"])
def test_the_whole_release_is_admitted_where_pods_must_be_restricted(
    restricted: KubeCluster, values: dict[str, object] | None
) -> None:
    manifests = [each for each in without_choices_of_node(render_plane(values)) if each["kind"] not in FOREIGN]
    scaled = {each["metadata"]["name"]: each for each in manifests if each["kind"] == "Deployment"}
    restricted.apply(manifests)

    def ready(name: str) -> int:
        status = restricted.client.get("Deployment", name, PLANE_NAMESPACE)["status"]
        return int(status.get("readyReplicas", 0))

    for role, count in ROLES.items():
        name = f"muster-{role}"
        assert name in scaled
        restricted.wait_for(lambda name=name, count=count: ready(name) >= min(count, 1), name, SECONDS_MAX)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    jobs = restricted.client.list_all("Job", PLANE_NAMESPACE)
    assert {each["metadata"]["name"] for each in jobs} == {"muster-signing-key", "muster-migration"}
    for job in jobs:
        labels = f"batch.kubernetes.io/job-name={job['metadata']['name']}"
        restricted.wait_for(
            lambda labels=labels: restricted.client.list_all("Pod", PLANE_NAMESPACE, labels),  # type: ignore[misc]  # the same
            f"a pod of {job['metadata']['name']}",
            SECONDS_MAX,
        )


def test_a_pod_that_is_less_locked_down_would_not_be_admitted(restricted: KubeCluster) -> None:
    (api,) = (
        each for each in render_plane() if each["metadata"]["name"] == "muster-api" and each["kind"] == "Deployment"
    )
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loose", "namespace": PLANE_NAMESPACE}}
    pod["spec"] = {**api["spec"]["template"]["spec"], "serviceAccountName": "default", "hostNetwork": True}
    restricted.wait_for(lambda: restricted.client.find("ServiceAccount", "default", PLANE_NAMESPACE), "the account")
    with pytest.raises(KubeError, match="violates PodSecurity"):
        restricted.client.create(pod)
    del pod["spec"]["hostNetwork"]
    restricted.client.create(pod)


def test_the_hook_makes_the_signing_key_once_and_its_account_can_read_nothing(
    restricted: KubeCluster, tmp_path: Path
) -> None:
    hooks = [each for each in render_plane() if each["metadata"]["name"] == "muster-signing-key"]
    restricted.apply([each for each in hooks if each["kind"] != "Job"])
    (job,) = (each for each in hooks if each["kind"] == "Job")
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]

    assert run_as_hook(restricted, command, tmp_path).returncode == 0
    made = restricted.client.get("Secret", "muster-signing-key", PLANE_NAMESPACE)["data"]
    assert json.loads(b64decode(made[KEY_FILE]))["crv"] == "P-256"

    second = run_as_hook(restricted, command, tmp_path)
    assert (second.returncode, "is kept" in second.stderr) == (0, True)
    assert restricted.client.get("Secret", "muster-signing-key", PLANE_NAMESPACE)["data"] == made

    client = restricted.client_of(PLANE_NAMESPACE, "muster-signing-key")
    with pytest.raises(KubeError, match="403"):
        client.get("Secret", "muster-signing-key", PLANE_NAMESPACE)
    client.close()


def test_without_the_right_the_hook_fails_and_says_why(restricted: KubeCluster, tmp_path: Path) -> None:
    command = ["python", "-m", "controlplane.install", "signing-key", "--secret", "keys"]
    account: Json = {"apiVersion": "v1", "kind": "ServiceAccount"}
    restricted.apply([{**account, "metadata": {"name": "muster-signing-key", "namespace": PLANE_NAMESPACE}}])
    done = run_as_hook(restricted, command, tmp_path)
    assert done.returncode == 1
    assert "403" in done.stderr


def run_as_hook(kube: KubeCluster, command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The hook's command as its pod would run it: the account's token, the cluster's CA, the API server's address."""
    (folder / "namespace").write_text(PLANE_NAMESPACE)
    (folder / "token").write_text(kube.service_account_token(PLANE_NAMESPACE, "muster-signing-key"))
    (folder / "ca.crt").write_bytes((kube.folder / "ca.crt").read_bytes())
    place = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(kube.port)}
    return subprocess.run(
        [sys.executable, *command[1:], "--account", str(folder)],
        env={**os.environ, **place},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
