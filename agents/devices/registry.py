"""The vendor table: which readers exist, and what they say of one node together.

A resource that no reader explains is named and not counted: unknown names must survive, and must not become cards.
"""

from agents.devices.base import DeviceReader, Reading
from agents.devices.nvidia import PREFIX as NVIDIA
from agents.devices.nvidia import NvidiaReader
from agents.facts import NodeFacts

READERS: tuple[DeviceReader, ...] = (NvidiaReader(),)
DEVICE_PREFIXES = (NVIDIA,)

# Extended by name, but no accelerators: the kubelet's own, and network cards.
NOT_DEVICES = ("hugepages-", "attachable-volumes-", "rdma/", "vpc.amazonaws.com/", "nvidia.com/rdma")
DEVICES_MAX = 1024
DISCREPANCIES_MAX = 32


def read_devices(node: NodeFacts) -> Reading:
    """Everything that the vendors' readers find on a node."""
    whole = Reading()
    for reader in READERS:
        if reader.matches(node):
            part = reader.read(node)
            whole.devices += part.devices
            whole.resources |= part.resources
            whole.driver_versions |= part.driver_versions
            whole.discrepancies += part.discrepancies
    for name in extended(node):
        if name not in whole.resources:
            whole.disagree("unknown-resource", "not counted", resource=name, capacity=node.capacity.get(name, ""))
    if len(whole.devices) > DEVICES_MAX:
        whole.disagree("too-many-devices", "cut", found=len(whole.devices), kept=DEVICES_MAX)
        whole.devices = whole.devices[:DEVICES_MAX]
    whole.discrepancies = whole.discrepancies[:DISCREPANCIES_MAX]
    return whole


def is_device(resource: str) -> bool:
    """Whether a reader counts this resource, on nodes that have it."""
    return resource.startswith(DEVICE_PREFIXES) and not resource.startswith(NOT_DEVICES)


def extended(node: NodeFacts) -> list[str]:
    """Names of the node's extended resources, sorted."""
    names = {*node.capacity, *node.allocatable}
    return sorted(name for name in names if "/" in name and not name.startswith(NOT_DEVICES))
