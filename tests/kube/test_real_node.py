"""The real node itself: containers run on it, and the machine is left as it was.

That it can be broken, by a killed kubelet and by withdrawn cards, the stories show: `tests/e2e/test_real_node.py`.
"""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.client import Json
from tests.kube.cluster import KubeCluster
from tests.kube.node import cgroups, dns, images, packages
from tests.kube.node.inside import KERNEL_SETTINGS
from tests.kube.node.node import RealNode
from tests.kube.node.packages import NodeUnavailable, software
from tests.kube.node.places import BRIDGE, KUBE, NODE, RESOURCE, SOFTWARE
from tests.kube.node.wire import decode, encode
from tests.support.waiting import eventually

STARTER = textwrap.dedent("""
    import signal, sys
    from pathlib import Path
    from tests.kube.cluster import KubeCluster
    from tests.kube.node.node import RealNode
    folder, programs, software = map(Path, sys.argv[1:])
    cluster = KubeCluster("orphan", folder / "kube", programs)
    cluster.start()
    node = RealNode(cluster, folder / "node", programs, software)
    node.__enter__()
    node.start_kubelet()
    print("ready", flush=True)
    signal.pause()
""")


@pytest.fixture
def node(kube: KubeCluster, kube_programs: Path, node_software: Path, tmp_path: Path) -> Iterator[RealNode]:
    with RealNode(kube, tmp_path, kube_programs, node_software) as started:
        started.start_kubelet()
        yield started


def a_pod(name: str, namespace: str, script: str, devices: int = 0) -> Json:
    """A pod that runs a shell script in a real container, and keeps the last lines of one that fails."""
    limits = {RESOURCE: str(devices)} if devices else {}
    container = {
        "name": "main",
        "image": images.PROGRAM,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "resources": {"limits": limits},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def state_of(kube: KubeCluster, namespace: str, name: str, state: str) -> Json:
    """The state of its one container, once it is that."""

    def look() -> Json:
        statuses = kube.client.get("Pod", name, namespace)["status"].get("containerStatuses", [{"state": {}}])
        found: Json = statuses[0]["state"].get(state, {})
        return found

    return kube.wait_for(look, f"pod {name} to be {state}")


def test_a_real_container_sees_its_cards_and_its_last_line_is_kept(kube: KubeCluster, node: RealNode) -> None:
    namespace = kube.new_namespace()
    script = "trap 'echo saved at step 7; exit 3' TERM; echo $NVIDIA_VISIBLE_DEVICES; while true; do sleep 0.1; done"
    kube.client.create(a_pod("one", namespace, script, devices=3))
    state_of(kube, namespace, "one", "running")
    before = kube.client.version_now("Pod")

    kube.client.delete("Pod", "one", namespace)
    kube.wait_for(lambda: kube.client.find("Pod", "one", namespace) is None, "the pod to be gone")

    last = kube.client.events_since(before, "Pod", "")[-1]["object"]["status"]["containerStatuses"][0]
    cards, words = last["state"]["terminated"]["message"].splitlines()
    assert words == "saved at step 7"
    given = {each["resourceID"] for each in last["allocatedResourcesStatus"][0]["resources"]}
    assert set(cards.split(",")) == given
    assert len(given) == 3


def test_the_machine_is_left_as_it_was(
    kube: KubeCluster, kube_programs: Path, node_software: Path, tmp_path: Path
) -> None:
    before = traces(tmp_path)
    with RealNode(kube, tmp_path, kube_programs, node_software) as node:
        node.start_kubelet()
        assert our_cgroups(os.getpid()), "its pods must be somewhere"
        assert traces(tmp_path) == before
    assert not our_cgroups(os.getpid())
    assert traces(tmp_path) == before


def traces(folder: Path) -> dict[str, object]:
    """What a kubelet and a container runtime would change of a machine. Others may change theirs meanwhile."""
    settings = {name: Path("/proc/sys", name) for name in KERNEL_SETTINGS}
    mounts = Path("/proc/mounts").read_text().splitlines()
    ours = (str(folder), *map(str, (NODE, KUBE, SOFTWARE)))
    return {
        "settings": {name: path.read_text() for name, path in settings.items() if path.exists()},
        "bridge": BRIDGE in Path("/proc/net/dev").read_text(),
        "mounts": [line for line in mounts if any(place in line for place in ours)],
        "folders": [
            Path(name).exists() for name in ("/var/lib/kubelet", "/var/log/pods", "/etc/cni", "/opt/containerd")
        ],
    }


def our_cgroups(owner: int) -> list[Path]:
    return [path for tree in cgroups.hierarchies() for path in tree.glob(f"{cgroups.PREFIX}{owner}-*")]


def test_nothing_of_a_node_outlives_a_killed_test_run(kube_programs: Path, node_software: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path), str(kube_programs), str(node_software)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "."}) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        assert our_cgroups(run.pid)
        namespaces = namespaces_of(str(tmp_path / "node"))
        assert len(inhabitants(namespaces)) > 3

        run.send_signal(signal.SIGKILL)
        run.wait()

    eventually(lambda: not inhabitants(namespaces), within=30, what="no process left")
    eventually(lambda: not our_cgroups(run.pid), within=60, what="no control group left")
    assert BRIDGE not in Path("/proc/net/dev").read_text()


