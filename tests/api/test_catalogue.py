"""The catalogue of bad input is covered: each of its rows names tests, and each of those exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import ROOT, python_files, text_of, tree_of

CATALOGUE = Path(__file__).with_name("README.md")
ROWS = frozenset(
    (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 23, 25, 26, 27, 29, 30, 31, 33, 35, 37, 38, 39, 41, 42,
     43, 45, 46, 47, 50, 51, 53, 54, 55, 57, 58, 59, 61, 62, 63, 65, 66, 67, 69, 70, 71, 73, 74, 75)
)  # fmt: skip
LINE = re.compile(r"^\| (?P<rows>[0-9, ]+) \| [^|]+ \| (?P<tests>[^|]+) \| [^|]+ \|$", re.MULTILINE)


def test_every_row_names_tests_that_exist() -> None:
    files = python_files("tests")
    there = {name for path in files for name in re.findall(r"^def (test_\w+)", text_of(path), re.MULTILINE)}
    told: set[int] = set()
    for line in LINE.finditer(CATALOGUE.read_text(encoding="utf-8")):
        told |= {int(row) for row in line["rows"].split(",")}
        named = re.findall(r"`(test_\w+)`", line["tests"])
        assert named, line[0]
        assert set(named) <= there, (line["rows"], set(named) - there)
    assert told == ROWS, f"{CATALOGUE.relative_to(ROOT)}: rows {sorted(ROWS ^ told)}"


def test_every_type_of_problem_is_in_the_table_of_the_api() -> None:
    told = set(re.findall(r"`([a-z0-9-]+)`", (ROOT / "controlplane" / "api" / "README.md").read_text(encoding="utf-8")))
    found = {slug for path in python_files("controlplane") for slug in _slugs(tree_of(path))}
    assert len(found) > 60
    assert found - told == set()


def _slugs(tree: ast.AST) -> Iterator[str]:
    """What a `slug=` names, the slug of an error's class, and the first word of a document's `refusal`."""
    for node in ast.walk(tree):
        value: ast.expr | None = None
        if isinstance(node, ast.keyword) and node.arg == "slug":
            value = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "refusal":
            value = node.args[0]
        elif isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "slug" for to in node.targets):
            value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value
