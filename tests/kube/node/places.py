"""Where things are inside a real node, and what both sides of its control socket say; constants and shapes only."""

from pathlib import Path
from typing import Any, TypedDict

RUN = Path("/run")
NODE, SOFTWARE, KUBE = RUN / "node", RUN / "software", RUN / "kube"
"""The node's own folder, Debian's programs, and Kubernetes' programs."""

CONTAINERD_SOCKET = RUN / "containerd" / "containerd.sock"
BRIDGE, BRIDGE_ADDRESS, BRIDGE_MASK, POD_SUBNET = "muster0", "10.88.0.1", "255.255.255.0", "10.88.0.0/24"
DNS_PORT = 53
CLUSTER_DOMAIN = "cluster.local"

RESOURCE = "nvidia.com/gpu"
CARDS = tuple(f"GPU-{number:08x}-0000-4000-8000-000000000000" for number in range(8))
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""What the device plugin sells, the names of its cards, and the variable by which a container learns of its own."""

Order = dict[str, Any]


class ProgramSetup(TypedDict):
    """How to start one program; `listens`: it takes lines on stdin."""

    command: list[str]
    listens: bool


class Setup(TypedDict):
    """What the first process inside is told. Folders are named as they are outside."""

    folder: str
    software: str
    kube: str
    cwd: str
    api_port: int
    programs: dict[str, ProgramSetup]
