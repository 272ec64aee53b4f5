"""How fast the embedded plane is there when everything is warm, and what it costs to have it idle."""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.embedded.control import Sizes, start_detached, stop
from controlplane.embedded.home import Home
from controlplane.embedded.state import PlaneState, read_state
from tests.bench.figures import Result, at_most
from tests.support.processes import pss_bytes, tree

STARTS = 5
IDLE_SECONDS = 60
START_TARGET = at_most(8.0)
MEMORY_TARGET = at_most(700)
MEGABYTE = 1_000_000


def warm_start() -> list[Result]:
    """`up --detach` to a ready API, median of five, after a first start that made database and keys."""
    with _home() as home:
        _start(home)
        stop(home)
        seconds = []
        for _ in range(STARTS):
            began = time.perf_counter()
            _start(home)
            seconds.append(time.perf_counter() - began)
            stop(home)
    return [Result("warm-start", round(statistics.median(seconds), 2), "s", START_TARGET, {"starts": STARTS})]


def idle_memory() -> list[Result]:
    """Sum of PSS of all processes of an idle plane, a minute after it was ready; and of each."""
    with _home() as home:
        _start(home)
        time.sleep(IDLE_SECONDS)
        state = read_state(home)
        assert state is not None
        shares = {each.name: sum(map(pss_bytes, tree(each.pid))) for each in state.processes if each.pid}
        whole = sum(map(pss_bytes, tree(state.supervisor)))
    parameters = {"idle_seconds": IDLE_SECONDS, **{f"{name}_mb": share // MEGABYTE for name, share in shares.items()}}
    return [Result("idle-memory", whole // MEGABYTE, "MB", MEMORY_TARGET, parameters)]


def _start(home: Home) -> PlaneState:
    return start_detached(home, Sizes())


@contextmanager
def _home() -> Iterator[Home]:
    """A plane's folder of its own, also for the CLI's config; stopped and gone at the end."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("DATABASE_URL", "REDIS_URL", "MUSTER_API_PORT", "MUSTER_AGENT_PORT"):
            os.environ.pop(name, None)
        home = Home.open(Path(folder) / "home")
        try:
            yield home
        finally:
            stop(home)
