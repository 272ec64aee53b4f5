"""Where the servers of a test run keep their files: in memory where the machine has plenty of it, else on its disk.

A database per test is a thousand files written and removed for each: on a disk that costs ten times as much.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")
PREFIX = "muster-tests-"
NEEDED_BYTES = 2 * 2**30
"""What must be free: a server, its log and the databases of a few tests take a quarter of it, and others begin too."""
YOUNG_SECONDS = 60


@contextmanager
def quick_folder(instead: Path, memory: Path = MEMORY, needed_bytes: int = NEEDED_BYTES) -> Iterator[Path]:
    """A folder that ends with the block; it is `instead` where there is no memory to be had."""
    _forget_killed(memory)
    if not _has_room(memory, needed_bytes):
        yield instead
        return
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=memory))
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _has_room(memory: Path, needed_bytes: int) -> bool:
    try:
        there = os.statvfs(memory)
    except OSError:
        return False
    return os.access(memory, os.W_OK) and there.f_bavail * there.f_frsize >= needed_bytes


def _forget_killed(memory: Path) -> None:
    """Remove what runs left that were killed: nobody holds its lock any more."""
    for folder in memory.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # it ends just now, is somebody else's, or is held
            if time.time() - folder.stat().st_mtime < YOUNG_SECONDS:  # made, and not yet locked
                continue
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
