"""What must hold around the clusters: a missing Kubernetes says why, and no program outlives a killed test run."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.kube import build
from tests.support.waiting import eventually

STARTER = textwrap.dedent("""
    import signal, sys
    from pathlib import Path
    from tests.kube.cluster import KubeCluster
    cluster = KubeCluster("orphan", Path(sys.argv[1]), Path(sys.argv[2]))
    cluster.start()
    print(*cluster.pids, flush=True)
    signal.pause()
""")


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    try:
        return "State:\tZ" not in status.read_text()
    except FileNotFoundError:
        return False


def test_no_program_outlives_a_killed_test_run(kube_programs: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path), str(kube_programs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "."}) as run:
        assert run.stdout is not None
        pids = [int(word) for word in run.stdout.readline().split()]
        assert len(pids) == 5
        assert all(is_alive(pid) for pid in pids)

        run.send_signal(signal.SIGKILL)
        run.wait()

    eventually(lambda: not any(is_alive(pid) for pid in pids), within=30, what="no program left")


def run_build(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "tests.kube.build"],
        env=settings | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_modules_that_cannot_be_had_are_named_as_the_reason(tmp_path: Path) -> None:
    """With an empty module cache and no proxy to ask; also shows that the first call says what it will do."""
    done = run_build(tmp_path, GOPROXY="off", GOMODCACHE=str(tmp_path / "modules"), GOFLAGS="-modcacherw")

    assert done.returncode == 1
    assert "once, about 7 minutes" in done.stderr
    assert "Go's modules cannot be had" in done.stderr


def test_kube_0_leaves_kubernetes_out(tmp_path: Path) -> None:
    assert "KUBE=0" in run_build(tmp_path, KUBE="0").stderr


def test_what_is_built_is_what_go_mod_names() -> None:
    text = (build.HERE / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{build.VERSION}" in text
    assert text.count("=> k8s.io/") == 33


@pytest.mark.parametrize("program", build.PROGRAMS)
def test_every_program_is_built(kube_programs: Path, program: str) -> None:
    assert os.access(kube_programs / program, os.X_OK)
