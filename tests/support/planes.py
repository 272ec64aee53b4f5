"""Planes of trivial processes over real servers, for tests that need a supervisor and not the product beside it."""

import subprocess
import sys
from pathlib import Path

from controlplane.embedded.home import Home
from controlplane.embedded.state import PlaneState, read_state
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]


def start_tiny(home: Home, *kinds: str) -> subprocess.Popen[str]:
    """A supervisor over the processes of `tests.embedded.tiny`; the caller ends it."""
    command = [sys.executable, "-m", "tests.embedded.tiny", str(home.path), *kinds]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def ready(home: Home, within: float = 30) -> PlaneState:
    """Its state once everything runs."""

    def look() -> PlaneState | None:
        state = read_state(home)
        return state if state and state.ready else None

    found = eventually(look, within, what=f"a ready plane in {home.path}")
    assert found
    return found
