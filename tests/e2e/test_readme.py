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
README = ROOT / "README.md"
SCRIPT_SECONDS = 120
DAY_SECONDS = 280
LOOK_SECONDS = 0.3
VALIDATED = re.compile(r"^helm install .*?(?<!\\)$", re.MULTILINE | re.DOTALL)


def shell_blocks(page: Path, section: str = "") -> list[str]:
    """The commands of a page, or of its section with that heading."""
    text = page.read_text(encoding="utf-8")
    if section:
        _, heading, text = text.partition(f"\n## {section}\n")
        assert heading, f"{page.name} has a section {section}"
        text = text.partition("\n## ")[0]
    return SHELL_BLOCK.findall(text)


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


def clone(folder: Path) -> dict[str, str]:
    """What a clone with its environment has, in this folder; returns the variables of a shell in it."""
    for name in (".venv", "agents", "helm"):
        (folder / name).symlink_to(ROOT / name)
    return {
        **{name: text for name, text in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}},
        "MUSTER_HOME": str(folder / "home"),
        "MUSTER_API_PORT": str(free_port()),
        "MUSTER_AGENT_PORT": str(free_port()),
    }


@pytest.mark.timeout(240)
def test_the_first_workload_of_the_readme_runs_as_it_is_written(kube: KubeCluster, tmp_path: Path) -> None:
    kube.add_nodes(4, NodeShape(gpus=8))
    environment = clone(tmp_path) | {"KUBECONFIG": str(kube.kubeconfig)}
    script = "\n".join(shell_blocks(README, "Your first workload, on your own cluster"))
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

            eventually(has_run, within=SCRIPT_SECONDS, what="the end of the README's script", pause=LOOK_SECONDS)
            words = said.read_text()
        assert "succeeded" in words, words
        listed = subprocess.run(
            [str(ROOT / ".venv/bin/muster"), "doctor", "-o", "json"],
            env=environment, capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert json.loads(listed.stdout)["healthy"] is True, listed.stdout
    finally:
        stop(Home.open(tmp_path / "home"))


@pytest.mark.timeout(340)
def test_the_first_day_of_a_platform_team_goes_as_the_readme_writes_it(
    two_kubes: tuple[KubeCluster, KubeCluster], tmp_path: Path
) -> None:
    environment = clone(tmp_path)
    for name, kube in zip(("east", "west"), two_kubes, strict=True):
        kube.add_nodes(2, NodeShape(gpus=8))
        (tmp_path / f"{name}.kubeconfig").write_bytes(kube.kubeconfig.read_bytes())
    script = "set -x\n" + "\n".join(shell_blocks(README, "A platform team's first day"))
    try:
        with typed(script, tmp_path, environment) as shell:
            code = shell.wait(DAY_SECONDS)
            words = (tmp_path / "said").read_text()
        assert code == 0, words
        why = words.partition("+ muster explain grasp\n")[2].partition("\n+ ")[0]
        assert "nvidia-h100-80gb" in why, words
        done = words.rpartition("+ muster audit list")[2]
        told = ("cluster.drain", "node.cordon", "token.revoke", "binding.delete")
        assert all(action in done for action in told), words
    finally:
        stop(Home.open(tmp_path / "home"))


@pytest.mark.timeout(180)
def test_without_kubernetes_a_gang_runs_as_the_readme_writes_it(tmp_path: Path) -> None:
    environment = clone(tmp_path)
    try:
        with typed("\n".join(shell_blocks(README, "Without Kubernetes")), tmp_path, environment) as shell:
            code = shell.wait(SCRIPT_SECONDS)
            words = (tmp_path / "said").read_text()
        assert code == 0, words
        assert "train succeeded" in words, words
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
