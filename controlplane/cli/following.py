"""Follows workloads: woken by the stream of events where the plane gives one, by looking again where it does not.

Events only wake: what is told is always what the plane says when it is asked, so that nothing rests on an event that
was lost.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from controlplane.cli import story
from controlplane.cli.errors import CommandError, Exit
from controlplane.cli.render import Json

if TYPE_CHECKING:
    from controlplane.cli.client import Client, Query

Answer = TypeVar("Answer")
END = "end"
"""The name of a stream's last message: it has had its time."""
LOOK_SECONDS = 1.0
"""Between two looks where nothing wakes us."""
CALM_SECONDS = 5.0
"""Between two looks where events do: why something waits changes without one."""
SILENCE_SECONDS = 60.0
RECONNECT_SECONDS = 1.0
FIRST_TRIES = 3
"""Of a plane that has not answered yet, before its silence is told."""
ABSENCE_SECONDS = 30.0
"""A plane that has answered is waited for as long as it takes to start again."""


def _nobody(_: str) -> None:
    """Who has a voice of its own tells it."""


def tell(words: str) -> None:
    """A word beside the answer."""
    print(f"muster: {words}", file=sys.stderr, flush=True)


def events(client: "Client", query: "Query", last: str = "", told: Callable[[str], None] = _nobody) -> Iterator[Json]:
    """What happens, in order, without end; a broken connection is taken up where it broke.

    Raises CommandError where the plane refuses, and where it has never answered; later its silence is told once and
    waited out.
    """
    import httpx

    left, is_silent = FIRST_TRIES, False
    while True:
        is_open = False
        try:
            with client.lines("/events", query, last, SILENCE_SECONDS) as lines:
                left, is_open, is_silent = 0, True, False
                for number, name, data in _messages(lines):
                    last = number or last
                    if name == END:
                        break
                    if data:
                        yield json.loads(data)
        except (httpx.TransportError, CommandError) as error:
            if isinstance(error, CommandError) and error.code is not Exit.UNREACHABLE:
                raise
            left -= 1
            if not left:
                if isinstance(error, CommandError):
                    raise
                raise CommandError(client.silence(error), Exit.UNREACHABLE) from None
            if left < 0 and not is_open and not is_silent:
                is_silent = True
                told(f"{client.url} does not answer; it is waited for")
        query = {name: value for name, value in query.items() if name != "after"} if last else query
        time.sleep(RECONNECT_SECONDS)


def borne(client: "Client", ask: Callable[[], Answer], seconds: float) -> Answer:
    """The answer of a plane that has answered before: away for a while it is waited for, which is told once.

    Raises CommandError where it is away for more than `seconds`, or ABSENCE_SECONDS, and where it refuses.
    """
    deadline = time.monotonic() + min(seconds, ABSENCE_SECONDS)
    is_told = False
    while True:
        try:
            return ask()
        except CommandError as error:
            if error.code is not Exit.UNREACHABLE or time.monotonic() >= deadline:
                raise
        if not is_told:
            is_told = True
            tell(f"{client.url} does not answer; it is waited for, up to {ABSENCE_SECONDS:.0f} s")
        time.sleep(LOOK_SECONDS)


def _messages(lines: Iterator[str]) -> Iterator[tuple[str, str, str]]:
    """Id, name and data of each message. One may have an id alone: so far there was nothing to tell."""
    number, name, data = "", "", ""
    for line in lines:
        key, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if key == "id":
            number = value
        elif key == "event":
            name = value
        elif key == "data":
            data = f"{data}\n{value}" if data else value
        elif not line:
            yield number, name, data
            number, name, data = "", "", ""


class Bell:
    """Rings when something may have changed."""

    def __init__(self, client: "Client", query: "Query") -> None:
        self._rung = threading.Event()
        self._hears = True
        # A daemon: it must not keep a command from ending.
        threading.Thread(target=self._listen, args=(client, query), daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Until it rings, or for so long that looking again is due; at most `seconds`."""
        self._rung.wait(min(seconds, CALM_SECONDS if self._hears else LOOK_SECONDS))
        self._rung.clear()

    def _listen(self, client: "Client", query: "Query") -> None:
        try:
            for _ in events(client, query):
                self._rung.set()
        except (CommandError, RuntimeError, ValueError):  # no such stream, or the command has ended
            self._hears = False


def looks(client: "Client", reference: str, seconds: float) -> Iterator[Json]:
    """A workload, each time that something may have changed, up to its end or for so many seconds."""
    deadline = time.monotonic() + seconds
    bell = Bell(client, {"workload": reference})
    path = f"/workloads/{reference}"
    found = client.get(path)
    while True:
        yield found
        if found["state"] in story.FINAL or time.monotonic() >= deadline:
            return
        bell.wait(deadline - time.monotonic())
        found = borne(client, lambda: client.get(path), deadline - time.monotonic())


@dataclass(slots=True)
class Teller:
    """Turns what is seen of one workload into lines, each said once."""

    _said: str = ""
    _ended: set[int] = field(default_factory=set)

    def news(self, found: Json) -> list[str]:
        """What is new since the last look."""
        lines = []
        for attempt in reversed(found["attempts"]):
            # What follows the last one is known where the workload waits again, and not before.
            is_open = attempt is found["attempts"][0] and found["state"] in {*story.FINAL, "stopping"}
            if attempt["outcome"] is not None and attempt["attempt"] not in self._ended and not is_open:
                self._ended.add(attempt["attempt"])
                lines.append(story.disturbance(found, attempt))
        now = self._now(found)
        if now != self._said:
            self._said = now
            lines.append(now)
            if found["state"] == "failed" and found["attempts"]:
                lines.extend(story.last_words(found["attempts"][0]))
        return lines

    @staticmethod
    def _now(found: Json) -> str:
        if found["state"] in story.FINAL:
            return story.end(found)
        last = found["attempts"][0] if found["attempts"] else None
        if last is not None and last["outcome"] is not None and found["state"] == "stopping":
            return story.undecided(found, last)
        if found["state"] == "pending" or last is None or last["outcome"] is not None:
            return story.waiting(found) if found["state"] == "pending" else f"{found['name']} is {found['state']}"
        return story.step(found, last)
