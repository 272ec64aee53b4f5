"""Copies the core and its tests, makes one mistake in the copy, and sees whether the tests find it.

The checkout is never changed: pytest runs in the copy, with the copy first on the path, quick laws and a fixed seed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.mutants.mutants import CORE, Mutant

ROOT = Path(__file__).parents[2]
COPIED = ("controlplane", "tests/builders", "tests/core", "tests/laws", "tests/scenarios", "tests/support")
SECONDS_MAX = 180  # for one mutant; one that takes longer was not found
EXAMPLES = 60
_INI = """[pytest]
addopts = -n 0 -x -q --no-header -p no:schemathesis -p no:cacheprovider
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""
_CONFTEST = '''"""Laws without shrinking and with the same examples each time; the copy is what is tested."""

from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

import controlplane

assert Path(controlplane.__file__).parent == Path(__file__).parent / "controlplane"
settings.register_profile(
    "mutants",
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("mutants")
'''


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    NOT_MADE = "not made"  # its text is not there any more, or the tests cannot run with it


@dataclass(frozen=True, slots=True)
class Verdict:
    """A mutant's fate, with the test that found it or what else there is to say."""

    mutant: Mutant
    fate: Fate
    words: str


def text_of(mutant: Mutant, root: Path = ROOT) -> str:
    """The mutant's file as it is."""
    return (root / CORE / mutant.file).read_text(encoding="utf-8")


def is_there(mutant: Mutant) -> bool:
    """Whether the text that it replaces stands exactly once in its file."""
    return text_of(mutant).count(mutant.before) == 1


def copied_to(folder: Path) -> None:
    """Put the core and its tests there."""
    leave_out = shutil.ignore_patterns("__pycache__", ".hypothesis")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=leave_out)
    (folder / "tests" / "__init__.py").touch()
    (folder / "pytest.ini").write_text(_INI, encoding="utf-8")
    (folder / "conftest.py").write_text(_CONFTEST, encoding="utf-8")


def run_tests(folder: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Run these in the copy; the exit status of pytest and what it printed."""
    ours = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "LAW_EXAMPLES": str(EXAMPLES)}
    command = [sys.executable, "-m", "pytest", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **ours},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"not done after {SECONDS_MAX} s"
    return done.returncode, done.stdout + done.stderr


def tried(mutant: Mutant, folder: Path) -> Verdict:
    """Make the mutant in a new copy in this folder and run the tests that must find it."""
    if not is_there(mutant):
        return Verdict(
            mutant, Fate.NOT_MADE, f"{CORE}/{mutant.file} has its text {text_of(mutant).count(mutant.before)} times"
        )
    copied_to(folder)
    changed = text_of(mutant).replace(mutant.before, mutant.after)
    (folder / CORE / mutant.file).write_text(changed, encoding="utf-8")
    status, output = run_tests(folder, mutant.found_by)
    if status == 1:
        failed = next((line for line in output.splitlines() if line.startswith("FAILED ")), "FAILED ?")
        return Verdict(mutant, Fate.KILLED, failed.removeprefix("FAILED ").partition(" - ")[0])
    if status == 0:
        return Verdict(mutant, Fate.SURVIVED, f"all of {', '.join(mutant.found_by)} pass")
    return Verdict(mutant, Fate.NOT_MADE, f"pytest ended with {status}: {output.strip()[-800:]}")
