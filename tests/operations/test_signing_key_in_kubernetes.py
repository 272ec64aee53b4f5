"""The signing key of a plane in Kubernetes, changed by the page's commands: the Secret holds what each step left."""

import os
from base64 import b64decode
from pathlib import Path

import pytest

from controlplane.install import kubernetes
from controlplane.services.signing_keys import KEY_FILE, NEXT_FILE, OLD_FILE
from tests.helm.render import PLANE_NAMESPACE, render_plane
from tests.kube.cluster import KubeCluster
from tests.kube.objects import NodeShape
from tests.operations import pages

SECRET, API = "muster-signing-key", "muster-api"
COMMON = {"apiVersion": "v1", "metadata": {"name": SECRET, "namespace": PLANE_NAMESPACE}}


@pytest.fixture
def plane(kube: KubeCluster) -> KubeCluster:
    """A cluster with the API's Deployment, whose pods KWOK plays, and the Secret as the chart's hook makes it."""
    kube.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLANE_NAMESPACE}}])
    kube.add_nodes(2, NodeShape())
    kept = {"ServiceAccount": "muster", "Deployment": API}
    kube.apply(each for each in render_plane() if kept.get(each["kind"]) == each["metadata"]["name"])
    files = kubernetes.new_signing_key()
    kube.apply([{**COMMON, "kind": "Secret", "stringData": {name: raw.decode() for name, raw in files.items()}}])
    return kube


def files_of(kube: KubeCluster) -> dict[str, bytes]:
    data = kube.client.get("Secret", SECRET, PLANE_NAMESPACE)["data"]
    return {name: b64decode(text) for name, text in data.items()}


def test_each_step_is_done_on_a_copy_and_the_secret_then_holds_that_and_no_more(
    plane: KubeCluster, tmp_path: Path
) -> None:
    _, offer, _, sign, drop, take_out, put_back, _ = pages.blocks("rotate-secrets.md")
    told = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "MUSTER_SECRETS_DIR": "keys"}
    first = files_of(plane)
    assert set(first) == {KEY_FILE}

    for step, left in (
        (offer, {KEY_FILE, NEXT_FILE}),
        (sign, {KEY_FILE, OLD_FILE}),
        (drop.splitlines()[-1], {KEY_FILE}),
    ):
        before = plane.client.get("Deployment", API, PLANE_NAMESPACE)["metadata"]["generation"]
        pages.typed(take_out, tmp_path, told)
        assert (tmp_path / "keys" / KEY_FILE).stat().st_mode & 0o077 == 0
        pages.typed(step, tmp_path, told)
        pages.typed(put_back, tmp_path, told)
        assert set(files_of(plane)) == left
        assert plane.client.get("Deployment", API, PLANE_NAMESPACE)["metadata"]["generation"] > before
        assert not (tmp_path / "keys").exists(), "a private key is left nowhere"
    assert files_of(plane)[KEY_FILE] != first[KEY_FILE]
