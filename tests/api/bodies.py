"""Documents and manifests for tests of the API: valid by default, changed where it matters."""

from typing import Any

IMAGE = "registry.example/team/train@sha256:" + "a" * 64
YAML = {"Content-Type": "application/yaml"}

QUEUES = """
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: research}
spec:
  quotas: [{flavor: nvidia-h100-80gb, nominal: 64}]
---
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: research/nlp}
spec:
  weight: 3
  namespace: nlp
  quotas: [{flavor: nvidia-h100-80gb, nominal: 128, borrow: 64}]
---
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: research/vision}
spec:
  namespace: vision
  quotas: [{flavor: nvidia-h100-80gb, nominal: 64}]
"""


def template(**spec: object) -> dict[str, Any]:
    """A pod template of one container that asks for eight devices."""
    container = {
        "name": "main",
        "image": IMAGE,
        "resources": {"limits": {"nvidia.com/gpu": 8, "cpu": "4", "memory": "32Gi"}},
    }
    return {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def workload(name: str = "llama", pod_set: dict[str, Any] | None = None, **spec: object) -> dict[str, Any]:
    """A Workload of four pods."""
    pods = {"name": "trainer", "replicas": 4, "flavors": [{"name": "nvidia-h100-80gb"}], "template": template()}
    return {
        "apiVersion": "muster.dev/v1",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {"queue": "research/nlp", "podSets": [{**pods, **(pod_set or {})}], **spec},
    }


def job(name: str = "resnet", annotations: dict[str, str] | None = None, **spec: object) -> dict[str, Any]:
    """A `batch/v1` Job of four pods."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"muster.dev/queue": "research.nlp"}, "annotations": annotations or {}},
        "spec": {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "template": template(), **spec},
    }
