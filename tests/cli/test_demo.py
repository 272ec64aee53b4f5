"""`muster demo` as a stranger runs it, only shorter: what its last line promises must have been seen."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import command_lines

DEMO_SECONDS = 150


@pytest.mark.timeout(DEMO_SECONDS + 30)
def test_the_demo_keeps_every_promise_and_leaves_nothing_running(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "controlplane.cli.main", "demo", "--seconds", "12", "--json"],
        env={**os.environ, "MUSTER_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEMO_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["samples_over_quota"] == summary["doctor_violations"] == summary["gangs_lost"] == 0
    assert summary["gangs_placed"] == summary["gangs_submitted"] > 20
    assert summary["samples"] > 10
    assert not [line for line in command_lines().values() if str(tmp_path) in line]
    assert f"Its data and logs stay in {tmp_path / 'home-demo'}" in done.stderr
    for scene in ("language borrows", "is dead", "the link to the plane is cut", "kill -9 of the worker"):
        assert scene in done.stderr
