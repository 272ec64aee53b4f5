"""Servers of a test run lie in memory where there is room, and leave nothing there."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.databases import ROOT
from tests.support.folders import quick_folder

HOLD = """
import sys; from pathlib import Path; from tests.support.folders import quick_folder
with quick_folder(Path("instead"), Path(sys.argv[1])) as folder: print(folder, flush=True); sys.stdin.read()
"""


def test_a_quick_folder_ends_with_its_block(tmp_path: Path) -> None:
    with quick_folder(tmp_path / "instead", tmp_path) as folder:
        assert folder.parent == tmp_path
        (folder / "data").mkdir()
    assert list(tmp_path.iterdir()) == []


def test_where_no_memory_is_to_be_had_the_usual_folder_does(tmp_path: Path) -> None:
    with quick_folder(tmp_path / "instead", tmp_path / "no-such-memory") as folder:
        assert folder == tmp_path / "instead"


def test_where_too_little_memory_is_left_the_usual_folder_does(tmp_path: Path) -> None:
    with quick_folder(tmp_path / "instead", tmp_path, needed_bytes=2**62) as folder:
        assert folder == tmp_path / "instead"


def test_what_a_killed_run_left_goes_with_the_next_and_what_is_in_use_stays(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout
        held = Path(holder.stdout.readline().strip())
        assert held.parent == tmp_path
        os.utime(held, (0, 0))  # as if it had run for long
        with quick_folder(tmp_path / "instead", tmp_path):
            assert held.is_dir(), "somebody works there"
        holder.kill()
    with quick_folder(tmp_path / "instead", tmp_path):
        assert not held.exists()
