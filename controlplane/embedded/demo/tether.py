"""Runs one agent for as long as a plane holds its folder: `demo --keep` leaves both, and `muster down` ends both.

`python -m controlplane.embedded.demo.tether FOLDER NAME COMMAND…`; the agent gets our environment, and ends with us.
"""

import sys
import time
from pathlib import Path

from controlplane.embedded.children import Child, Spec
from controlplane.embedded.home import Home

MODULE = "controlplane.embedded.demo.tether"
LOOK_SECONDS = 0.5


def main() -> None:
    """Start it, and stop it when the plane is gone."""
    home, name, command = Home(Path(sys.argv[1])), sys.argv[2], tuple(sys.argv[3:])
    child = Child(Spec(name=name, argv=command, log=home.log(name), folder=home.path))
    try:
        while home.is_locked() and child.exit_code() is None:
            time.sleep(LOOK_SECONDS)
    finally:
        child.stop()


if __name__ == "__main__":
    main()
