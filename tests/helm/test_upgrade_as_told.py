"""The line of the operations page that upgrades a release, typed on one whose chart knew fewer values."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.render import AGENT_CHART, CHARTS, NAMESPACE, PLANE_CHART, helm
from tests.kube.cluster import KubeCluster
from tests.operations import pages

PAGE = CHARTS / "operations" / "upgrade.md"
TOLD = re.compile(r"`(helm upgrade [^`]+)`")
NEW = "flowControl"


def told() -> dict[str, str]:
    """The page's two lines, by release."""
    return {line.split()[2]: line for line in TOLD.findall(PAGE.read_text())}


@pytest.fixture
def older_chart(tmp_path: Path) -> Path:
    """The agent's chart before it knew one group of values."""
    chart = tmp_path / "older"
    shutil.copytree(AGENT_CHART, chart)
    (chart / "templates" / "flowcontrol.yaml").unlink()
    for name in ("values.yaml", "values.schema.json"):
        known: dict[str, Any] = yaml.safe_load((chart / name).read_text())
        for place in (known, known.get("properties", {})):
            place.pop(NEW, None)
        if "required" in known:
            known["required"] = [each for each in known["required"] if each != NEW]
        (chart / name).write_text(json.dumps(known))  # which is YAML, too
    return chart


def test_values_that_the_release_did_not_know_get_their_defaults_and_what_was_chosen_stays(
    kube: KubeCluster, older_chart: Path, tmp_path: Path
) -> None:
    where = ("--namespace", NAMESPACE, "--create-namespace", "--kubeconfig", str(kube.kubeconfig))
    chosen = ("--set", "plane.url=https://agents.muster.example.com", "--set", "cluster.name=eu", "--set", "replicas=1")
    done = helm("install", "muster-agent", str(older_chart), *chosen, *where, seconds_max=60)
    assert done.returncode == 0, done.stderr
    assert not kube.client.find("FlowSchema", "muster-agent")

    (tmp_path / "helm").symlink_to(CHARTS)
    pages.typed(told()["muster-agent"], tmp_path, {**os.environ, "KUBECONFIG": str(kube.kubeconfig)})

    assert kube.client.find("FlowSchema", "muster-agent")
    assert kube.client.get("Deployment", "muster-agent", NAMESPACE)["spec"]["replicas"] == 1


def test_helm_waits_for_the_migration_of_an_upgrade() -> None:
    values = yaml.safe_load((PLANE_CHART / "values.yaml").read_text())
    waits = re.search(r" --timeout (\d+)m\b", told()["muster"])
    assert waits, told()["muster"]
    assert int(waits[1]) * 60 >= values["migration"]["seconds"]
