"""One parent over real processes: restarted with back-off, stopped in time, nothing left behind by any kill."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controlplane.embedded import control
from controlplane.embedded.home import Home
from controlplane.embedded.state import Phase, ProcessState, read_state
from controlplane.embedded.supervisor import WAIT_MAX_SECONDS, WAIT_MIN_SECONDS, back_off, trim_logs
from tests.support.planes import ready, start_tiny
from tests.support.processes import command_lines
from tests.support.waiting import eventually

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def start(home: Home) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(*kinds: str) -> subprocess.Popen[str]:
        started.append(start_tiny(home, *kinds))
        return started[-1]

    yield run
    for process in started:
        process.terminate()
        process.communicate(timeout=20)


def process(home: Home, name: str) -> ProcessState:
    state = read_state(home)
    assert state
    found = [each for each in state.processes if each.name == name]
    assert found
    return found[0]


def left_in(home: Home) -> list[str]:
    return [line for line in command_lines().values() if str(home.path) in line]


def test_a_killed_child_runs_again_and_the_others_are_left_alone(home: Home, start: Start) -> None:
    start("steady", "parent")
    before = {each.name: each.pid for each in ready(home).processes}
    for name in ("steady", "postgres", "valkey"):
        pid = before[name]
        assert pid
        os.kill(pid, signal.SIGKILL)

    def all_run_again() -> bool:
        state = read_state(home)
        return bool(
            state and state.ready and all(process(home, n).restarts == 1 for n in ("steady", "postgres", "valkey"))
        )

    eventually(all_run_again, within=30)
    assert process(home, "steady").last_exit == -signal.SIGKILL
    assert process(home, "parent").pid == before["parent"]


def test_what_a_killed_child_had_started_goes_with_it(home: Home, start: Start) -> None:
    start("parent")
    ready(home)

    def grandchildren() -> set[int]:
        return {pid for pid, line in command_lines().items() if line.endswith(f"{home.path}/grandchild")}

    first = eventually(grandchildren)
    parent = process(home, "parent").pid
    assert parent
    os.kill(parent, signal.SIGKILL)
    eventually(lambda: not first & grandchildren())


def test_a_child_that_always_ends_is_started_ever_more_rarely(home: Home, start: Start) -> None:
    start("short")
    eventually(lambda: read_state(home) and process(home, "short").restarts >= 3, within=30)
    began = home.log("short").read_text().count("began")
    assert began <= process(home, "short").restarts + 1
    assert process(home, "short").last_exit == 5


def test_back_off_grows_to_a_roof_and_never_makes_a_hot_loop() -> None:
    chance = random.Random(7).uniform
    for failures in range(1, 40):
        assert WAIT_MIN_SECONDS <= back_off(failures, chance) <= min(WAIT_MAX_SECONDS, WAIT_MIN_SECONDS * 2**failures)
    assert back_off(2_000, lambda _low, high: high) == WAIT_MAX_SECONDS


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_takes_at_most_ten_seconds_and_leaves_nothing(home: Home, start: Start, sent: signal.Signals) -> None:
    supervisor = start("steady", "parent")
    ready(home)
    asked = time.monotonic()
    supervisor.send_signal(sent)
    assert supervisor.wait(15) == 0
    assert time.monotonic() - asked < 10
    assert left_in(home) == []
    assert read_state(home) is None


def test_killing_the_supervisor_ends_everything_and_the_next_start_recovers(home: Home, start: Start) -> None:
    first = start("steady")
    ready(home)
    first.kill()
    eventually(lambda: left_in(home) == [], within=10)
    assert read_state(home) is None
    start("steady")
    ready(home)


def test_killing_everything_at_once_needs_no_more_than_another_start(home: Home, start: Start) -> None:
    first = start("steady")
    for pid in [first.pid, *(each.pid for each in ready(home).processes)]:
        assert pid
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: left_in(home) == [], within=10)
    start("steady")
    ready(home)


def test_a_second_supervisor_on_the_folder_is_refused(home: Home, start: Start) -> None:
    first = start("steady")
    ready(home)
    second = start("steady")
    assert second.wait(20) == 1
    assert second.stderr
    assert f"in use by process {first.pid}" in second.stderr.read()
    assert all(each.phase is Phase.READY for each in ready(home).processes)


def test_a_step_that_fails_stops_the_servers_and_says_why(home: Home, start: Start) -> None:
    supervisor = start("unable", "steady")
    assert supervisor.wait(30) == 1
    assert supervisor.stderr
    assert "prepare ended with 1\nthe step is unable" in supervisor.stderr.read()
    assert left_in(home) == []


def test_down_stops_the_plane_of_the_folder_and_says_whether_one_ran(home: Home, start: Start) -> None:
    supervisor = start("steady")
    ready(home)
    assert control.stop(home)
    assert supervisor.wait(5) == 0
    assert not control.stop(home)


def test_a_log_is_cut_before_it_fills_the_disk(home: Home) -> None:
    Home.open(home.path)
    with home.log("api").open("w") as log:
        log.truncate(25_000_000)
    with home.log("api").open("a") as log:
        trim_logs(home)
        log.write("the last words\n")
    assert home.log("api").stat().st_size < 20_000_000
    assert home.log("api").read_text().endswith("the last words\n")
