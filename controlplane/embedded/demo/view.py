"""How the demonstration looks: a live picture on a terminal, plain lines elsewhere."""

import sys
import time
from collections import deque
from collections.abc import Iterable
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from controlplane.embedded.demo.client import Json
from controlplane.embedded.demo.sampling import Look

BAR_CELLS = 28
EVENTS_SHOWN = 8
LINE_SECONDS = 3.0
STATE_STYLE = {"ready": "green", "suspect": "yellow", "unreachable": "red"}


class View(Protocol):
    """Shows looks and sentences as they come."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def show(self, seconds: float, look: Look) -> None: ...
    def say(self, seconds: float, sentence: str) -> None: ...


def make_view() -> View:
    """A picture where there is a terminal that can draw one."""
    console = Console()
    return Picture(console) if console.is_terminal and not console.is_dumb_terminal else Lines()


class Lines:
    """One line per event, and now and then one about the whole."""

    def __init__(self) -> None:
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()

    def show(self, seconds: float, look: Look) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_SECONDS
            counts = ", ".join(f"{count} {state}" for state, count in sorted(look.states.items()))
            self.say(seconds, f"{look.utilisation_permille / 10:.0f} % of devices in use; {counts or 'no gangs yet'}")

    def say(self, seconds: float, sentence: str) -> None:
        sys.stdout.write(f"{seconds:6.1f} s  {sentence}\n")
        sys.stdout.flush()


class Picture:
    """Bars per cluster and per queue, and the last events as sentences."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=False)
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._look = Look()
        self._seconds = 0.0

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def show(self, seconds: float, look: Look) -> None:
        self._seconds, self._look = seconds, look
        self._live.update(self._picture())

    def say(self, seconds: float, sentence: str) -> None:
        self._events.append(f"{seconds:5.1f} s  {sentence}")
        self._live.update(self._picture())

    def _picture(self) -> Group:
        states = "   ".join(f"{count} {state}" for state, count in sorted(self._look.states.items()))
        return Group(
            Text(f"Muster, {self._seconds:.0f} s   {states}", style="bold"),
            Panel(_cluster_table(self._look.clusters), title="clusters", title_align="left"),
            Panel(_queue_table(self._look.queues), title="queues", title_align="left"),
            Panel(Text("\n".join(self._events)), title="what happened", title_align="left", height=EVENTS_SHOWN + 2),
        )


def _cluster_table(clusters: Iterable[Json]) -> Table:
    table = Table.grid(padding=(0, 2))
    for cluster in clusters:
        usable = sum(flavor["usable"] for flavor in cluster["flavors"])
        held = sum(flavor["held"] for flavor in cluster["flavors"])
        flavors = ", ".join(flavor["flavor"] for flavor in cluster["flavors"])
        state = Text(cluster["state"], style=STATE_STYLE.get(cluster["state"], ""))
        table.add_row(cluster["name"], state, _bar(held, usable), f"{held} of {usable}", flavors)
    return table


def _queue_table(queues: Iterable[Json]) -> Table:
    table = Table.grid(padding=(0, 2))
    for queue in sorted(queues, key=lambda each: str(each["path"]).split("/")):  # children under their parent
        quotas = queue.get("quotas", [])
        used = sum(quota["used"] for quota in quotas)
        nominal = sum(quota["nominal"] or 0 for quota in quotas) or sum(quota["subtree"] for quota in quotas)
        borrowed = sum(quota["borrowed"] for quota in quotas)
        depth = queue["path"].count("/")
        note = f"borrows {borrowed}" if borrowed and queue["isLeaf"] else ""
        table.add_row(
            "  " * depth + queue["path"].rpartition("/")[2],
            _bar(used, max(nominal, used)),
            f"{used} of {nominal}",
            f"{queue['running']} run, {queue['waiting']} wait",
            note,
        )
    return table


def _bar(part: int, whole: int) -> Text:
    cells = round(BAR_CELLS * part / whole) if whole else 0
    return Text("█" * cells, style="cyan") + Text("░" * (BAR_CELLS - cells), style="dim")
