"""Kubernetes objects that the tests put into a cluster: GPU nodes as NVIDIA's feature discovery labels them, and Jobs.

Shapes follow GPU Feature Discovery without MIG and without sharing; other vendors' nodes are recorded files elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.kube.client import Json

KUBELET_LABEL = "test.muster.dev/kubelet"
BLOCK, RACK = "topology.muster.dev/block", "topology.muster.dev/rack"
ALIVE, DEAD = "alive", "dead"
"""KWOK plays the kubelet of nodes whose label says ALIVE."""


@dataclass(frozen=True, slots=True)
class Product:
    """What feature discovery says of one card."""

    name: str
    memory_mib: int
    family: str


H100 = Product("NVIDIA-H100-80GB-HBM3", 81559, "hopper")
H200 = Product("NVIDIA-H200", 143771, "hopper")
A100 = Product("NVIDIA-A100-SXM4-80GB", 81920, "ampere")


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Identical nodes; `topology` maps a label to the count of consecutive nodes that share its value."""

    gpus: int = 8
    product: Product = H100
    topology: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    cpu: str = "192"
    memory: str = "2Ti"


def node(name: str, index: int, shape: NodeShape) -> Json:
    """One Node with its status; `index` is its place among its siblings and decides its topology domains."""
    domains = {key: f"{key.rpartition('/')[2]}-{index // size}" for key, size in shape.topology.items()}
    resources = {"cpu": shape.cpu, "memory": shape.memory, "ephemeral-storage": "7Ti", "pods": "110"}
    if shape.gpus:
        resources["nvidia.com/gpu"] = str(shape.gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**_base_labels(name), **gpu_labels(shape), **domains, **shape.labels}},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [_condition("Ready", "True"), *(_condition(kind, "False") for kind in PRESSURES)],
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": _address(index)}],
            "nodeInfo": NODE_INFO,
        },
    }


def job(
    name: str,
    namespace: str,
    pods: int,
    *,
    gpus: int = 8,
    gates: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
    command: Sequence[str] = ("train",),
) -> Json:
    """An Indexed Job whose pods ask for `gpus` cards each and never restart in place."""
    limits = {"cpu": "1", "nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    container = {
        "name": "main",
        "image": "registry.example/train@sha256:" + "0" * 64,
        "command": list(command),
        "resources": {"limits": limits},
    }
    spec: Json = {"restartPolicy": "Never", "containers": [container]}
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {"metadata": {"annotations": dict(annotations or {})}, "spec": spec},
        },
    }


PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
NODE_INFO = {
    "architecture": "amd64",
    "bootID": "",
    "containerRuntimeVersion": "containerd://2.2.0",
    "kernelVersion": "6.8.0",
    "kubeProxyVersion": "",
    "kubeletVersion": "v1.37.2",
    "machineID": "",
    "operatingSystem": "linux",
    "osImage": "Ubuntu 24.04",
    "systemUUID": "",
}


def _base_labels(name: str) -> dict[str, str]:
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        KUBELET_LABEL: ALIVE,
    }


def gpu_labels(shape: NodeShape) -> dict[str, str]:
    """What NVIDIA's feature discovery says of a node with these cards."""
    if not shape.gpus:
        return {}
    facts = {
        "count": shape.gpus,
        "family": shape.product.family,
        "memory": shape.product.memory_mib,
        "mode": "compute",
        "present": "true",
        "product": shape.product.name,
        "replicas": 1,
        "sharing-strategy": "none",
    }
    labels = {f"nvidia.com/gpu.{key}": str(value) for key, value in facts.items()}
    labels |= {"nvidia.com/mig.capable": "true", "nvidia.com/mig.strategy": "none"}
    return labels | {"nvidia.com/cuda.driver-version.full": "580.105.08"}


def _condition(kind: str, status: str) -> dict[str, str]:
    reason = "KubeletReady" if kind == "Ready" else f"KubeletHasNo{kind}"
    return {"type": kind, "status": status, "reason": reason, "message": "as posted by the test"}


def _address(index: int) -> str:
    return f"10.{64 + index // 62500}.{index // 250 % 250}.{index % 250 + 1}"
