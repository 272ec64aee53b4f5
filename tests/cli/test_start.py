"""What the command loads before it does anything: the help must not wait for what only some commands use."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.support.databases import ROOT

HEAVY = frozenset({"httpx", "yaml", "rich", "sqlalchemy", "fastapi", "controlplane.embedded", "controlplane.contract"})
OPTIONS = "pydantic"
"""typer reads the options of a command with it, once it knows which command."""
SCRIPT = """
import sys
from controlplane.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("loaded:", *sorted(sys.modules), file=sys.stderr)
"""


def loaded(words: Sequence[str]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    return set(done.stderr.rpartition("loaded: ")[2].split())


@pytest.mark.parametrize("words", [["--help"], ["queue", "--help"], ["run", "--help"], ["completion", "bash"]])
def test_what_is_heavy_is_not_loaded_for_help(words: list[str]) -> None:
    assert loaded(words) & (HEAVY | ({OPTIONS} if words == ["--help"] else set())) == set()


def test_the_help_of_all_loads_the_module_of_none() -> None:
    ours = {name for name in loaded(["--help"]) if name.startswith("controlplane.cli.")}
    names = ("asking", "completing", "errors", "main", "render", "table")
    assert ours == {f"controlplane.cli.{name}" for name in names}
