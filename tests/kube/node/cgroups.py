"""The control groups of a real node, which lie in the machine's own tree and outlive their processes.

`python -m tests.kube.node.cgroups NAME` watches over those of one node: it waits for the end of its stdin, that is of
the test run however that came about, and then takes them away.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PREFIX = "muster-node-"
EMPTY_SECONDS_MAX = 20.0
LOOK_SECONDS = 0.1
INHERITED = ("cpuset.cpus", "cpuset.mems")


def hierarchies() -> list[Path]:
    """The tree itself where there is one (v2), else that of each controller (v1)."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return sorted(each for each in ROOT.iterdir() if (each / "cgroup.procs").exists())


def make(name: str) -> None:
    """One group of that name in each tree, for a kubelet to put its pods under."""
    for tree in hierarchies():
        folder = tree / name
        folder.mkdir(exist_ok=True)
        for setting in INHERITED:  # v1's cpuset groups begin without processors, and nothing runs in them
            if (folder / setting).exists() and not (folder / setting).read_text().strip():
                (folder / setting).write_text((tree / setting).read_text())
        if (folder / "cgroup.subtree_control").exists():
            offered = (folder / "cgroup.controllers").read_text().split()
            (folder / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in offered))


def remove(name: str) -> None:
    """Take the groups away as soon as nothing runs in them; what is not empty in time stays for the next sweep."""
    deadline = time.monotonic() + EMPTY_SECONDS_MAX
    for tree in hierarchies():
        while (tree / name).exists():
            try:
                for folder in _deepest_first(tree / name):
                    folder.rmdir()
            except OSError:  # somebody in it is still ending
                if time.monotonic() > deadline:
                    return
                time.sleep(LOOK_SECONDS)


def sweep() -> None:
    """What a killed watch left behind: groups of ours whose test run, which their name tells, is over."""
    for tree in hierarchies():
        for folder in tree.glob(f"{PREFIX}*"):
            owner = folder.name.removeprefix(PREFIX).partition("-")[0]
            if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
                remove(folder.name)


def _deepest_first(folder: Path) -> Iterator[Path]:
    for parent, _, _ in os.walk(folder, topdown=False):
        yield Path(parent)


if __name__ == "__main__":
    sys.stdin.read()
    remove(sys.argv[1])
