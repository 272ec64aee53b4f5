"""The first process inside a real node's namespaces: arranges mounts and network, then starts and kills programs.

`unshare … python -m tests.kube.node.inside CONFIG CONTROL`, where CONTROL is the number of a socket that the test run
holds. Orders and answers are JSON, one object a line. When the socket closes, however the other side ended, this
process ends; the kernel then kills everything else in the node and takes its mounts, network and bridge away.
"""

import ctypes
import fcntl
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kube.node.places import (
    BRIDGE,
    BRIDGE_ADDRESS,
    BRIDGE_MASK,
    DNS_PORT,
    KUBE,
    NODE,
    RUN,
    SOFTWARE,
    Order,
    Setup,
)

Json = dict[str, Any]
MS_BIND, MS_REC = 4096, 16384
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, SIOCBRADDBR = 0x8913, 0x8914, 0x8916, 0x891C, 0x89A0
IFF_UP = 1
LOOK_SECONDS = 0.2
RUN_SECONDS_MAX = 60
WORDS_MAX = 2_000

# A kubelet wants these, and they are the whole machine's. It finds them as it wants them, and writes nothing.
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_LIBC = ctypes.CDLL(None, use_errno=True)


class Host:
    """The node's programs, by name."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def obey(self, order: Order) -> Json:
        """Carry out one order; what cannot be done comes back as words."""
        try:
            match order["do"]:
                case "start":
                    self._start(order["name"])
                case "kill":
                    self._kill(order["name"])
                case "tell":
                    self._tell(order["name"], order["text"])
                case "run":
                    return self._run(order["command"])
                case "look":
                    return {
                        "ok": True,
                        "running": [name for name, each in self._running.items() if each.poll() is None],
                    }
        except (OSError, KeyError, subprocess.SubprocessError) as error:
            return {"ok": False, "words": repr(error)}
        return {"ok": True}

    def _start(self, name: str) -> None:
        program = self._setup["programs"][name]
        with (NODE / f"{name}.log").open("ab") as sink:
            self._running[name] = subprocess.Popen(
                program["command"],
                cwd=self._setup["cwd"],
                env=self._environment(),
                stdin=subprocess.PIPE if program["listens"] else subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )

    def _kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait(RUN_SECONDS_MAX)

    def _tell(self, name: str, text: str) -> None:
        stdin = self._running[name].stdin
        assert stdin is not None, f"{name} does not listen"
        stdin.write(f"{text}\n".encode())
        stdin.flush()

    def _run(self, command: list[str]) -> Json:
        done = subprocess.run(
            command, env=self._environment(), capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX
        )
        return {"ok": done.returncode == 0, "words": (done.stderr or done.stdout)[-WORDS_MAX:]}

    def _environment(self) -> dict[str, str]:
        ours = f"{SOFTWARE}/usr/sbin:{SOFTWARE}/usr/bin:{SOFTWARE}/bin"
        return {**os.environ, "PATH": f"{ours}:{os.environ['PATH']}"}


def main(config: str, control_fd: int) -> None:
    setup: Setup = json.loads(Path(config).read_text())
    control = socket.socket(fileno=control_fd)
    _mount(setup)
    _network()
    # Their other ends are served outside: there are the API server and whoever knows its Services.
    api = socket.create_server(("127.0.0.1", setup["api_port"]), backlog=64)
    dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    dns.bind((BRIDGE_ADDRESS, DNS_PORT))
    socket.send_fds(control, [b"\n"], [api.fileno(), dns.fileno()])
    api.close()
    dns.close()
    _serve(control, Host(setup))


def _serve(control: socket.socket, host: Host) -> None:
    pending = b""
    while True:
        if not select.select([control], [], [], LOOK_SECONDS)[0]:
            _reap()
            continue
        if not (received := control.recv(65_536)):
            return
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            control.sendall(json.dumps(host.obey(json.loads(line))).encode() + b"\n")


def _reap() -> None:
    """Containers' guardians belong to nobody else: a first process buries the orphans."""
    own = Path("/proc/self/task/1/children").read_text().split()
    for pid in map(int, own):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "Z" and Path(f"/proc/{pid}/comm").read_text().startswith("containerd-shim"):
                os.waitpid(pid, os.WNOHANG)
        except (FileNotFoundError, ChildProcessError, ProcessLookupError):
            continue


def _mount(setup: Setup) -> None:
    """Short names for our folders; below /var and /run and in the kernel's settings nothing of the machine changes."""
    folders = {NODE: setup["folder"], SOFTWARE: setup["software"], KUBE: setup["kube"]}
    opened = {place: os.open(source, os.O_PATH) for place, source in folders.items()}
    _do_mount("tmpfs", RUN, "tmpfs")
    for place, descriptor in opened.items():
        place.mkdir()
        _do_mount(f"/proc/self/fd/{descriptor}", place, flags=MS_BIND)
        os.close(descriptor)
    for name in ("upper", "work", "netns", "lock"):
        (RUN / name).mkdir()
    _do_mount("overlay", Path("/var"), "overlay", f"lowerdir=/var,upperdir={RUN}/upper,workdir={RUN}/work")
    for link in ("run", "lock"):  # on most systems they are links into /run
        if not (Path("/var") / link).exists():
            (Path("/var") / link).symlink_to(RUN)
    for name in ("lib/kubelet/device-plugins", "log/pods", "log/containers"):
        shutil.rmtree(Path("/var") / name, ignore_errors=True)  # of a kubelet of the machine's own: hidden, not touched
        (Path("/var") / name).mkdir(parents=True)
    (RUN / "kernel").mkdir()
    for name, value in KERNEL_SETTINGS.items():
        real, ours = Path("/proc/sys") / name, RUN / "kernel" / name.replace("/", "-")
        if real.exists():
            ours.write_text(f"{value}\n")
            _do_mount(str(ours), real, flags=MS_BIND)


def _do_mount(source: str, target: Path, kind: str = "", options: str = "", flags: int = 0) -> None:
    if _LIBC.mount(source.encode(), bytes(target), kind.encode(), flags, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot mount {source} on {target}: {os.strerror(number)}")


def _network() -> None:
    """The loopback up, and a bridge with an address of its own: the node's, and the gateway of its pods."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        _bring_up(handle, "lo")
        fcntl.ioctl(handle, SIOCBRADDBR, BRIDGE.encode() + b"\0")
        for request, address in ((SIOCSIFADDR, BRIDGE_ADDRESS), (SIOCSIFNETMASK, BRIDGE_MASK)):
            packed = struct.pack("16sH2s4s8x", BRIDGE.encode(), socket.AF_INET, b"\0\0", socket.inet_aton(address))
            fcntl.ioctl(handle, request, packed)
        _bring_up(handle, BRIDGE)


def _bring_up(handle: socket.socket, name: str) -> None:
    asked = fcntl.ioctl(handle, SIOCGIFFLAGS, struct.pack("16sh22x", name.encode(), 0))
    flags: int = struct.unpack("16sh22x", asked)[1]
    fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack("16sh22x", name.encode(), flags | IFF_UP))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
