"""NVIDIA devices from node status and GPU Feature Discovery's labels, where no better source speaks.

Counts come from capacity and allocatable, words from labels: labels describe, they do not count. Whole cards are
reported one by one; shared cards as cards with slots; MIG partitions as partitions, never as cards. Names of devices
are synthetic (which card is which only the driver knows).
"""

import re
from dataclasses import dataclass

from agents import quantities
from agents.devices.base import Reading
from agents.facts import NodeFacts, cut
from controlplane.contract.agent.inventory import DeviceReport, HealthReason

PREFIX = "nvidia.com/"
GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
MIG = re.compile(r"nvidia\.com/mig-(?P<profile>[0-9]+g\.[0-9]+gb(?:\.[a-z0-9.]+?)?)(?P<shared>\.shared)?")
SUFFIX_SHARED = "-SHARED"
SUFFIX_MIG = re.compile(r"-MIG-(?P<profile>INVALID|[0-9]+g\.[0-9]+gb(?:[.+][a-z0-9.+]+)?)$")
SETTLED_LAYOUTS = frozenset({"", "success", "failed"})
DEVICES_PER_RESOURCE_MAX = 1024
HEALTHY_NOT = HealthReason(source="kubelet", code="allocatable<capacity", text="the device plugin withdrew it")
MOVING = HealthReason(source="label", code="mig.config.state", text="the MIG layout is being changed")


@dataclass(frozen=True, slots=True)
class _Labels:
    """What feature discovery says of the one model that it labels."""

    product: str
    suffix_profile: str
    is_shared_product: bool
    memory_mib: int | None
    arch: str
    compute_capability: str
    replicas: int
    sharing: str
    strategy: str
    count: int | None
    layout: str

    @property
    def is_moving(self) -> bool:
        return self.layout not in SETTLED_LAYOUTS


class NvidiaReader:
    """Device plugin and feature discovery."""

    def matches(self, node: NodeFacts) -> bool:
        names = (*node.capacity, *node.allocatable)
        return any(name.startswith(PREFIX) for name in names) or f"{GPU}.product" in node.labels

    def read(self, node: NodeFacts) -> Reading:
        labels, reading = _labels(node), Reading()
        if driver := _driver(node):
            reading.driver_versions["nvidia"] = driver
        if labels.suffix_profile == "INVALID":
            reading.disagree("mig-invalid", "no device can be asked for", product=labels.product)
        for resource in sorted({*node.capacity, *node.allocatable}):
            if resource in (GPU, SHARED):
                reading.resources.add(resource)
                _read_cards(node, resource, labels, reading)
            elif found := MIG.fullmatch(resource):
                reading.resources.add(resource)
                _read_partitions(node, resource, found, labels, reading)
        _compare_with_labels(labels, reading)
        return reading


