"""Looking at real processes from outside: what runs for a folder, what their command lines give away."""

import contextlib
import os
from pathlib import Path

PROC = Path("/proc")


def command_lines() -> dict[int, str]:
    """Every live process of this machine by pid; what has ended already and is not yet reaped does not count."""
    found: dict[int, str] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if line:
                    found[int(entry.name)] = line
    return found


def tree(pid: int) -> list[int]:
    """A process and all that it started, directly or not."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found.extend(children.get(each, []))
    return found


def pss_bytes(pid: int) -> int:
    """Its share of memory: what it alone uses, and its part of what it shares; 0 once it has ended."""
    with contextlib.suppress(OSError):
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def serving(folder: Path, title: str) -> dict[int, str]:
    """The processes that belong to the plane in `folder`: they name it, or carry its Postgres' title."""
    return {pid: line for pid, line in command_lines().items() if f"{folder}/" in line or f" {title}:" in line}


def cpu_seconds(pid: int) -> float:
    """Seconds of processor time that it has used so far, in both modes."""
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
