"""Looking at real processes from outside: what runs for a folder, what their command lines give away."""

import contextlib
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


def serving(folder: Path, title: str) -> dict[int, str]:
    """The processes that belong to the plane in `folder`: they name it, or carry its Postgres' title."""
    return {pid: line for pid, line in command_lines().items() if f"{folder}/" in line or f" {title}:" in line}
