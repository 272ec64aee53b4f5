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

from tests.architecture.sources import PACKAGES, named, nodes_of, python_files, text_of, tree_of

PRODUCT = python_files(*PACKAGES, "migrations", "requirements", "helm")
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


def test_a_file_fits_in_four_hundred_lines() -> None:
    lengths = {named(path): len(text_of(path).splitlines()) for path in PRODUCT + TESTS}
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    lengths = {
        f"{named(path)}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in PRODUCT + TESTS
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == {}


def test_a_module_starts_by_saying_what_it_is_for() -> None:
    modules = [path for path in PRODUCT + TESTS if path.name != "__init__.py"]
    assert [named(path) for path in modules if not ast.get_docstring(tree_of(path))] == []


def test_a_package_says_what_it_is_for_and_does_nothing() -> None:
    """An __init__.py that imports makes everybody pay for everything."""
    packages = [path for path in python_files(*PACKAGES) if path.name == "__init__.py"]
    bodies = {named(path): tree_of(path).body for path in packages if not ast.get_docstring(tree_of(path))}
    assert bodies == {}
    assert [named(path) for path in packages if len(tree_of(path).body) > 1] == []


def test_core_cannot_reach_the_clock_chance_or_the_machine() -> None:
    found = [
        f"{named(path)}:{getattr(node, 'lineno', 0)}: {name}"
        for path in CORE
        for node in nodes_of(path)
        for name in _impure(node)
    ]
    assert found == []


def test_core_counts_in_whole_numbers() -> None:
    """Amounts are integers in base units; whoever divides uses // and says which way it rounds."""
    floats = [
        f"{named(path)}:{node.lineno}"
        for path in CORE
        for node in nodes_of(path)
        if (isinstance(node, ast.Constant) and isinstance(node.value, float))
        or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div))
    ]
    assert floats == []


def test_every_exception_from_a_rule_is_explained() -> None:
    """Name the rule and, after it, why it does not apply here."""
    unexplained = [
        f"{named(path)}:{line}: {comment}"
        for path in PRODUCT + TESTS
        for line, comment in _comments(path)
        for match in [TYPE_IGNORE.search(comment) or NOQA.search(comment)]
        if match and not (match["codes"] and len(match["why"].strip(" #-—:")) >= WHY_CHARACTERS_MIN)
    ]
    assert unexplained == []


def test_a_test_replaces_no_part_of_ours() -> None:
    """Clock, chance and network enter by the doors that production uses; a patched module proves nothing."""
    found = [
        f"{named(path)}:{getattr(node, 'lineno', 0)}" for path in TESTS for node in nodes_of(path) if _patches(node)
    ]
    assert found == []


def _impure(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names} & IMPURE_MODULES
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").split(".")[0]} & IMPURE_MODULES
    return {_called_name(node)} & IMPURE_CALLS if isinstance(node, ast.Call) else set()


def _patches(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[-1] == "mock" for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return "mock" in f"{node.module}.{'.'.join(alias.name for alias in node.names)}".split(".")
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "monkeypatch":
        return node.attr in {"setattr", "delattr", "setitem", "delitem"}
    return False


def _called_name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _comments(path: Path) -> Iterator[tuple[int, str]]:
    """Only of files that could interest us: to find comments for sure costs more than all other tests here."""
    if "noqa" not in text_of(path) and not TYPE_IGNORE.search(text_of(path)):
        return
    for token in tokenize.generate_tokens(io.StringIO(text_of(path)).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
