"""A container engine and a compose for `make compose-check`: the user's, or a dockerd of our own that leaves nothing.

Our own keeps its data in a throw-away folder and is told to leave the machine's bridges, packet filter and forwarding
alone; what it must not change is compared before and after. It is asked to end when this process ends, however.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("docker.io", "docker-compose", "debootstrap")
PR_SET_PDEATHSIG = 1
START_SECONDS = 60
STOP_SECONDS = 60
CALL_SECONDS = 900


class NoEngine(Exception):
    """There is none and none can be started; the message says why."""


class Failed(Exception):
    """A command of the check failed; the message has its last words."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What containers are built and run with."""

    compose: tuple[str, ...]
    environment: Mapping[str, str]
    is_ours: bool

    def docker(self, *arguments: str, given: bytes | None = None) -> str:
        return run(("docker", *arguments), self.environment, given)


def say(text: str) -> None:
    """One line about what happens now."""
    print(f"compose-check: {text}", flush=True)


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    given: bytes | None = None,
    cwd: Path | None = None,
) -> str:
    """What the command printed; raises Failed."""
    done = subprocess.run(
        command, input=given, capture_output=True, check=False, env=environment, cwd=cwd, timeout=CALL_SECONDS
    )
    if done.returncode != 0:
        last = (done.stdout + done.stderr).decode(errors="replace")[-3_000:]
        raise Failed(f"{' '.join(command[:6])} … ended with {done.returncode}:\n{last}")
    return done.stdout.decode(errors="replace")


@contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    """The engine that this user can reach, else one of our own; raises NoEngine."""
    if shutil.which("docker") and _answers(os.environ):
        say("using the container engine that is there")
        yield Engine(_compose(os.environ), dict(os.environ), is_ours=False)
        return
    _install_missing()
    before = _machine()
    try:
        with _dockerd(folder) as environment:
            yield Engine(_compose(environment), environment, is_ours=True)
    finally:
        _clean(folder)
    left = [
        f"{name} was\n{was}\nand is\n{now}"
        for (name, was), now in zip(before.items(), _machine().values(), strict=True)
        if was != now
    ]
    if left:
        raise Failed("dockerd left the machine otherwise than it was: " + "\n".join(left))
    say("dockerd has ended; links, packet filter and forwarding are as before")


def _install_missing() -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NoEngine("no container engine answers, and only root on Linux can start one")
    programs = ("dockerd", "docker", "docker-compose", "debootstrap")
    if all(shutil.which(program) for program in programs):
        return
    if not shutil.which("apt-get"):
        raise NoEngine("no container engine answers, and there is no apt-get to install one")
    say(f"installing {', '.join(PACKAGES)} with apt-get")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # 1: services are not started
    try:
        run(("apt-get", "-qq", "update"), quiet)
        run(("apt-get", "-qq", "install", "-y", "--no-install-recommends", *PACKAGES), quiet)
    except Failed as error:
        raise NoEngine(f"the engine cannot be installed: {error}") from error


@contextmanager
def _dockerd(folder: Path) -> Iterator[dict[str, str]]:
    socket = folder / "docker.sock"
    environment = {
        **os.environ,
        "DOCKER_HOST": f"unix://{socket}",
        "DOCKER_BUILDKIT": "0",
        "COMPOSE_DOCKER_CLI_BUILD": "0",
    }
    command = (
        "dockerd", "--data-root", str(folder / "root"), "--exec-root", str(folder / "exec"), "-H", f"unix://{socket}",
        "-p", str(folder / "dockerd.pid"),
        "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false",
    )  # fmt: skip
    log = folder / "dockerd.log"
    with log.open("wb") as sink:
        daemon = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,  # Ctrl-C is for us, who then end it in order
            preexec_fn=_ended_with_us,  # noqa: PLW1509 - one system call, no lock is taken in there
        )
    try:
        _until(lambda: _answers(environment) or daemon.poll() is not None, START_SECONDS)
        if daemon.poll() is not None or not _answers(environment):
            raise NoEngine(f"dockerd does not start here:\n{log.read_text(errors='replace')[-1_500:]}")
        say("started a dockerd of our own")
        yield environment
    finally:
        daemon.terminate()
        try:
            daemon.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _ended_with_us() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _clean(folder: Path) -> None:
    """Everything of the daemon goes; mounts that it left are taken off first."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((each for each in mounts if each.startswith(f"{folder}/")), reverse=True):
        run(("umount", "--lazy", mount))
    shutil.rmtree(folder, ignore_errors=True)


def _machine() -> dict[str, str]:
    """What of the machine a container engine usually changes."""
    return {
        "links": "\n".join(
            sorted(link.name for link in Path("/sys/class/net").iterdir() if not _is_of_others(link.name))
        ),
        "forwarding": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
        "packet filter": "\n".join(_rules()),
    }


def _is_of_others(link: str) -> bool:
    """Links that other programs of this machine may make meanwhile; ours would be called br-… or docker…."""
    return not link.startswith(("br-", "docker"))


def _rules() -> list[str]:
    """The policy of forwarding, and every rule of a container engine, without counters; others' rules are theirs."""
    if not shutil.which("iptables-save"):
        return []
    found = subprocess.run(("iptables-save",), capture_output=True, text=True, check=False).stdout.splitlines()
    return [line.partition(" [")[0] for line in found if line.startswith(":FORWARD") or "docker" in line.lower()]


def _answers(environment: Mapping[str, str]) -> bool:
    asked = subprocess.run(("docker", "info"), env=dict(environment), capture_output=True, check=False, timeout=60)
    return asked.returncode == 0 and b"Server Version" in asked.stdout


def _compose(environment: Mapping[str, str]) -> tuple[str, ...]:
    for words in (("docker", "compose"), ("docker-compose",)):
        if shutil.which(words[0]):
            asked = subprocess.run((*words, "version"), env=dict(environment), capture_output=True, check=False)
            if asked.returncode == 0:
                return words
    raise NoEngine("there is neither `docker compose` nor `docker-compose`")


def _until(check: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not check() and time.monotonic() < deadline:
        time.sleep(0.3)