def _read_cards(node: NodeFacts, resource: str, labels: _Labels, reading: Reading) -> None:
    """Whole cards, shared cards, or (strategy single) partitions under the card's resource name."""
    numbers = _numbers(node, resource, reading)
    if numbers is None:
        return
    capacity, allocatable = numbers
    profile = "" if labels.suffix_profile == "INVALID" else labels.suffix_profile
    profile = profile or node.labels.get("cloud.google.com/gke-gpu-partition-size", "")
    shared = resource == SHARED or labels.is_shared_product
    slots = labels.replicas if labels.replicas > 1 and shared else 1
    if capacity % slots:
        reading.disagree("capacity-not-divisible", "whole devices only", capacity=capacity, replicas=slots)
    kind = "partition" if profile else "card"
    template = _template(node, resource, labels, profile).model_copy(
        update={
            "kind": "slot_pool" if slots > 1 and not profile else kind,
            "slots_total": slots,
            "sharing": ("mig" if profile else "none") if slots == 1 else labels.sharing,
        }
    )
    reading.devices += _devices(template, capacity // slots, allocatable // slots, labels)


def _read_partitions(node: NodeFacts, resource: str, name: re.Match[str], labels: _Labels, reading: Reading) -> None:
    """Strategy mixed: each profile is a resource of its own. Zero of it is no partition."""
    numbers = _numbers(node, resource, reading)
    if numbers is None or numbers[0] == 0:
        return
    prefix = f"{PREFIX}mig-{name['profile']}"
    replicas = quantities.label_number(node.labels.get(f"{prefix}.replicas")) or 1
    slots = replicas if name["shared"] else 1
    profile = re.sub(r"(?<=gb)\.", "+", name["profile"])
    template = _template(node, resource, labels, profile).model_copy(
        update={
            "kind": "partition",
            "memory_mib": quantities.label_number(node.labels.get(f"{prefix}.memory")),
            "slots_total": slots,
            "sharing": "mig",
        }
    )
    reading.devices += _devices(template, numbers[0] // slots, numbers[1] // slots, labels)


def _template(node: NodeFacts, resource: str, labels: _Labels, profile: str) -> DeviceReport:
    return DeviceReport(
        device_key=f"{node.uid}/{resource}",
        key_quality="synthetic",
        vendor="nvidia",
        resource=resource,
        model_raw=cut(labels.product),
        arch=cut(labels.arch),
        compute_capability=cut(labels.compute_capability),
        memory_mib=labels.memory_mib,
        profile=cut(profile),
        nvlink_domain=_nvlink_domain(node),
        sources=["capacity", "label"] if labels.product else ["capacity"],
    )


def _devices(template: DeviceReport, total: int, healthy: int, labels: _Labels) -> list[DeviceReport]:
    """`total` devices, of which the first `healthy` can be asked for: which ones are ill, nobody says here."""
    found = []
    for index in range(min(total, DEVICES_PER_RESOURCE_MAX)):
        update: dict[str, object] = {"device_key": f"{template.device_key}/#{index}"}
        if index < healthy:
            update["slots_allocatable"] = template.slots_total
        else:
            update["slots_allocatable"] = 0
            update["health"] = "unknown" if labels.is_moving else "unhealthy"
            update["health_reasons"] = [MOVING if labels.is_moving else HEALTHY_NOT]
        found.append(template.model_copy(update=update))
    return found


def _numbers(node: NodeFacts, resource: str, reading: Reading) -> tuple[int, int] | None:
    """Capacity and what is usable of it, cut to capacity; None where either is no whole number."""
    raw_capacity, raw_allocatable = node.capacity.get(resource, "0"), node.allocatable.get(resource, "0")
    capacity, allocatable = quantities.count(raw_capacity), quantities.count(raw_allocatable)
    if capacity is None or allocatable is None:
        reading.disagree(
            "quantity-invalid", "not counted", resource=resource, capacity=raw_capacity, allocatable=raw_allocatable
        )
        return None
    if capacity > DEVICES_PER_RESOURCE_MAX * 128:
        reading.disagree("quantity-invalid", "not counted", resource=resource, capacity=capacity)
        return None
    if allocatable < capacity:
        reading.disagree(
            "allocatable-below-capacity", "allocatable", resource=resource, capacity=capacity, allocatable=allocatable
        )
    return capacity, min(capacity, allocatable)


def _compare_with_labels(labels: _Labels, reading: Reading) -> None:
    """The count label is a hint: shown where it disagrees, never counted."""
    if not labels.product and reading.devices:
        reading.disagree("labels-missing", "capacity", devices=len(reading.devices))
    if labels.product and not reading.resources:
        reading.disagree("labels-frozen", "no device can be asked for", count=labels.count, product=labels.product)
    cards = [device for device in reading.devices if device.kind != "partition"]
    is_partitioned = len(cards) != len(reading.devices)
    is_comparable = bool(cards) and labels.count is not None and labels.strategy != "single" and not is_partitioned
    if is_comparable and labels.count != len(cards):
        reading.disagree("count-label-vs-capacity", "capacity", label=labels.count, capacity=len(cards))


def _labels(node: NodeFacts) -> _Labels:
    text = node.labels.get
    product = text(f"{GPU}.product", "") or text("cloud.google.com/gke-accelerator", "")
    is_shared = product.endswith(SUFFIX_SHARED)
    product = product.removesuffix(SUFFIX_SHARED)
    suffix = SUFFIX_MIG.search(product)
    major, minor = text(f"{GPU}.compute.major", ""), text(f"{GPU}.compute.minor", "")
    return _Labels(
        product=product[: suffix.start()] if suffix else product,
        suffix_profile=suffix["profile"] if suffix else "",
        is_shared_product=is_shared,
        memory_mib=quantities.label_number(text(f"{GPU}.memory")) or None,
        arch=text(f"{GPU}.family", ""),
        compute_capability=f"{major}.{minor or 0}" if major else "",
        replicas=quantities.label_number(text(f"{GPU}.replicas")) or 1,
        sharing=text(f"{GPU}.sharing-strategy", "") or "time-slicing",
        strategy=text("nvidia.com/mig.strategy", ""),
        count=quantities.label_number(text(f"{GPU}.count")),
        layout=text("nvidia.com/mig.config.state", ""),
    )


def _driver(node: NodeFacts) -> str:
    full = node.labels.get("nvidia.com/cuda.driver-version.full", "")
    if full:
        return cut(full)
    parts = [node.labels.get(f"nvidia.com/cuda.driver.{part}", "") for part in ("major", "minor", "rev")]
    return cut(".".join(part for part in parts if part))


def _nvlink_domain(node: NodeFacts) -> str | None:
    """`<ClusterUUID>.<CliqueID>`: the domain is what stands before the last dot."""
    clique = node.labels.get(f"{GPU}.clique", "")
    return cut(clique.rpartition(".")[0]) or None
