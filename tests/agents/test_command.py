"""The command `muster-agent`: what it refuses, how it ends, and that a simulated cluster costs little."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from agents.settings import AgentSettings, is_loopback
from tests.support.waiting import eventually

PROGRAM = (sys.executable, "-m", "agents.main", "run")
WORLD = """
kind: Queue
metadata: {name: research}
spec: {namespace: nlp}
---
kind: Cluster
metadata: {name: east}
spec:
  nodes:
    - {count: 4, devices: {flavor: nvidia-h100-80gb, count: 8}, topology: [{level: rack, of: 2}]}
---
kind: Faults
metadata: {name: east}
spec: {seed: 3, randomNodeFailures: 1, within: 0.2, lasting: 0.2, schedule: [{do: cut-link, after: 0.1, lasting: 0.1}]}
"""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    path = tmp_path / "world.yaml"
    path.write_text(WORLD)
    return path


def _run(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    ours = {name: text for name, text in os.environ.items() if not name.startswith("MUSTER_")}
    return subprocess.run(
        [*PROGRAM, *arguments], env=ours | environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "plane_url"),
        (["--plane-url", "http://plane.example", "--cluster", "east"], "https"),
        (["--plane-url", "nonsense", "--cluster", "east"], "https"),
        (["--plane-url", "https://plane.example", "--cluster", "east", "--kubeconfig", "missing"], "no account"),
        (["--plane-url", "https://plane.example", "--cluster", "east", "--policy-file", "missing"], "missing"),
        (["--plane-url", "https://p.example", "--cluster", "east", "--simulated", "missing"], "--state-dir"),
    ],
)
def test_settings_that_cannot_be_used_are_named_and_the_exit_code_says_so(arguments: list[str], words: str) -> None:
    done = _run(arguments)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert not any(ours in done.stderr for ours in ("Traceback", "Value error"))


def test_a_world_without_this_cluster_is_named(world: Path, tmp_path: Path) -> None:
    done = _run(
        [
            "--simulated",
            str(world),
            "--state-dir",
            str(tmp_path),
            "--plane-url",
            "https://p.example",
            "--cluster",
            "west",
        ]
    )
    assert done.returncode == 2
    assert "no Cluster west" in done.stderr


def test_a_kept_identity_that_is_not_ours_is_not_overwritten(world: Path, tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text("somebody else's")
    arguments = ["--simulated", str(world), "--state-dir", str(tmp_path)]
    done = _run([*arguments, "--plane-url", "https://p.example", "--cluster", "east"])
    assert done.returncode == 3
    assert (tmp_path / "identity.json").read_text() == "somebody else's"


def test_every_setting_comes_from_the_environment() -> None:
    given = {
        "MUSTER_AGENT_PLANE_URL": "https://plane.example",
        "MUSTER_AGENT_CLUSTER": "east",
        "MUSTER_AGENT_TOKEN_FILE": "token",
        "MUSTER_AGENT_CA_FILE": "ca.crt",
        "MUSTER_AGENT_NAMESPACE": "ours",
        "MUSTER_AGENT_POLICY_FILE": "policy.yaml",
        "MUSTER_AGENT_STATE_DIR": "state",
        "MUSTER_AGENT_INSTANCE": "one",
        "MUSTER_AGENT_LEASE": "false",
        "MUSTER_AGENT_SPEED": "10",
        "MUSTER_AGENT_CONTROL_PORT": "0",
        "MUSTER_AGENT_HEALTH_PORT": "0",
        "MUSTER_AGENT_FULL_LIST_SECONDS": "60",
        "MUSTER_AGENT_BACKOFF_SECONDS_MAX": "5",
        "MUSTER_AGENT_LOG_LEVEL": "DEBUG",
    }
    script = "import agents.settings as s; print(s.AgentSettings().model_dump_json())"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    read = json.loads(done.stdout)
    assert {f"MUSTER_AGENT_{name.upper()}" for name in read} == set(given)
    assert (read["lease"], read["speed"], read["control_port"], read["log_level"]) == (False, 10.0, 0, "DEBUG")


@pytest.mark.parametrize(
    ("host", "is_ours"), [("localhost", True), ("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("a.b", False)]
)
def test_plain_http_is_for_loopback_only(host: str, is_ours: bool) -> None:
    assert is_loopback(host) is is_ours


def test_a_simulated_agent_takes_faults_by_word_and_ends_clean_on_sigterm(world: Path, tmp_path: Path) -> None:
    """It has no plane to talk to, and goes on trying."""
    state = tmp_path / "state"
    arguments = ["--simulated", str(world), "--state-dir", str(state), "--control-port", "0", "--cluster", "east"]
    process = subprocess.Popen(
        [*PROGRAM, *arguments, "--plane-url", "http://127.0.0.1:1"], stderr=subprocess.PIPE, text=True
    )
    try:
        port_file = state / "control-port"
        port = int(eventually(lambda: port_file.exists() and port_file.read_text(), 20))
        with _connected(port) as line:
            for word, answer in (
                ({"do": "fail-node", "node": "east-1"}, "node east-1 is dead"),
                ({"do": "cut-link", "lasting": 5}, "cut"),
                ({"do": "heal-link"}, "up"),
                ({"do": "restore-node", "node": "east-1"}, "back"),
                ({"do": "nonsense"}, "do"),
            ):
                line.write(json.dumps(word) + "\n")
                line.flush()
                assert answer in line.readline()
        assert (state / "identity.json").stat().st_mode & 0o777 == 0o600
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    events = [json.loads(line)["event"] for line in errors.splitlines()]
    assert events[-1] == "stopped"
    assert "cluster opened" in events


def test_an_agent_that_is_stopped_before_its_cluster_answers_leaves_nothing_open(tmp_path: Path) -> None:
    kubeconfig, said = tmp_path / "kubeconfig", tmp_path / "stderr"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
        " clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: a, user: {token: t}}]}"
    )
    arguments = ["--kubeconfig", str(kubeconfig), "--cluster", "east", "--plane-url", "http://127.0.0.1:1"]
    with said.open("w") as stderr:
        process = subprocess.Popen([*PROGRAM, *arguments], stderr=stderr)
        try:
            eventually(lambda: "cluster unreachable" in said.read_text(), 20)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
    assert json.loads(said.read_text().splitlines()[-1])["event"] == "stopped", said.read_text()
    assert "Unclosed" not in said.read_text()


@contextmanager
def _connected(port: int) -> Iterator[IO[str]]:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    with connection, connection.makefile("rw") as line:
        yield line


def test_a_simulated_cluster_needs_no_kubernetes_client() -> None:
    script = "import sys, agents.main, agents.simulated.faults; print('kubernetes_asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_a_setting_that_is_given_as_a_flag_wins() -> None:
    settings = AgentSettings(plane_url="https://plane.example", cluster="east", speed=3)
    assert settings.speed == 3
    assert settings.namespace == "muster-system"
