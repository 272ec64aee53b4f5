"""`muster status`, `logs` and `down` against a real supervisor; `up` of the whole plane has a test of its own."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from controlplane.cli import local
from controlplane.embedded.home import Home
from tests.support.planes import ready, start_tiny
from tests.support.waiting import eventually


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def plane(home: Home) -> Iterator[subprocess.Popen[str]]:
    supervisor = start_tiny(home, "steady", "short")
    yield supervisor
    supervisor.terminate()
    supervisor.communicate(timeout=20)


def muster(home: Home, *arguments: str) -> Result:
    return CliRunner().invoke(local.app, list(arguments), env={"MUSTER_HOME": str(home.path)})


def test_status_says_when_no_plane_runs_and_how_to_start_one(home: Home) -> None:
    said = muster(home, "status")
    assert said.exit_code == local.NOT_RUNNING
    assert "`muster up` starts one" in said.output
    told = muster(home, "status", "-o", "json")
    assert json.loads(told.output) == {"home": str(home.path), "running": False}


def test_status_shows_each_process_and_why_it_started_again(home: Home, plane: subprocess.Popen[str]) -> None:
    eventually(lambda: "last ended with 5" in muster(home, "status").output, within=30)
    told = json.loads(muster(home, "status", "-o", "json").output)
    assert told["running"]
    assert [each["name"] for each in told["processes"]] == ["postgres", "valkey", "steady", "short"]


def test_status_is_told_in_yaml_too(home: Home, plane: subprocess.Popen[str]) -> None:
    ready(home)
    told = yaml.safe_load(muster(home, "status", "-o", "yaml").output)
    other = json.loads(muster(home, "status", "-o", "json").output)
    assert told.keys() == other.keys()
    assert told["home"] == other["home"] == str(home.path)
    # One of its processes ends again and again, so that phases differ from look to look.
    assert [each["name"] for each in told["processes"]] == [each["name"] for each in other["processes"]]
    assert told["processes"][0]["phase"] == "ready"


def test_a_second_plane_is_refused_in_one_way(home: Home, plane: subprocess.Popen[str]) -> None:
    ready(home)
    for line in (["up"], ["up", "--detach"]):
        refused = muster(home, *line)
        assert refused.exit_code == 4
        assert refused.output.startswith(f"muster: a plane runs in {home.path} already: `muster status` shows it")


def test_names_of_processes_are_for_scripts(home: Home, plane: subprocess.Popen[str]) -> None:
    ready(home)
    assert muster(home, "status", "-o", "name").output.split() == ["postgres", "valkey", "steady", "short"]


def test_logs_show_one_process_or_all(home: Home, plane: subprocess.Popen[str]) -> None:
    eventually(lambda: muster(home, "logs", "short").output.startswith("began"), within=30)
    everything = muster(home, "logs").output
    assert "short        began" in everything
    assert "postgres     " in everything
    unknown = muster(home, "logs", "nosuch")
    assert unknown.exit_code == 3
    assert "there are: " in unknown.output


def test_down_stops_the_plane_once(home: Home) -> None:
    supervisor = start_tiny(home, "steady")
    ready(home)
    assert muster(home, "down").output == "stopped\n"
    supervisor.communicate(timeout=5)
    assert "no plane runs" in muster(home, "down").output
