"""A world file's Cluster document as Kubernetes nodes, labelled as NVIDIA's feature discovery would label them.

Reads `spec.nodes` of the Cluster with the asked name and the `Faults` document of the same name; everything else in the
file is for the plane. Shapes follow documents that the plane validates in full.
"""

import hashlib
import re
import uuid
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.facts import HOSTNAME, HUGEPAGES, LOCAL_STORAGE, Json

GPU = "nvidia.com/gpu"
RDMA_NAME = "rdma/hca"
LEVEL_LABEL = "topology.muster.dev/"
MEMORY = re.compile(r"(?P<gigabytes>[0-9]+)gb")
# What `nvidia-smi` calls the cards, and their MiB.
PRODUCTS = {
    "nvidia-t4-16gb": ("Tesla-T4", 15360, "turing"),
    "nvidia-a100-40gb": ("NVIDIA-A100-SXM4-40GB", 40960, "ampere"),
    "nvidia-a100-80gb": ("NVIDIA-A100-SXM4-80GB", 81920, "ampere"),
    "nvidia-h100-80gb": ("NVIDIA-H100-80GB-HBM3", 81559, "hopper"),
    "nvidia-h200-141gb": ("NVIDIA-H200", 143771, "hopper"),
    "nvidia-b200-192gb": ("NVIDIA-B200", 183359, "blackwell"),
    "nvidia-gb200-192gb": ("NVIDIA-GB200", 189471, "blackwell"),
}


class WorldUnreadable(Exception):
    """The world file has no such Cluster, or not in the form that it must have."""


class _Form(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Devices(_Form):
    flavor: str
    count: Annotated[int, Field(ge=0, le=64)] = 8


class Level(_Form):
    level: str
    of: Annotated[int, Field(ge=1)]


class NodeGroup(_Form):
    """`count` equal nodes; consecutive ones form topology domains."""

    count: Annotated[int, Field(ge=1, le=20_000)] = 1
    devices: Devices | None = None
    cpu: int | str = 192
    memory: str = "2Ti"
    topology: list[Level] = []
    labels: dict[str, str] = {}
    taints: list[dict[str, str]] = []
    pods: int = 110
    rdma: int = 0
    hugepages: int | str = 0
    local_storage: Annotated[int | str, Field(alias="localStorage")] = "1Ti"
    name: str = ""


class Fault(_Form):
    """One thing that breaks: `after` seconds from the start, `lasting` so long (absent: for ever)."""

    do: Literal["fail-node", "cut-link", "withdraw-devices", "foreign-pod", "delete-pod"]
    after: float = 0
    lasting: float | None = None
    node: str = ""
    amount: int = 1
    name: str = ""


class Faults(_Form):
    """`schedule` as written; `random_node_failures` more of them, drawn by `seed` over `within` seconds."""

    seed: int = 0
    schedule: list[Fault] = []
    random_node_failures: int = Field(default=0, alias="randomNodeFailures")
    within: float = 60
    lasting: float = 20


class World(_Form):
    """One simulated cluster."""

    name: str
    nodes: list[Json]
    namespaces: list[str]
    faults: Faults = Faults()


def read(path: Path, name: str) -> World:
    """Return the Cluster of this name (the only one, if the file has only one). Raise WorldUnreadable."""
    try:
        documents = [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if isinstance(each, dict)]
        found = [each for each in documents if each.get("kind") == "Cluster" and _name(each) == name]
        if not found:
            raise WorldUnreadable(f"{path} has no Cluster {name}")
        spec = found[0].get("spec") or {}
        groups = [NodeGroup.model_validate(each) for each in spec.get("nodes") or []]
        faults = [each for each in documents if each.get("kind") == "Faults" and _name(each) == name]
        queues = [each.get("spec") or {} for each in documents if each.get("kind") == "Queue"]
        return World(
            name=name,
            nodes=nodes_of(name, groups),
            namespaces=sorted({str(each["namespace"]) for each in queues if each.get("namespace")}),
            faults=Faults.model_validate(faults[0].get("spec") or {}) if faults else Faults(),
        )
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise WorldUnreadable(f"{path}: {error}") from error


def nodes_of(cluster: str, groups: list[NodeGroup]) -> list[Json]:
    """Node objects of all groups, numbered through."""
    found: list[Json] = []
    for number, group in enumerate(groups):
        stem = group.name or (cluster if len(groups) == 1 else f"{cluster}-{number}")
        found += [_node(f"{stem}-{index}", index, number, group) for index in range(group.count)]
    return found


def stable_uid(*parts: str) -> str:
    """The same for the same world, so that a restarted agent finds the same nodes."""
    return str(uuid.UUID(bytes=hashlib.sha256("/".join(parts).encode()).digest()[:16], version=4))


def _node(name: str, index: int, number: int, group: NodeGroup) -> Json:
    resources = {"cpu": str(group.cpu), "memory": group.memory, "pods": str(group.pods)}
    resources |= {
        LOCAL_STORAGE: str(group.local_storage),
        f"{HUGEPAGES}2Mi": str(group.hugepages),
        RDMA_NAME: str(group.rdma),
    }
    labels = {HOSTNAME: name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", **group.labels}
    if group.devices is not None and group.devices.count:
        resources[GPU] = str(group.devices.count)
        labels |= _gpu_labels(group.devices)
    for level in group.topology:
        labels[LEVEL_LABEL + level.level] = f"{level.level}-{number}-{index // level.of}"
    return {
        "metadata": {"name": name, "uid": stable_uid("node", name), "resourceVersion": "1", "labels": labels},
        "spec": {"taints": [{"effect": "NoSchedule", **taint} for taint in group.taints]} if group.taints else {},
        "status": {
            "capacity": dict(resources),
            "allocatable": dict(resources),
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "nodeInfo": {"kubeletVersion": "v1.37.2"},
        },
    }


def _gpu_labels(devices: Devices) -> dict[str, str]:
    product, memory, family = PRODUCTS.get(devices.flavor) or _guessed(devices.flavor)
    facts = {
        "product": product,
        "count": str(devices.count),
        "memory": str(memory),
        "replicas": "1",
        "sharing-strategy": "none",
        "family": family,
        "present": "true",
    }
    found = {f"{GPU}.{name}": text for name, text in facts.items() if text}
    return found | {"nvidia.com/mig.strategy": "none", "nvidia.com/cuda.driver-version.full": "580.105.08"}


def _guessed(flavor: str) -> tuple[str, int, str]:
    """A card that the table does not know: its model in capitals, its memory as the name says."""
    memory = MEMORY.search(flavor)
    model = flavor.removeprefix("nvidia-").upper()
    return f"NVIDIA-{model}", int(memory["gigabytes"]) * 1024 if memory else 0, ""


def _name(document: Json) -> str:
    return str((document.get("metadata") or {}).get("name", ""))
