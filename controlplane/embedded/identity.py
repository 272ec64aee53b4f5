"""As whom the server programs run: Postgres refuses to run as root, and we change no user of the machine.

`choose` tries, in this order: ourselves when we are not root; a user namespace in which root looks like somebody else;
the user `nobody`, to whom the data folders are then given. What it returns is carried out by `launcher`.
"""

import os
import pwd
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from controlplane.embedded.errors import Refusal

LAUNCHER = Path(__file__).with_name("launcher.py")
PROBE_SECONDS = 20


class Kind(Enum):
    """How a child's identity differs from ours."""

    PLAIN = "plain"
    NAMESPACE = "namespace"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Identity:
    """As whom a child runs; `uid` and `gid` are the inner ones of a namespace, or the real ones after a drop."""

    kind: Kind = Kind.PLAIN
    uid: int = 0
    gid: int = 0

    def own(self, path: Path) -> None:
        """Give what we made for the child to the child, where that is somebody else."""
        if self.kind is Kind.DROPPED:
            os.chown(path, self.uid, self.gid)

    def launch(self, command: list[str], death_signal: int) -> list[str]:
        """The argv that runs `command` as this identity and ends it with us."""
        own = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), str(death_signal)]
        return [*own, self.kind.value, str(self.uid), str(self.gid), *command]

    def can_run(self, *command: str) -> bool:
        """Whether `command` (or, without one, the bare identity) works here."""
        tried = subprocess.run(  # our own launcher
            self.launch(list(command), 9), check=False, capture_output=True, timeout=PROBE_SECONDS, cwd="/"
        )
        return tried.returncode == 0

    def obstacle(self, program: Path, home: Path) -> str:
        """Why it cannot run `program` on data in `home`; empty if it can."""
        if not self.can_run():
            return "is refused by this machine"
        if not self.can_run(str(program), "--version"):
            return f"cannot run {program}"
        if not self.can_run("/bin/sh", "-c", 'cd "$0"', str(home)):
            return f"cannot reach {home}"
        return ""


PLAIN = Identity()


def choose(program: Path, home: Path) -> Identity:
    """The first identity that may run `program` on data in `home`, or a refusal that says what to do instead."""
    if os.geteuid() != 0:
        return PLAIN
    refused = []
    if sys.platform == "linux":
        namespace = Identity(Kind.NAMESPACE, *_nobody())
        why = namespace.obstacle(program, home)
        if not why:
            return namespace
        refused.append(f"in a user namespace root {why}")
    nobody = Identity(Kind.DROPPED, *_nobody())
    home.chmod(0o711)  # the folders in it stay 0700; without this nobody could not reach its own
    why = nobody.obstacle(program, home)
    if not why:
        return nobody
    refused.append(f"the user 'nobody' {why}")
    raise Refusal(f"Postgres must not run as root; {'; '.join(refused)}")


def _nobody() -> tuple[int, int]:
    """The uid and gid of an ordinary user that has a passwd entry, which Postgres looks up."""
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        others = [each for each in pwd.getpwall() if each.pw_uid != 0]
        if not others:
            raise Refusal("Postgres must not run as root and this machine has no other user") from None
        entry = others[0]
    return entry.pw_uid, entry.pw_gid
