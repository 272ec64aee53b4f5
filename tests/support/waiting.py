"""Bounded waiting for what another process does: tests never sleep for a guessed time."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
PAUSE_SECONDS = 0.03


def eventually(check: Callable[[], Found], within: float = 10.0, what: str = "", pause: float = PAUSE_SECONDS) -> Found:
    """The first truthy answer of `check`; asked until `within` seconds have passed, with `pause` seconds in between.

    An AssertionError in `check` counts as "not yet"; the last one is what the test fails with.
    """
    deadline = time.monotonic() + within
    while True:
        failure: AssertionError | None = None
        try:
            if found := check():
                return found
        except AssertionError as error:
            failure = error
        if time.monotonic() > deadline:
            wanted = what or getattr(check, "__name__", "it")
            raise AssertionError(f"{wanted}: not within {within} s") from failure
        time.sleep(pause)
