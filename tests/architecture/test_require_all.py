"""What REQUIRE_ALL=1 and KUBE=0 do to a run, seen from outside, in a folder of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

def test_that_passes():
    pass

def test_that_skips_itself():
    pytest.skip("no luck today")

@pytest.mark.skipif(True, reason="marked so")
def test_that_is_marked():
    pass

@pytest.mark.kube
def test_on_a_real_kubernetes():
    pass
"""
WHOLE_MODULE = """
import pytest

pytest.skip("the whole module", allow_module_level=True)
"""
SETTINGS = """
[pytest]
addopts = -p tests.plugins.require_all -p no:cacheprovider -rs
markers = kube
asyncio_default_fixture_loop_scope = function
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_whole.py").write_text(WHOLE_MODULE)
    return tmp_path


def _run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "REQUIRE", "KUBE"))
    }
    command = [sys.executable, "-m", "pytest", str(folder)]
    return subprocess.run(
        command, cwd=folder, env=inherited | environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_skip_is_only_a_skip_and_says_why(folder: Path) -> None:
    run = _run(folder)
    assert run.returncode == 0
    assert "2 passed, 3 skipped" in run.stdout
    for reason in ("no luck today", "marked so", "the whole module"):
        assert reason in run.stdout


def test_a_skip_fails_where_everything_is_required(folder: Path) -> None:
    run = _run(folder, REQUIRE_ALL="1")
    assert run.returncode != 0
    assert "REQUIRE_ALL=1 and this was skipped: Skipped: the whole module" in run.stdout
    (folder / "test_whole.py").unlink()
    run = _run(folder, REQUIRE_ALL="1")
    assert run.returncode == 1
    assert "1 failed, 2 passed, 1 error" in run.stdout
    assert "REQUIRE_ALL=1 and this was skipped: Skipped: no luck today" in run.stdout


def test_kubernetes_is_left_out_aloud(folder: Path) -> None:
    run = _run(folder, KUBE="0")
    assert run.returncode == 0
    assert "1 passed, 3 skipped, 1 deselected" in run.stdout
    assert "KUBE=0: the stories on a real Kubernetes are left out" in run.stdout


def test_all_of_it_and_not_all_of_it_is_refused(folder: Path) -> None:
    run = _run(folder, KUBE="0", REQUIRE_ALL="1")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "choose one" in run.stderr
