"""The files that the tests of this folder look at, read and parsed once."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("controlplane", "agents")


def python_files(*tops: str) -> list[Path]:
    return sorted(path for top in tops for path in (ROOT / top).rglob("*.py"))


def named(path: Path) -> str:
    """A path as people write it; also the name of a test's case."""
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path), filename=named(path))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(path)))


@cache
def source_files() -> list[Path]:
    """Every file that is, or by the next commit could be, part of the source."""
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    shown = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    paths = (ROOT / name for name in shown.split("\0") if name)
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())
