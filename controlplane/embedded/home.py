"""The one folder of an embedded plane: where things are in it, its lock, its generated passwords, its ports.

Nothing outside this folder is written. A file is 0600 and a folder 0700 from the moment it exists. The lock belongs to
the process that holds the servers and goes with it, however it ends.
"""

import atexit
import fcntl
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane.embedded.errors import AlreadyRunning, Refusal

LOCAL_HOST = "127.0.0.1"
PORT_TRIES = 20
LOCK_TRIES = 5
LOCK_PAUSE_SECONDS = 0.02


def default_folder() -> Path:
    """`MUSTER_HOME`, else `muster` in the user's data folder."""
    if chosen := os.environ.get("MUSTER_HOME"):
        return Path(chosen).expanduser().absolute()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser().absolute() / "muster"


def write_private(path: Path, text: str) -> None:
    """Replace a file by one that only we can read; never half of it is seen."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def free_port() -> int:
    """A port of the loopback that nobody uses now; whoever gets it must bear that somebody comes first."""
    with socket.socket() as probe:
        probe.bind((LOCAL_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCAL_HOST, port))
        except OSError:
            return False
        return True


def reserve(port: int) -> bool:
    """Whether a server of ours may listen here; if so, no other plane of this machine chooses it while we live.

    Between choosing a port and listening on it pass seconds. A name that the kernel forgets with us, and that is no
    file, tells others meanwhile; elsewhere than on Linux the first to listen wins.
    """
    if not is_free(port):
        return False
    if sys.platform != "linux" or port in _reserved:
        return True
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0muster-port-{port}")
    except OSError:
        mark.close()
        return False
    _reserved[port] = mark
    return True


_reserved: dict[int, socket.socket] = {}


@atexit.register
def _give_back() -> None:
    """The kernel would do it too, only with less grace."""
    for mark in _reserved.values():
        mark.close()


@dataclass(frozen=True, slots=True)
class Home:
    """The folder; make one with `Home.open`."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> "Home":
        """Make the folder and what belongs in it, private, or refuse."""
        home = cls(path.resolve())  # processes of an earlier run are known by this path
        try:
            if not home.path.is_dir():
                home.path.mkdir(mode=0o700, parents=True)
            for folder in (home.secrets, home.logs):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise Refusal(f"The folder {path} cannot be made or written ({error.strerror})") from error
        return home

    @property
    def secrets(self) -> Path:
        return self.path / "secrets"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def state(self) -> Path:
        """What `state` keeps."""
        return self.path / "state.json"

    @property
    def admin_token(self) -> Path:
        """The first admin's API token."""
        return self.secrets / "admin-token"

    def log(self, name: str) -> Path:
        """Where the process `name` writes."""
        return self.logs / f"{name}.log"

    def password(self, name: str) -> str:
        """The password of this name, made at the first call."""
        file = self.secrets / name
        if not file.exists():
            write_private(file, secrets.token_urlsafe(32))
        return file.read_text(encoding="utf-8").strip()

    def port(self, name: str, wanted: int = 0) -> int:
        """The port that `name` had last time if it is free, else the wanted one, else any; remembered."""
        file = self.path / "ports.json"
        ports: dict[str, int] = _read_json(file)
        others = {port for other, port in ports.items() if other != name}
        for port in (ports.get(name), wanted, *(free_port() for _ in range(PORT_TRIES))):
            if port and port not in others and reserve(port):
                break
        else:
            raise Refusal(f"No free port for {name} was found on {LOCAL_HOST}")
        if ports.get(name) != port:
            write_private(file, json.dumps({**ports, name: port}))
        return port

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder; children do not inherit the hold, so it ends with this process."""
        handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _locked(handle):
                raise AlreadyRunning(
                    f"{self.path} is in use by process {self.holder() or 'unknown'}: one plane per folder. "
                    "`muster down` stops it; MUSTER_HOME chooses another folder."
                )
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(handle)

    def holder(self) -> int | None:
        """The process that took the lock last; it holds it while `is_locked`."""
        try:
            return int((self.path / "lock").read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return None

    def is_locked(self) -> bool:
        """Whether a process holds the folder now."""
        try:
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False


def _locked(handle: int) -> bool:
    """Take the lock; whoever only looks (`is_locked`) holds it for an instant, so once is not enough."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE_SECONDS)
        else:
            return True
    return False


def _read_json(file: Path) -> dict[str, int]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # never written, or spoilt by hand: choose anew
        return {}
    return {str(name): int(port) for name, port in found.items()} if isinstance(found, dict) else {}
