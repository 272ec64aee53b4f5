"""An agent's image holds `agents` and the agent contract and nothing else of ours: from just that it must start."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

COPIED_FILES = ("controlplane/__init__.py", "controlplane/contract/__init__.py")
COPIED_FOLDERS = ("agents", "controlplane/contract/agent")
# Distributions of the plane that an agent's image does not install.
ABSENT = ("alembic", "celery", "fastapi", "kombu", "psycopg", "redis", "sqlalchemy", "starlette", "typer", "uvicorn")

# -I and -S keep the editable install out: without its .pth file only `tree` can answer for our packages.
PROGRAM = """
import sys

tree, packages, absent = sys.argv[1], sys.argv[2], frozenset(sys.argv[3].split())


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in absent:
            raise ModuleNotFoundError(f"an agent's image does not hold {name}")


sys.meta_path.insert(0, Absent())
sys.path[:0] = [tree, packages]
import agents.main

ours = sorted(name for name in sys.modules if name.split(".")[0] in {"agents", "controlplane"})
assert all(sys.modules[name].__file__.startswith(tree) for name in ours), ours
print(*ours)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in COPIED_FOLDERS:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in COPIED_FILES:
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_the_agent_starts_from_its_own_files_and_the_agent_contract(tree: Path) -> None:
    command = (sys.executable, "-I", "-S", "-c", PROGRAM, str(tree), sysconfig.get_path("purelib"), " ".join(ABSENT))
    run = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    loaded = set(run.stdout.split())
    assert "agents.main" in loaded
    assert {name for name in loaded if name.startswith("controlplane.contract.rest")} == set()
