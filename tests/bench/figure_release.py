"""Break glass: how long `muster-agent release --all` takes on a real API server, as the agent's own account.

Measured over fewer pods than the target speaks of, and stretched in proportion: each pod is one patch, and a list page
holds 500. The pods fit on no node, so that what the scheduler does with them afterwards costs the same everywhere.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.figures import Result, at_most
from tests.helm.render import install_agent
from tests.kube.client import Json
from tests.kube.cluster import KubeCluster

PODS, GROUPS, WANTED = 1_000, 4, 10_000
NAMESPACE = "nlp"
TARGET = at_most(300)
BUILD_SECONDS, RELEASE_SECONDS = 180, 300


def release() -> list[Result]:
    """Seconds from the command's start to its end, stretched to 10,000 pods."""
    with tempfile.TemporaryDirectory() as folder, KubeCluster("east", Path(folder) / "kube") as kube:
        kube.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
        kube.wait_for(lambda: kube.client.find("ServiceAccount", "default", NAMESPACE), "the account")
        installed = install_agent(kube, [NAMESPACE])
        kube.apply(_gated(number) for number in range(GROUPS))
        kube.wait_for(lambda: _count(kube) == PODS, f"{PODS} gated pods", BUILD_SECONDS)
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "agents.main", "release", "--all", "--kubeconfig", str(installed.kubeconfig)],
            env=dict(os.environ), capture_output=True, text=True, check=False, timeout=RELEASE_SECONDS,
        )  # fmt: skip
        seconds = time.monotonic() - began
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"let go {PODS} pods" in done.stdout, done.stdout
    parameters: dict[str, object] = {"pods": PODS, "stretched_to": WANTED}
    return [
        Result("release", round(seconds * WANTED / PODS, 1), "s", TARGET, parameters),
        Result("release/measured", round(seconds, 2), "s", None, parameters),
    ]


def _count(kube: KubeCluster) -> int:
    return sum(bool(raw["spec"].get("schedulingGates")) for raw in kube.client.list_all("Pod", NAMESPACE))


def _gated(number: int) -> Json:
    """A Job of gated pods with no anchor: they are let go as they stand."""
    container = {"name": "main", "image": "registry.example/train", "resources": {"requests": {"cpu": "1"}}}
    labels = {
        "muster.dev/workload-uid": f"0197a000-0000-7000-8000-{number:012d}",
        "muster.dev/attempt": "1",
        "muster.dev/workload": f"gang-{number}",
    }
    spec = {
        "restartPolicy": "Never",
        "schedulingGates": [{"name": "muster.dev/placement"}],
        "nodeSelector": {"kubernetes.io/hostname": "nowhere"},
        "containers": [container],
    }
    count = PODS // GROUPS
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"gang-{number}", "namespace": NAMESPACE},
        "spec": {
            "completions": count,
            "parallelism": count,
            "completionMode": "Indexed",
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
