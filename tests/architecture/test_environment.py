"""What a newcomer meets first: the list of commands, and clear words where the machine lacks something."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

COMMANDS = ("help", "demo", "test", "up", "lint", "bench", "lock", "openapi", "compose-check", "chart-docs", "fmt")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """As much of a clone as is needed before anything is installed."""
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def _make(clone: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    make = shutil.which("make")
    assert make is not None
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTHON"))}
    return subprocess.run(
        (make, "--no-print-directory", *arguments),
        cwd=clone,
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_make_alone_lists_the_commands_and_installs_nothing(clone: Path) -> None:
    run = _make(clone)
    assert run.returncode == 0
    assert set(COMMANDS) <= {line.split()[1] for line in run.stdout.splitlines()}
    assert not (clone / ".venv").exists()


def test_a_python_that_cannot_make_environments_is_named_with_the_remedy(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "ensurepip.py").write_text("raise ImportError('Debian ships it apart')\n")
    run = _make(clone, "environment", PYTHON3=sys.executable, PYTHONPATH=str(tmp_path / "without"))
    assert run.returncode != 0
    assert "apt-get install python3-venv" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_machine_without_python_is_told_which_it_needs(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    run = _make(clone, "environment", PATH=str(tmp_path / "empty"))
    assert run.returncode != 0
    assert "needs Python 3.11 or newer" in run.stdout
