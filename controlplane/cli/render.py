"""Answers for people and for scripts: aligned columns, JSON or YAML.

Words that come from clusters are cleaned of control characters, which a terminal would obey.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

Json = dict[str, Any]
Column = tuple[str, Callable[[Json], object]]

_COLOURS = {
    "running": "green", "ready": "green", "succeeded": "green", "ok": "green",
    "pending": "yellow", "reserved": "cyan", "suspect": "yellow", "stopping": "yellow", "cancelling": "yellow",
    "failed": "red", "unreachable": "red", "unhealthy": "red", "lost": "red",
}  # fmt: skip


class Output(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def show(value: object, output: Output, table: Callable[[], None]) -> None:
    """The answer itself for scripts; `table` writes it for people."""
    if output is Output.JSON:
        print(json.dumps(value, indent=2, ensure_ascii=False))
    elif output is Output.YAML:
        import yaml

        print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")
    else:
        table()


def rows(columns: Sequence[Column], items: Iterable[Json], empty: str = "nothing") -> None:
    """Aligned columns, one line per item; on a terminal states are coloured."""
    lines = [[clean(str(read(item))) for _, read in columns] for item in items]
    if not lines:
        print(empty, file=sys.stderr)
        return
    heads = [head for head, _ in columns]
    if sys.stdout.isatty():
        _rich_rows(heads, lines)
        return
    widths = [max(len(line[at]) for line in [heads, *lines]) for at in range(len(heads))]
    for line in [heads, *lines]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def pairs(items: Iterable[tuple[str, object]]) -> None:
    """Names and values, one pair a line; what is empty is left out."""
    shown = [(name, clean(str(value))) for name, value in items if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in shown), default=0) + 1
    for name, value in shown:
        print(f"{name + ':':<{width}} {value}")


def clean(text: str) -> str:
    """Without what a terminal would obey."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


def ago(moment: str | None) -> str:
    """How long ago, as in "4m"; "-" for never."""
    if not moment:
        return "-"
    seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _rich_rows(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    for line in lines:
        table.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in line))
    Console().print(table)
