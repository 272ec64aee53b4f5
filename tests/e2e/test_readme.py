"""What the README tells a newcomer to type is typed here, on a real cluster, as it stands there."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from controlplane.embedded.control import stop
from controlplane.embedded.home import Home, free_port
from tests.helm.render import AGENT_CHART, PLANE_CHART, helm
from tests.kube.cluster import KubeCluster
from tests.kube.objects import NodeShape
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
SCRIPT_SECONDS = 120
VALIDATED = re.compile(r"^helm install .*?(?<!\\)$", re.MULTILINE | re.DOTALL)


def shell_blocks(page: Path) -> list[str]:
    return SHELL_BLOCK.findall(page.read_text(encoding="utf-8"))


@contextmanager
def typed(script: str, folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """The script in a shell of its own, with all that it leaves in the background; ended with the block."""
    with (folder / "said").open("w") as said:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    try:
        yield shell
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)
        shell.wait(10)


@pytest.mark.timeout(240)
def test_the_first_workload_of_the_readme_runs_as_it_is_written(kube_apart: KubeCluster, tmp_path: Path) -> None:
    kube = kube_apart
    kube.add_nodes(4, NodeShape(gpus=8))
    for name in (".venv", "helm"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = {
        **{name: text for name, text in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}},
        "MUSTER_HOME": str(tmp_path / "home"),
        "MUSTER_API_PORT": str(free_port()),
        "MUSTER_AGENT_PORT": str(free_port()),
        "KUBECONFIG": str(kube.kubeconfig),
    }
    script = "\n".join(shell_blocks(ROOT / "README.md"))
    try:
        with typed(script, tmp_path, environment) as shell:
            said = tmp_path / "said"

            def has_run() -> bool:
                """The user's pods would end by themselves; a played kubelet is told when."""
                for pod in kube.client.list_all("Pod", "vision"):
                    if pod["status"].get("phase") == "Running":
                        kube.end_pod("vision", pod["metadata"]["name"], 0)
                if shell.poll():
                    raise RuntimeError(said.read_text())
                return shell.poll() == 0

            eventually(has_run, within=SCRIPT_SECONDS, what="the end of the README's script")
            words = said.read_text()
        assert "succeeded" in words, words
        listed = subprocess.run(
            [str(ROOT / ".venv/bin/muster"), "doctor", "-o", "json"],
            env=environment, capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert json.loads(listed.stdout)["healthy"] is True, listed.stdout
    finally:
        stop(Home.open(tmp_path / "home"))


@pytest.mark.parametrize("chart", [AGENT_CHART, PLANE_CHART], ids=lambda chart: chart.name)
def test_the_helm_commands_of_a_chart_s_page_render(chart: Path, tmp_path: Path) -> None:
    commands = [command for block in shell_blocks(chart / "README.md") for command in VALIDATED.findall(block)]
    assert commands, "the page shows how to install"
    for command in commands:
        words = command.replace("\\\n", " ").replace("'", "").split()
        given = ["template", *words[2:3], str(chart), *words[4:]]
        done = helm(*given)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert "kind: Deployment" in done.stdout
