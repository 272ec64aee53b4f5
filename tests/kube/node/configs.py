"""The configuration files and command lines of a real node's programs; pure but for writing the files.

Paths are those of inside the node (`places.py`), where the node's folder has a short name.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.kube.node import images
from tests.kube.node.places import (
    BRIDGE,
    BRIDGE_ADDRESS,
    CLUSTER_DOMAIN,
    CONTAINERD_SOCKET,
    KUBE,
    NODE,
    POD_SUBNET,
    RUN,
    SOFTWARE,
    ProgramSetup,
)

CONTAINERD, KUBELET, PLUGIN = "containerd", "kubelet", "deviceplugin"
STATUS_SECONDS = 1
LEASE_SECONDS = 8  # a quarter of it is how often the kubelet says that it lives
CTR = (f"{SOFTWARE}/usr/bin/ctr", f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io", "images")
CONTAINERD_CONFIG = f"""\
version = 2
root = "{NODE}/containerd"
state = "{RUN}/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{images.PAUSE}"
restrict_oom_score_adj = true  # else no sandbox starts where a process may not lower its score
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{SOFTWARE}/usr/lib/cni"
conf_dir = "{NODE}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"  # copies; works on every file system, and the images are small
"""


def write(folder: Path, cgroup: str) -> None:
    """Everything that the command lines refer to, but for images, key and kubeconfig."""
    (folder / "containerd.toml").write_text(CONTAINERD_CONFIG)
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(cgroup)))
    (folder / "resolv.conf").write_text(f"nameserver {BRIDGE_ADDRESS}\n")
    (folder / "cni").mkdir(exist_ok=True)
    (folder / "cni" / "10-muster.conflist").write_text(json.dumps(_cni()))


def programs(name: str, labels: Mapping[str, str]) -> dict[str, ProgramSetup]:
    """How each program is started, in the order of starting."""
    kubelet = [
        f"{KUBE}/kubelet",
        f"--kubeconfig={NODE}/kubelet.kubeconfig",
        f"--config={NODE}/kubelet.json",
        f"--root-dir={NODE}/kubelet",
        f"--cert-dir={NODE}/kubelet-certificates",
        f"--hostname-override={name}",
        f"--node-ip={BRIDGE_ADDRESS}",
        f"--node-labels={','.join(f'{key}={value}' for key, value in labels.items())}",
    ]
    return {
        CONTAINERD: {
            "command": [f"{SOFTWARE}/usr/bin/containerd", f"--config={NODE}/containerd.toml"],
            "listens": False,
        },
        PLUGIN: {"command": [sys.executable, "-m", "tests.kube.node.deviceplugin"], "listens": True},
        KUBELET: {"command": kubelet, "listens": False},
    }


def import_command(archive: str) -> list[str]:
    """To run inside, once containerd answers."""
    return [*CTR, "import", "--snapshotter=native", f"{NODE}/{archive}"]


def tag_command(image: str, name: str) -> list[str]:
    """To run inside: give an image another name."""
    return [*CTR, "tag", image, name]


def _kubelet(cgroup: str) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": BRIDGE_ADDRESS,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},  # nobody but its own pods reaches it
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "clusterDNS": [BRIDGE_ADDRESS],
        "clusterDomain": CLUSTER_DOMAIN,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "enforceNodeAllocatable": ["none"],
        "evictionHard": {"memory.available": "10Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "maxPods": 30,
        "nodeLeaseDurationSeconds": LEASE_SECONDS,
        "nodeStatusReportFrequency": "5s",
        "nodeStatusUpdateFrequency": f"{STATUS_SECONDS}s",
        "oomScoreAdj": 0,
        "readOnlyPort": 0,
        "resolvConf": f"{NODE}/resolv.conf",
        "volumePluginDir": f"{NODE}/volume-plugins",
    }


def _cni() -> dict[str, object]:
    ipam = {"type": "host-local", "ranges": [[{"subnet": POD_SUBNET}]], "dataDir": f"{NODE}/addresses"}
    bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "ipMasq": False, "ipam": ipam}
    return {"cniVersion": "0.4.0", "name": "muster", "plugins": [bridge]}
