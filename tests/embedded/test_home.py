"""The folder's ports: remembered, never promised to two planes."""

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from controlplane.embedded.errors import StartFailed
from controlplane.embedded.home import LOCAL_HOST, Home, free_port
from controlplane.embedded.table import Plane

CHOOSE = "import sys; from pathlib import Path; from controlplane.embedded.home import Home; "
CHOOSE += "print(Home.open(Path(sys.argv[1])).port('api', int(sys.argv[2])), flush=True); sys.stdin.read()"


def choosing(folder: Path, wanted: int) -> subprocess.Popen[str]:
    """Another process that chooses a port and does not listen yet."""
    command = [sys.executable, "-c", CHOOSE, str(folder), str(wanted)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_two_planes_that_start_at_once_choose_different_ports(tmp_path: Path) -> None:
    wanted = free_port()
    with choosing(tmp_path / "one", wanted) as one:
        assert one.stdout
        assert int(one.stdout.readline()) == wanted
        assert Home.open(tmp_path / "two").port("api", wanted) != wanted
        one.communicate()
    assert Home.open(tmp_path / "three").port("api", wanted) == wanted


def test_a_port_is_kept_over_restarts_unless_somebody_took_it(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home")
    first = home.port("api")
    assert home.port("api") == first
    with socket.socket() as other:
        other.bind((LOCAL_HOST, first))
        other.listen()
        moved = home.port("api")
        assert moved != first
    assert home.port("api") == moved


def test_a_port_that_the_user_names_is_refused_when_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind((LOCAL_HOST, 0))
        other.listen()
        taken = other.getsockname()[1]
        monkeypatch.setenv("MUSTER_API_PORT", str(taken))
        with pytest.raises(StartFailed, match=f"MUSTER_API_PORT is {taken}, but somebody listens there"):
            Plane.choose(Home.open(tmp_path / "home"))


def test_who_only_looks_at_the_lock_keeps_nobody_from_taking_it(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home")
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.001):
            home.is_locked()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(200):
            with home.lock():
                pass
    finally:
        over.set()
        looking.join()
