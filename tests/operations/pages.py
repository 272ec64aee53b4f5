"""The operations pages as an operator reads them: their shell blocks, typed in order into a shell of the test's."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from controlplane.embedded.postgres import Postgres

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "helm" / "operations"
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
SCRIPT_SECONDS = 150


def blocks(name: str) -> list[str]:
    """The blocks of a page that are marked `sh`, in order."""
    return SHELL_BLOCK.findall((PAGES / name).read_text(encoding="utf-8"))


def typed(script: str, folder: Path, environment: Mapping[str, str], postgres: Postgres | None = None) -> str:
    """Type a block; returns what it said. Whatever fails in it, fails the test."""
    places = [str(Path(sys.executable).parent)]
    if postgres is not None:  # its client programs fit the server
        places.insert(0, str(postgres.programs))
    path = os.pathsep.join([*places, environment.get("PATH", os.environ["PATH"])])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder, env={**environment, "PATH": path}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=SCRIPT_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, f"{script}\n{done.stdout}"
    return done.stdout
