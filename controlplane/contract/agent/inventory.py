"""Vendor-neutral hardware facts: what a cluster owns, what is usable, who else uses it.

Agents report facts; the plane derives Flavor names from vendor, model, memory and profile. Missing is not
zero: an unknown number is None.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from controlplane.contract.agent.base import Amount, Key, Moment, Text, WireModel, Words

RDMA_RESOURCES = ("rdma/", "nvidia.com/rdma", "vpc.amazonaws.com/efa")
"""Prefixes of Kubernetes resources that are network cards by which pods reach past the kernel; counted together."""

LABELS_NOT_TOLD = ("feature.node.kubernetes.io/cpu-cpuid.", "nvidia.com/gpu.deploy.", "nvidia.com/gfd.timestamp")
"""Prefixes of node labels that no report carries: dozens per node, and some change all the time."""


class HealthReason(WireModel):
    """Why a device is not ok; `code` as in `xid:79`, `condition:…`, `allocatable<capacity`."""

    source: Text
    code: Text
    text: Words = ""
    since: Moment | None = None


class DeviceReport(WireModel):
    """One physical card, partition, or pool of shared slots."""

    device_key: Key
    key_quality: Literal["uuid", "dra", "pci", "synthetic"]
    vendor: Text
    kind: Literal["card", "partition", "slot_pool", "tpu_chip", "fpga", "virtual"] = "card"
    parent_key: Key | None = None
    resource: Key  # the Kubernetes resource that a pod asks for
    model_raw: Text = ""
    arch: Text = ""
    compute_capability: Text = ""
    memory_mib: Amount | None = None
    profile: Text = ""
    slots_total: Annotated[int, Field(ge=0, le=100_000)] = 1
    slots_allocatable: Annotated[int, Field(ge=0, le=100_000)] = 1
    sharing: Text = "none"
    pci_bus_id: Text | None = None
    nvlink_domain: Text | None = None
    health: Literal["ok", "warn", "unhealthy", "lost", "unknown"] = "ok"
    health_reasons: list[HealthReason] = Field(default_factory=list, max_length=32)
    sources: list[Text] = Field(default_factory=list, max_length=8)


class ResourceCount(WireModel):
    """What the API server says of one extended resource of a node, and what pods that are not ours ask of it."""

    resource: Key
    capacity: Amount
    allocatable: Amount
    foreign: Amount = 0


class ForeignPod(WireModel):
    """A bound, not finished pod that is not ours and asks for devices."""

    namespace: Text
    name: Text
    uid: Text
    owner: Text = ""
    resource: Key
    amount: Amount


class DiscrepancyReport(WireModel):
    """Two sources that disagree, and which is believed."""

    code: Text
    values: dict[Key, Words] = Field(default_factory=dict, max_length=64)
    believed: Text = ""


class NodeReport(WireModel):
    """One node, whole. CPU in millicores, memory, huge pages and local disk in bytes, RDMA in interfaces, pods: each
    what the node allows less what foreign pods take. None: the agent is of a version that does not tell.
    """

    uid: Text
    name: Text
    kind: Literal["real", "virtual", "fake"] = "real"
    ready: bool
    ready_changed_at: Moment | None = None
    cordoned: bool = False
    deleting: bool = False
    taints: list[dict[str, Text]] = Field(default_factory=list, max_length=64)
    labels: dict[Key, Text] = Field(default_factory=dict, max_length=256)
    domains: dict[Text, Text] = Field(default_factory=dict, max_length=8)  # level -> domain; host is implied
    cpu_milli: Amount = 0
    memory_bytes: Amount = 0
    pods: Amount = 110  # the kubelet's default
    rdma: Amount | None = None
    hugepages_bytes: Amount | None = None
    local_storage_bytes: Amount | None = None
    instance_type: Text = ""
    provider_id: Text = ""
    driver_versions: dict[Text, Text] = Field(default_factory=dict, max_length=8)
    resources: list[ResourceCount] = Field(default_factory=list, max_length=64)
    devices: list[DeviceReport] = Field(default_factory=list, max_length=1024)
    foreign_pods: list[ForeignPod] = Field(default_factory=list, max_length=256)
    discrepancies: list[DiscrepancyReport] = Field(default_factory=list, max_length=32)


class InventoryDelta(WireModel):
    """Nodes that changed since the last acknowledged revision; `whole` replaces all.

    A node missing from a whole list is marked removed, since the list is complete by contract: the agent
    sends it only after a full list of the API server. `digest` is over the complete inventory (sha256 hex
    of the sorted (uid, node digest) pairs): where the plane's differs, it asks for a whole list.
    """

    revision: Amount
    whole: bool = False
    levels: list[Text] = Field(default_factory=lambda: ["host"], max_length=8)  # coarse to fine, host last
    nodes: list[NodeReport] = Field(default_factory=list, max_length=5_000)
    # With `whole`, where not all nodes fit into one request: the uid of every node of the cluster. Then a node is
    # removed if it is not among these, and the nodes that are missing from `nodes` follow as ordinary deltas.
    uids: list[Text] = Field(default_factory=list, max_length=20_000)
    removed: list[Text] = Field(default_factory=list, max_length=5_000)  # uids of deleted Node objects
    digest: Text = ""


_ADDED = {
    name: NodeReport.model_fields[name].default for name in ("pods", "rdma", "hugepages_bytes", "local_storage_bytes")
}


def node_digest(report: NodeReport) -> str:
    """SHA-256 over the report's canonical JSON, so that both sides count the same."""
    told = report.model_dump(mode="json")
    # An older peer does not know these, and must count the same where they say nothing new.
    told = {name: value for name, value in told.items() if name not in _ADDED or value != _ADDED[name]}
    text = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def inventory_digest(pairs: Iterable[tuple[str, str]]) -> str:
    """The `digest` of a delta: over every node's (uid, node digest)."""
    text = "\n".join(f"{uid} {digest}" for uid, digest in sorted(pairs))
    return hashlib.sha256(text.encode()).hexdigest()