def namespaces_of(words: str) -> set[Path]:
    """The process namespaces, other than ours, of processes whose command line has these words."""
    ours = Path("/proc/self/ns/pid").readlink()
    return {namespace for line, namespace in processes() if words in line} - {ours}


def inhabitants(namespaces: set[Path]) -> list[str]:
    return [line for line, namespace in processes() if namespace in namespaces]


def processes() -> Iterator[tuple[str, Path]]:
    """The command line of each process of the machine, and its process namespace."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            yield line, (path / "ns" / "pid").readlink()


def test_where_no_namespaces_are_given_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusing = tmp_path / "unshare"
    refusing.write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2; exit 1\n")
    refusing.chmod(0o755)
    for name in ("apt-get", "dpkg-deb"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    with pytest.raises(NodeUnavailable, match=r"root|Operation not permitted"):
        software()


@pytest.mark.parametrize("busybox", ["bin/busybox", "usr/bin/busybox"], ids=["Debian 12", "Debian 13"])
def test_programs_are_found_where_this_systems_packages_hold_them(busybox: str, tmp_path: Path) -> None:
    others = [name for name in packages.PROGRAMS if name != packages.BUSYBOX]
    for name in (*others, busybox):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert packages.found(tmp_path, packages.BUSYBOX) == tmp_path / busybox
    assert packages.missing(tmp_path) is None
    (tmp_path / others[0]).unlink()
    assert packages.missing(tmp_path) == others[0]


def slices(namespace: str, service: str) -> list[Json]:
    """One Service `svc` in `ns` with two members, one of them not to be told of yet."""
    if (namespace, service) != ("ns", "svc"):
        return []
    members = [("one", "10.88.0.2", True), ("two", "10.88.0.3", False)]
    return [
        {
            "endpoints": [
                {"hostname": name, "addresses": [address], "conditions": {"ready": is_ready}}
                for name, address, is_ready in members
            ]
        }
    ]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("one.svc.ns.svc.cluster.local", ["10.88.0.2"]),
        ("ONE.svc.ns.svc.cluster.local.", ["10.88.0.2"]),
        ("svc.ns.svc.cluster.local", ["10.88.0.2"]),
        ("two.svc.ns.svc.cluster.local", None),
        ("one.svc.ns.svc", None),
        ("other.ns.svc.cluster.local", None),
        ("a.b.svc.ns.svc.cluster.local", None),
        ("registry.example", None),
    ],
)
def test_names_are_those_of_headless_services_and_their_members(name: str, found: list[str] | None) -> None:
    assert dns.addresses(name, slices) == found


def test_a_message_comes_back_from_its_encoding() -> None:
    long = "x" * 300
    message = encode((1, long), (2, encode((1, "inner"))), (16, True))
    assert list(decode(message)) == [(1, long.encode()), (2, encode((1, "inner"))), (16, 1)]


def test_a_message_that_ends_in_its_middle_is_refused() -> None:
    with pytest.raises(ValueError, match="middle"):
        list(decode(b"\x0a"))
