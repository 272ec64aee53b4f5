"""docker-compose.yml and both Dockerfiles, read: what they promise and what no build and no start would complain about.

That they work is seen by `make compose-check`, which needs a container engine.
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from agents.settings import AgentSettings
from agents.simulated import worlds
from controlplane.cli.main import app
from controlplane.settings import Settings
from tests.architecture.sources import ROOT
from tests.architecture.test_agent_subset import COPIED_FILES, COPIED_FOLDERS

FILE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
AGENTS = ("north", "south")
PLANE = ("migrate", "api", "worker", "planner", "beat", "setup")
ONCE = {"migrate", "setup"}
# What compose 1.29 (the first that waits for a service to end) and that of today both know; `version` and `name` are
# each wrong for one of them.
TOP = {"services", "volumes"}
KEYS = {
    "image", "build", "command", "environment", "ports", "volumes", "depends_on", "healthcheck", "restart", "read_only",
    "tmpfs", "cap_drop", "security_opt", "network_mode",
}  # fmt: skip
BY_VARIABLE = re.compile(r"\$\{(?P<variable>[A-Z_]+_IMAGE):-(?P<name>[a-z/-]+):(?P<tag>[^}]+)\}")
OF_THE_COMMAND_LINE = {"MUSTER_URL", "MUSTER_TOKEN_FILE"}
DOCKERFILES = {"controlplane": ROOT / "controlplane/Dockerfile", "agents": ROOT / "agents/Dockerfile"}


def test_the_plane_its_servers_and_two_clusters_are_there() -> None:
    assert set(SERVICES) == {"postgres", "redis", *PLANE, *AGENTS}


def test_old_and_new_compose_both_know_every_key() -> None:
    assert "(docker-compose 1.29 or newer takes the same file)" in (ROOT / "docker-compose.yml").read_text()
    assert {key for key in FILE if not key.startswith("x-")} == TOP
    assert {key for service in SERVICES.values() for key in service} <= KEYS


def test_every_image_can_be_named_by_a_variable_and_none_is_whatever_is_newest() -> None:
    found = {name: BY_VARIABLE.fullmatch(service["image"]) for name, service in SERVICES.items()}
    assert all(found.values()), found
    assert {match["tag"] for match in found.values() if match} == {"18", "8", "dev"}
    assert {match["variable"] for match in found.values() if match} == {
        "POSTGRES_IMAGE", "REDIS_IMAGE", "MUSTER_CONTROLPLANE_IMAGE", "MUSTER_AGENT_IMAGE",
    }  # fmt: skip
    for service in SERVICES.values():
        if build := service.get("build"):
            assert (ROOT / build["dockerfile"]).is_file()
            assert build["args"]["BASE_IMAGE"].startswith("${BASE_IMAGE:-python:3.")


def test_nothing_is_published_beyond_the_loopback() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:${MUSTER_API_PORT:-8440}:8440"]


def test_whatever_runs_on_says_when_it_is_well_and_whatever_waits_waits_for_that() -> None:
    for name, service in SERVICES.items():
        assert ("healthcheck" in service) == (name not in ONCE), name
        assert service["restart"] == ("no" if name in ONCE else "unless-stopped"), name
        for other, wanted in service.get("depends_on", {}).items():
            ends = other in ONCE
            assert wanted == {"condition": "service_completed_successfully" if ends else "service_healthy"}, name


def test_our_containers_are_locked_down() -> None:
    for name in (*PLANE, *AGENTS):
        service = SERVICES[name]
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_each_process_is_told_only_what_it_reads() -> None:
    plane = {f"MUSTER_{field}".upper() for field in Settings.model_fields} | {"DATABASE_URL", "REDIS_URL"}
    agent = {f"MUSTER_AGENT_{field}".upper() for field in AgentSettings.model_fields}
    for name in PLANE:
        assert set(SERVICES[name]["environment"]) <= plane | OF_THE_COMMAND_LINE, name
    for name in AGENTS:
        assert set(SERVICES[name]["environment"]) <= agent, name


def test_each_process_of_the_plane_starts_a_module_that_is_there() -> None:
    for name in PLANE:
        command = SERVICES[name]["command"]
        if command[0] == "python":
            assert importlib.util.find_spec(command[2]), name


def test_the_set_up_uses_commands_and_options_that_there_are() -> None:
    script = SERVICES["setup"]["command"][-1].replace("$$", "$")
    used = [line for line in re.split(r"[\n|]", script) if "muster " in f"{line.strip()} "[:7]]
    assert len(used) == 3
    for line in used:
        command: Any = get_command(app)
        words = shlex.split(line)[1:]
        while words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("-") and word != "-"} <= options, line


@pytest.mark.parametrize("cluster", AGENTS)
def test_each_agent_plays_a_cluster_of_the_world_and_speaks_to_the_plane_over_the_loopback_alone(cluster: str) -> None:
    service = SERVICES[cluster]
    world = worlds.read(ROOT / "agents/simulated/two-clusters.yaml", cluster)
    assert world.nodes
    assert service["network_mode"] == "service:api"
    assert service["environment"]["MUSTER_AGENT_CLUSTER"] == cluster
    assert service["environment"]["MUSTER_AGENT_PLANE_URL"].startswith("http://127.0.0.1:")
    assert "./agents/simulated/two-clusters.yaml:/etc/muster/world.yaml:ro" in service["volumes"]
    ports = {SERVICES[name]["environment"]["MUSTER_AGENT_HEALTH_PORT"] for name in AGENTS}
    assert len(ports) == len(AGENTS), "they share one loopback"


@pytest.mark.parametrize("file", DOCKERFILES.values(), ids=DOCKERFILES)
def test_an_image_is_small_and_runs_as_nobody(file: Path) -> None:
    text = file.read_text()
    stages = re.findall(r"^FROM (.+)$", text, re.MULTILINE)
    final = text.rpartition("\nFROM ")[2]
    assert text.count("\nARG BASE_IMAGE=python:3.") == 1
    assert stages == ["${BASE_IMAGE} AS build", "${BASE_IMAGE}"]
    assert "--require-hashes" in text
    assert "RUN" not in final, "what builds stays in the first stage"
    assert "\nUSER 65532:65532\n" in final
    assert "--mount" not in text, "older engines build without BuildKit"
    assert ":latest" not in text


def test_the_agents_image_holds_the_agent_and_the_contract_and_nothing_else_of_ours() -> None:
    copied = re.findall(r"^COPY (agents|controlplane\S*) \S+$", DOCKERFILES["agents"].read_text(), re.MULTILINE)
    assert set(copied) == {*COPIED_FILES, *COPIED_FOLDERS}
    assert "requirements/agent.lock" in DOCKERFILES["agents"].read_text()


def test_the_context_of_a_build_holds_what_is_copied_and_no_more() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {
        source
        for file in DOCKERFILES.values()
        for source in re.findall(r"^COPY (?!--from)(\S+) ", file.read_text(), re.MULTILINE)
    }
    assert {source for source in copied if source not in allowed and source.split("/")[0] not in allowed} == set()


@pytest.mark.parametrize(("must", "code"), [({}, 0), ({"REQUIRE_ALL": "1"}, 1)], ids=["may", "must"])
def test_without_a_container_engine_the_check_says_why_and_fails_only_where_nothing_may_be_left_out(
    must: dict[str, str], code: int, tmp_path: Path
) -> None:
    nothing = {name: text for name, text in os.environ.items() if name not in {"DOCKER_HOST", "REQUIRE_ALL"}}
    done = subprocess.run(
        [sys.executable, "-m", "tests.compose.check"],
        env={**nothing, **must, "PATH": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "compose-check: not run: no container engine answers" in done.stdout
