"""What `demo --keep` leaves behind ends with the plane, and not before."""

import contextlib
import subprocess
import sys
from pathlib import Path

from controlplane.embedded.demo import tether
from controlplane.embedded.home import Home
from tests.support.processes import command_lines
from tests.support.waiting import eventually


def test_a_tethered_agent_lives_as_long_as_a_plane_holds_its_folder(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home")
    idle = f"import time; mark = {str(tmp_path)!r}; time.sleep(60)"

    def running() -> list[str]:
        return [line for line in command_lines().values() if idle in line and tether.MODULE not in line]

    command = [sys.executable, "-m", tether.MODULE, str(home.path), "agent-eu", sys.executable, "-c", idle]
    with contextlib.ExitStack() as held:
        held.enter_context(home.lock())
        with subprocess.Popen(command) as tethered:
            eventually(running, what="the agent to run")
            assert tethered.poll() is None
            held.close()
            assert tethered.wait(timeout=10) == 0
    assert running() == []
