"""What the supervisor last wrote down about itself, for `muster status` and whoever waits for the plane.

A supervisor that was killed leaves the file as it was; only the folder's lock says whether one runs.
"""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from controlplane.embedded.home import Home, write_private


class Phase(StrEnum):
    """How far one process is."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"
    """It ended; it is started again when its back-off is over."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process of the plane."""

    name: str
    phase: Phase
    pid: int | None = None
    restarts: int = 0
    last_exit: int | None = None


@dataclass(frozen=True, slots=True)
class PlaneState:
    """The plane of one folder."""

    supervisor: int
    ready: bool
    api_url: str
    agent_url: str
    processes: list[ProcessState] = field(default_factory=list)


def write_state(home: Home, state: PlaneState) -> None:
    """Replace what was written before."""
    write_private(home.state, json.dumps(asdict(state), indent=1) + "\n")


def read_state(home: Home) -> PlaneState | None:
    """The state of the plane that runs now; None when none runs or it has not written one yet."""
    if not home.is_locked():
        return None
    try:
        found = json.loads(home.state.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    processes = [ProcessState(**{**each, "phase": Phase(each["phase"])}) for each in found.pop("processes")]
    return PlaneState(**found, processes=processes)
