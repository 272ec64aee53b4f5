"""Writes the table of values into each chart's README from the comments of its values.yaml: `make chart-docs`.

The comment right above a key is its row's text. A key whose children have comments of their own has no row; one whose
children have none is told as a whole. A key without a comment anywhere is an error.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

CHARTS = Path(__file__).resolve().parent
BEGIN, END = "<!-- values.yaml: begin -->", "<!-- values.yaml: end -->"
DEFAULT_CHARACTERS_MAX = 60


class Untold(Exception):
    """A value has no comment, or a README no place for the table; the message names it."""


def table(values: str) -> str:
    """The Markdown table of a values.yaml; raises Untold."""
    lines, top = values.splitlines(), yaml.compose(values)
    assert top is not None
    rows = ["| Value | Default | What it is |", "|---|---|---|"]
    rows += [f"| `{path}` | {default} | {text} |" for path, default, text in _rows(top, lines, ())]
    return "\n".join(rows)


def with_table(readme: str, values: str) -> str:
    """The README with its table as values.yaml says now; raises Untold."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise Untold(f"the README has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table(values)}\n{END}{after}"


def charts() -> list[Path]:
    """The folder of each chart."""
    return sorted(file.parent for file in CHARTS.glob("*/Chart.yaml"))


def main() -> int:
    for chart in charts():
        readme = chart / "README.md"
        try:
            readme.write_text(with_table(readme.read_text(), (chart / "values.yaml").read_text()))
        except Untold as error:
            print(f"{chart.name}: {error}", file=sys.stderr)
            return 1
    return 0


def _rows(node: yaml.Node, lines: list[str], above: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    assert isinstance(node, yaml.MappingNode)
    for key, value in node.value:
        path = (*above, str(key.value))
        children = list(_children(value, lines, path))
        if children:
            yield from children
        elif text := _comment(lines, key.start_mark):
            yield ".".join(path), _default(value), text
        elif above:
            raise Untold(f"{'.'.join(path)} has no comment in values.yaml, and others beside it have")
        else:
            raise Untold(f"{path[0]} has no comment in values.yaml")


def _children(value: yaml.Node, lines: list[str], path: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Rows of what is below, if any of it has a comment; a child without one is then a mistake."""
    if isinstance(value, yaml.MappingNode) and not value.flow_style and _is_told_below(value, lines):
        yield from _rows(value, lines, path)


def _is_told_below(node: yaml.MappingNode, lines: list[str]) -> bool:
    return any(
        _comment(lines, key.start_mark)
        or (isinstance(value, yaml.MappingNode) and not value.flow_style and _is_told_below(value, lines))
        for key, value in node.value
    )


def _comment(lines: list[str], mark: yaml.Mark) -> str:
    """The block of comment lines that ends right above the key, with its indentation."""
    found: list[str] = []
    indent = " " * mark.column + "# "
    for line in reversed(lines[: mark.line]):
        if not line.startswith(indent):
            break
        found.insert(0, line.removeprefix(indent).strip())
    return " ".join(found).replace("|", "\\|")


def _default(node: yaml.Node) -> str:
    value = yaml.safe_load(yaml.serialize(node))
    if value in ("", None):
        return "none"
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False).removesuffix("...\n").strip()
    return f"`{text}`" if len(text) <= DEFAULT_CHARACTERS_MAX else "see `values.yaml`"


if __name__ == "__main__":
    sys.exit(main())
