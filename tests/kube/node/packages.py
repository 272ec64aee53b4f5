"""What a real node needs beside the kubelet, from Debian's packages: unpacked for this user, never installed.

No package's script runs and no service starts, so a machine with a Docker or a containerd of its own keeps it. It needs
root and Debian or one of its children; where that is missing, the reason is said and nothing is done.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.kube import build

PACKAGES = ("containerd", "runc", "containernetworking-plugins", "busybox-static")
BUSYBOX = "bin/busybox"
PROGRAMS = ("usr/bin/containerd", "usr/bin/ctr", "usr/sbin/runc", "usr/lib/cni/bridge", BUSYBOX)
TOOLS = ("apt-get", "dpkg-deb", "unshare")
FETCH_SECONDS_MAX = 300
NAMESPACES = ("--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private")


class NodeUnavailable(Exception):
    """No real node can be had on this machine; the message says why, and is fit to be the reason of a skip."""


def software(say: build.Say = build.say_on_stderr) -> Path:
    """The folder into which PACKAGES are unpacked; fetches them first where this user has not done so yet.

    Raises NodeUnavailable.
    """
    _ask_for_the_machine()
    cache = build.cache_folder()
    folder = cache / "node-software"
    with build.lock(
        cache / "node.lock", lambda: say("kube: waiting for another run that is fetching a node's software")
    ):
        if missing(folder) is not None:
            say(f"kube: fetching {', '.join(PACKAGES)} for a real node (36 MB, once; unpacked, not installed)")
            _unpack(folder)
    return folder


def found(folder: Path, program: str) -> Path | None:
    """Where one of PROGRAMS is below `folder`: some releases keep everything under /usr. None if it is nowhere."""
    return next((place for place in (folder / program, folder / "usr" / program) if place.exists()), None)


def missing(folder: Path) -> str | None:
    """The first of PROGRAMS that is not there."""
    return next((program for program in PROGRAMS if found(folder, program) is None), None)


def _ask_for_the_machine() -> None:
    if sys.platform != "linux":
        raise NodeUnavailable("a real node needs Linux")
    if os.geteuid() != 0:
        raise NodeUnavailable("a real node needs root: a kubelet runs containers")
    if lacking := [name for name in TOOLS if shutil.which(name) is None]:
        raise NodeUnavailable(f"a real node needs Debian or one of its children: there is no {lacking[0]} here")
    tried = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise NodeUnavailable(f"this machine gives no namespaces to a real node: {tried.stderr.strip()[:200]}")


def _unpack(folder: Path) -> None:
    """All of it or nothing: a half-fetched folder never gets its name."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as workshop:
        fetched, unpacked = Path(workshop) / "fetched", Path(workshop) / "unpacked"
        fetched.mkdir()
        if (words := _fetch(fetched)) is not None:
            # A bare machine has no lists of packages yet.
            subprocess.run(["apt-get", "-qq", "update"], capture_output=True, check=False, timeout=FETCH_SECONDS_MAX)
            words = _fetch(fetched)
        if words is not None:
            raise NodeUnavailable(f"packages of a real node cannot be had: {words}")
        for package in fetched.glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, unpacked], check=True, timeout=FETCH_SECONDS_MAX)
        if (lacking := missing(unpacked)) is not None:
            raise NodeUnavailable(f"this system's packages hold no {lacking}")
        shutil.rmtree(folder, ignore_errors=True)
        unpacked.rename(folder)


def _fetch(folder: Path) -> str | None:
    """None, or why not."""
    command = ["apt-get", "-qq", "download", *PACKAGES]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS_MAX)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.startswith("E:")]
    return (lines or [f"apt-get ended with {done.returncode}"])[0][:300]
