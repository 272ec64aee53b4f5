"""Properties of the source itself: size, a first sentence everywhere, a core that no clock or chance can reach.

Which module may import which is checked by import-linter (pyproject.toml); here is what it cannot see. The limits only
ever fall: when every file is under 350 lines, change the number.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGES, named, python_files, text_of, tree_of

PRODUCT = python_files(*PACKAGES, "migrations", "requirements")
TESTS = python_files("tests")
CORE = python_files("controlplane/core")
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60

# Modules and calls that would let the clock, chance or the machine into a decision.
IMPURE_MODULES = frozenset(
    {"asyncio", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "select"}
)
IMPURE_MODULES |= {"shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid"}
IMPURE_CALLS = frozenset({"now", "utcnow", "today", "open", "print", "input", "getenv", "fromtimestamp", "hash", "id"})

# `type: ignore[code]  # why` and `noqa: CODE - why`. The why has a few words; a code alone explains nothing.
TYPE_IGNORE = re.compile(r"type:\s*ignore(?P<codes>\[[^\]]*\])?(?P<why>.*)")
NOQA = re.compile(r"noqa(?P<codes>:\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*)?(?P<why>.*)")
WHY_CHARACTERS_MIN = 8


@pytest.mark.parametrize("path", PRODUCT + TESTS, ids=named)
def test_a_file_fits_in_four_hundred_lines(path: Path) -> None:
    assert len(text_of(path).splitlines()) <= FILE_LINES_MAX


@pytest.mark.parametrize("path", PRODUCT + TESTS, ids=named)
def test_no_function_is_longer_than_a_screen(path: Path) -> None:
    functions = (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    lengths = {function.name: (function.end_lineno or 0) - function.lineno + 1 for function in functions}
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == {}


@pytest.mark.parametrize("path", [path for path in PRODUCT + TESTS if path.name != "__init__.py"], ids=named)
def test_a_module_starts_by_saying_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), "start the module with one sentence"


@pytest.mark.parametrize("path", [p for p in python_files(*PACKAGES) if p.name == "__init__.py"], ids=named)
def test_a_package_says_what_it_is_for_and_does_nothing(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), "say in one sentence what the package is for"
    assert len(tree_of(path).body) == 1, "an __init__.py that imports makes everybody pay for everything"


@pytest.mark.parametrize("path", CORE, ids=named)
def test_core_cannot_reach_the_clock_chance_or_the_machine(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & IMPURE_MODULES
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in IMPURE_MODULES
        elif isinstance(node, ast.Call):
            assert _called_name(node) not in IMPURE_CALLS, f"line {node.lineno}"


@pytest.mark.parametrize("path", CORE, ids=named)
def test_core_counts_in_whole_numbers(path: Path) -> None:
    floats = [
        node.lineno
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.Constant) and isinstance(node.value, float))
        or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div))
    ]
    assert floats == [], "amounts are integers in base units; divide with // and say which way it rounds"


@pytest.mark.parametrize("path", PRODUCT + TESTS, ids=named)
def test_every_exception_from_a_rule_is_explained(path: Path) -> None:
    unexplained = [
        f"line {line}: {comment}"
        for line, comment in _comments(path)
        for match in [TYPE_IGNORE.search(comment) or NOQA.search(comment)]
        if match and not (match["codes"] and len(match["why"].strip(" #-—:")) >= WHY_CHARACTERS_MIN)
    ]
    assert unexplained == [], "name the rule and, after it, why it does not apply here"


@pytest.mark.parametrize("path", TESTS, ids=named)
def test_a_test_replaces_no_part_of_ours(path: Path) -> None:
    """Clock, chance and network enter by the doors that production uses; a patched module proves nothing."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            assert not any(name.startswith("unittest.mock") or name == "mock" for name in modules)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "monkeypatch":
            assert node.attr not in {"setattr", "delattr", "setitem", "delitem"}, f"line {node.lineno}"


def _called_name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _comments(path: Path) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text_of(path)).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
