"""Answers for people and for scripts: aligned columns, JSON, YAML or names alone.

Words that come from clusters are cleaned of control characters, which a terminal would obey. Colours are for a
terminal only, and for nobody where `NO_COLOR` is set.
"""

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

Json = dict[str, Any]
Column = tuple[str, Callable[[Json], object]]

_CODES = {"green": "32", "yellow": "33", "cyan": "36", "red": "31", "bold": "1", "dim": "2"}
_COLOURS = {
    "running": "green", "ready": "green", "succeeded": "green", "ok": "green", "created": "green",
    "pending": "yellow", "reserved": "cyan", "suspect": "yellow", "stopping": "yellow", "cancelling": "yellow",
    "cordoned": "yellow", "draining": "yellow", "changed": "yellow", "warn": "yellow",
    "failed": "red", "unreachable": "red", "unhealthy": "red", "lost": "red", "deleted": "red", "banned": "red",
}  # fmt: skip
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "m"))


class Output(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def show(
    value: object, output: Output, table: Callable[[], None], name: Callable[[Json], object] | None = None
) -> None:
    """The answer itself for scripts; `table` writes it for people; `name` says what one thing is called."""
    if output is Output.JSON:
        print(json.dumps(value, indent=2, ensure_ascii=False))
    elif output is Output.YAML:
        print(as_yaml(value), end="")
    elif output is Output.NAME:
        things: list[Any] = value if isinstance(value, list) else [value]
        for each in things:
            print(clean(str((name or name_of)(each))))
    else:
        table()


def each_line(value: Json, output: Output, words: str) -> None:
    """One of many answers that come one by one: a line of JSON, a YAML document, a name, or words."""
    if output is Output.JSON:
        print(json.dumps(value, ensure_ascii=False), flush=True)
    elif output is Output.YAML:
        print("---\n" + as_yaml(value), end="", flush=True)
    else:
        print(clean(name_of(value) if output is Output.NAME else words), flush=True)


def name_of(each: Json) -> str:
    """What a thing is called: its name, its path, or else its number."""
    return str(next((each[key] for key in ("name", "path", "id") if each.get(key) not in (None, "")), ""))


def as_yaml(value: object) -> str:
    """For people who keep it in a file; of plain values as JSON has them, for YAML knows no enumeration of ours."""
    import yaml

    return yaml.safe_dump(json.loads(json.dumps(value)), sort_keys=False, allow_unicode=True, width=120)


def listed(
    found: list[Json],
    output: Output,
    columns: Sequence[Column],
    empty: str,
    name: Callable[[Json], object] | None = None,
) -> None:
    """A list of things with a line each; where nothing matches, people are told so on stderr."""
    if not found and output in {Output.TABLE, Output.NAME}:
        print(f"muster: {empty}", file=sys.stderr)
        return
    show(found, output, lambda: rows(columns, found), name)


def rows(columns: Sequence[Column], items: Iterable[Json]) -> None:
    """Aligned columns, one line per item; on a terminal states are coloured."""
    lines = [[clean(str(read(item))) for _, read in columns] for item in items]
    heads = [head for head, _ in columns]
    widths = [max(width(line[at]) for line in [heads, *lines]) for at in range(len(heads))]
    print(_aligned(heads, widths, lambda cell: paint(cell, "bold")))
    for line in lines:
        print(_aligned(line, widths, lambda cell: paint(cell, _COLOURS.get(cell, ""))))


def _aligned(cells: Sequence[str], widths: Sequence[int], painted: Callable[[str], str]) -> str:
    padded = [painted(cell) + " " * (wide - width(cell)) for cell, wide in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()


def pairs(items: Iterable[tuple[str, object]]) -> None:
    """Names and values, one pair a line; what is empty is left out."""
    shown = [(name, clean(str(value))) for name, value in items if value not in (None, "", [], {})]
    wide = max((len(name) for name, _ in shown), default=0) + 1
    for name, value in shown:
        print(f"{name + ':':<{wide}} {paint(value, _COLOURS.get(value, ''))}")


def is_coloured() -> bool:
    """Whether a terminal that wants colours reads our output."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str) -> str:
    """The text in a colour, where there are colours."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if colour and text and is_coloured() else text


def width(text: str) -> int:
    """Cells that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF") for each in text)


def clean(text: str) -> str:
    """Without what a terminal would obey."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


def labels(given: Json) -> str:
    """Labels as people type them."""
    return ", ".join(f"{key}={value}" for key, value in given.items())


def span(seconds: float) -> str:
    """A stretch of time in its largest unit, as in "4m"."""
    whole = max(0, int(seconds))
    for size, unit in _SPANS:
        if whole >= size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def seconds_since(moment: str) -> float:
    """Negative for what is still to come."""
    return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()


def between(first: str, second: str) -> float:
    """Seconds from one moment to the other."""
    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()


def age(moment: str | None) -> str:
    """How long ago, for a column: "4m"; "-" for never."""
    return span(seconds_since(moment)) if moment else "-"


def ago(moment: str | None) -> str:
    """How long ago, in words: "4m ago"; "" for never."""
    return f"{span(seconds_since(moment))} ago" if moment else ""


def until(moment: str | None) -> str:
    """When something is to come: "in 2h5m (14:05 UTC)"; "" for never."""
    if not moment:
        return ""
    at = datetime.fromisoformat(moment).astimezone(UTC)
    left = round(-seconds_since(moment))
    day = f"{at:%Y-%m-%d} " if left >= 86_400 else ""
    return f"in {_rounded(left)} ({day}{at:%H:%M} UTC)" if left > 0 else f"since {span(-left)}"


def _rounded(seconds: int) -> str:
    """In two units at most, so that what is to come in nearly two hours is not said to come in one."""
    if seconds < 60:
        return f"{seconds}s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes}m"
    whole, rest, units = (*divmod(minutes, 60), "hm") if minutes < 1440 else (*divmod(round(minutes / 60), 24), "dh")
    return f"{whole}{units[0]}" + (f"{rest}{units[1]}" if rest else "")


def counted(count: int, what: str) -> str:
    """A number of things: "1 pod", "2 pods"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def moment(text: str) -> str:
    """A moment to the second, in UTC."""
    return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S}"
