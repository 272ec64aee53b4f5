"""A real node for a test cluster: a kubelet with containerd, in namespaces of its own, with eight cards that we play.

Containers really run: they read their environment, get SIGTERM, write last words, and reach each other by name over a
bridge and a DNS of the node's own. The machine is left as it was: mounts, network and processes go with the first
process inside, and the control groups are taken away by a watch.
"""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from tests.kube.client import Json
from tests.kube.cluster import KubeCluster
from tests.kube.commands import REAL_NODE
from tests.kube.node import cgroups, configs, dns, images, packages, relay
from tests.kube.node.configs import CONTAINERD, KUBELET, PLUGIN
from tests.kube.node.places import CARDS, RESOURCE, Order, Setup
from tests.kube.objects import NodeShape, gpu_labels
from tests.kube.processes import dying_with_us

REPOSITORY = Path(__file__).resolve().parents[3]
ANSWER_SECONDS_MAX = 90
READY_SECONDS_MAX = 60.0
EXIT_SECONDS_MAX = 30
MANY_DESCRIPTORS = 2


class NodeFailed(Exception):
    """Something inside the node went wrong; the message carries its words."""


class RealNode:
    """The node `real-0` of one cluster, from `with` to its end. Its software is that of `packages.software()`."""

    def __init__(self, kube: KubeCluster, folder: Path, programs: Path, software: Path) -> None:
        self.name = REAL_NODE
        self._kube = kube
        self._folder = folder
        self._programs = programs
        self._software = software
        self._cgroup = f"{cgroups.PREFIX}{os.getpid()}-{kube.name}"
        self._control: socket.socket | None = None
        self._pending = b""
        self._healthy = len(CARDS)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # What tests do with it

    def start_kubelet(self) -> None:
        """The kubelet starts, or starts again; returns when it says of itself that it is Ready with its cards."""
        if self.is_kubelet_running():
            self.kill_kubelet()
        started = datetime.now(UTC)
        self._ask({"do": "start", "name": KUBELET})
        self._kube.wait_for(
            lambda: self._is_ready(started), f"{self.name} to be ready with its cards", READY_SECONDS_MAX
        )

    def kill_kubelet(self) -> None:
        """`kill -9`: its containers run on, and nobody tells of them."""
        self._ask({"do": "kill", "name": KUBELET})

    def is_kubelet_running(self) -> bool:
        return KUBELET in self._ask({"do": "look"})["running"]

    def set_healthy_devices(self, count: int) -> None:
        """The plugin says that the first `count` cards are healthy and the others are not."""
        self._healthy = count
        self._ask({"do": "tell", "name": PLUGIN, "text": f"healthy {count}"})

    def add_image(self, name: str) -> None:
        """As if somebody had pulled it: the programs' image, under another name."""
        self._ask({"do": "run", "command": configs.tag_command(images.PROGRAM, name)})

    def run_inside(self, *command: str) -> str:
        """What a command prints that is run among the node's processes, to look around."""
        return str(self._ask({"do": "run", "command": list(command)})["words"])

    # Its life

    def _begin(self) -> None:
        cgroups.sweep()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._watch_cgroups()
        configs.write(self._folder, self._cgroup)
        self._kube.write_node_kubeconfig(self._folder / "kubelet.kubeconfig")
        busybox = packages.found(self._software, packages.BUSYBOX)
        assert busybox is not None, "packages.software() has seen it"
        archives = images.write(self._folder, busybox)
        self._unshare()
        self._serve_outside()
        self._ask({"do": "start", "name": CONTAINERD})
        for archive in archives:
            self._ask_until_done({"do": "run", "command": configs.import_command(archive.name)})
        self._ask({"do": "start", "name": PLUGIN})

    def _watch_cgroups(self) -> None:
        command = [sys.executable, "-m", "tests.kube.node.cgroups", self._cgroup]
        watch = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=REPOSITORY, start_new_session=True)
        self._stack.callback(watch.communicate, timeout=EXIT_SECONDS_MAX)  # closes its stdin, and waits
        cgroups.make(self._cgroup)

    def _unshare(self) -> None:
        setup: Setup = {
            "folder": str(self._folder),
            "software": str(self._software),
            "kube": str(self._programs),
            "cwd": str(REPOSITORY),
            "api_port": self._kube.port,
            "programs": configs.programs(self.name, gpu_labels(NodeShape(gpus=len(CARDS)))),
        }
        config = self._folder / "setup.json"
        config.write_text(json.dumps(setup))
        ours, theirs = socket.socketpair()
        command = ["unshare", *packages.NAMESPACES, sys.executable, "-m", "tests.kube.node.inside"]
        with theirs, (self._folder / "inside.log").open("ab") as sink:
            process = subprocess.Popen(
                [*command, str(config), str(theirs.fileno())],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                preexec_fn=dying_with_us(),  # noqa: PLW1509 - two system calls, no lock is taken in there
            )
        self._stack.callback(process.wait, EXIT_SECONDS_MAX)
        self._stack.callback(process.kill)
        self._stack.callback(ours.close)
        ours.settimeout(ANSWER_SECONDS_MAX)
        self._control = ours

    def _serve_outside(self) -> None:
        """What its programs reach on this machine: the API server, and a DNS that asks it."""
        assert self._control is not None
        greeting, descriptors, _, _ = socket.recv_fds(self._control, 1, MANY_DESCRIPTORS)
        if not greeting:
            raise NodeFailed(f"the first process inside has ended:\n{self._log('inside')}")
        api, names = (socket.socket(fileno=each) for each in descriptors)
        client = self._kube.another_client()
        self._stack.callback(client.close)
        for each in (api, names):
            self._stack.callback(each.close)
        self._stack.callback(api.shutdown, socket.SHUT_RDWR)
        relay.serve(api, self._kube.port)

        def slices(namespace: str, service: str) -> list[Json]:
            return client.list_all("EndpointSlice", namespace, labels=f"kubernetes.io/service-name={service}")

        dns.serve(names, slices)

    def _is_ready(self, since: datetime) -> bool:
        if not self.is_kubelet_running():
            raise NodeFailed(f"the kubelet has ended:\n{self._log(KUBELET)}")
        found = self._kube.client.find("Node", self.name)
        lease = self._kube.client.find("Lease", self.name, "kube-node-lease")
        if found is None or lease is None or datetime.fromisoformat(lease["spec"]["renewTime"]) < since:
            return False  # what is there was said by the kubelet before
        ready = {each["type"]: each["status"] for each in found["status"]["conditions"]}.get("Ready")
        return ready == "True" and found["status"]["allocatable"].get(RESOURCE) == str(self._healthy)

    # Talking to the first process inside

    def _ask(self, order: Order) -> Json:
        assert self._control is not None, "the node is not running"
        self._control.sendall(json.dumps(order).encode() + b"\n")
        while b"\n" not in self._pending:
            if not (received := self._control.recv(65_536)):
                raise NodeFailed(f"the first process inside has ended:\n{self._log('inside')}")
            self._pending += received
        line, _, self._pending = self._pending.partition(b"\n")
        answer: Json = json.loads(line)
        if not answer["ok"]:
            raise NodeFailed(f"{order}: {answer.get('words')}")
        return answer

    def _ask_until_done(self, order: Order) -> None:
        """Until the program behind it is up."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            try:
                self._ask(order)
            except NodeFailed as error:
                if time.monotonic() > deadline:
                    raise NodeFailed(f"{error}\n{self._log(CONTAINERD)}") from error
                time.sleep(0.1)
            else:
                return

    def _log(self, name: str) -> str:
        file = self._folder / f"{name}.log"
        return file.read_text(errors="replace")[-3_000:] if file.exists() else ""
