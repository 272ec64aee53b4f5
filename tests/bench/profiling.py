"""Where the time of a planner goes: `python -m tests.bench --profile A`.

Every statement is timed where it is sent, and Planner's three parts are profiled by the CPU time of their own threads.
Profiled code is about three times as slow, so the table gives shares, and no figure that is printed beside it counts.
"""

import cProfile
import functools
import io
import pstats
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

from controlplane.services.scheduling import Planner

PARTS = ("plan", "begin", "write")
LINES = 45


@contextmanager
def profiled() -> Iterator[Callable[[], str]]:
    """Profile planners in this process until the block ends; what is yielded gives the table."""
    spent, calls = dict[str, float](), Counter[str]()
    began: dict[int, float] = {}
    profiles = {name: cProfile.Profile(time.thread_time) for name in PARTS}
    kept = {name: getattr(Planner, name) for name in PARTS}

    def before(_connection: object, cursor: object, *_: object) -> None:
        began[id(cursor)] = time.perf_counter()

    def after(_connection: object, cursor: object, statement: str, *_: object) -> None:
        name = " ".join(statement.split())[:100]
        spent[name] = spent.get(name, 0.0) + time.perf_counter() - began.pop(id(cursor), time.perf_counter())
        calls[name] += 1

    event.listen(Engine, "before_cursor_execute", before)
    event.listen(Engine, "after_cursor_execute", after)
    for name in PARTS:
        setattr(Planner, name, _wrapped(kept[name], profiles[name]))
    try:
        yield lambda: _table(spent, calls, profiles)
    finally:
        for name in PARTS:
            setattr(Planner, name, kept[name])
        event.remove(Engine, "before_cursor_execute", before)
        event.remove(Engine, "after_cursor_execute", after)


def _wrapped(method: Callable[..., Any], profile: cProfile.Profile) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the method takes and gives
        return profile.runcall(method, *args, **named)

    return call


def _table(spent: dict[str, float], calls: Counter[str], profiles: dict[str, cProfile.Profile]) -> str:
    lines = [
        f"{1000 * seconds:9.1f} ms {calls[name]:6} × {name}"
        for name, seconds in sorted(spent.items(), key=lambda at: -at[1])[:LINES]
    ]
    for name, profile in profiles.items():
        text = io.StringIO()
        pstats.Stats(profile, stream=text).sort_stats("cumulative").print_stats(LINES)
        lines.append(f"--- {name}\n{text.getvalue()}")
    return "\n".join(lines)
