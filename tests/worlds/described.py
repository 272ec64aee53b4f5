"""Worlds as tests describe them: documents as people write them, valid by default."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from controlplane.contract.rest.planning import PoolPlan
from controlplane.worlds.building import World, world_from
from controlplane.worlds.planning import plan
from controlplane.worlds.reading import read
from controlplane.worlds.sources import Source, WrongWorld

H100, A100 = "nvidia-h100-80gb", "nvidia-a100-80gb"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
Document = dict[str, Any]


def document(kind: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> Document:  # noqa: ANN401 - as JSON has it
    return {"apiVersion": "muster.dev/v1", "kind": kind, "metadata": {"name": name, **metadata}, "spec": dict(spec)}


def cluster(name: str = "north", count: int = 4, flavor: str = H100, **more: Any) -> Document:  # noqa: ANN401 - as JSON has it
    """Equal nodes of eight devices in racks of two; `group` changes the nodes, the rest the Cluster."""
    group = {
        "count": count, "devices": {"flavor": flavor, "count": 8}, "cpu": 192, "memory": "2Ti",
        "topology": [{"level": "rack", "of": 2}], **more.pop("group", {}),
    }  # fmt: skip
    return document("Cluster", name, {"nodes": [group], **more})


def queue(path: str, nominal: int | None = None, flavor: str = H100, **more: Any) -> Document:  # noqa: ANN401 - as JSON has it
    quota = {"flavor": flavor, **({} if nominal is None else {"nominal": nominal})}
    return document("Queue", path, {"quotas": [quota], **more})


def workload(name: str, replicas: int = 1, at: str = "lab/vision", **more: Any) -> Document:  # noqa: ANN401 - as JSON has it
    """Pods of eight devices; `pods` changes the PodSet, the rest the Workload."""
    pods = {"name": "main", "replicas": replicas, "devices": 8, "flavors": [{"name": H100}], **more.pop("pods", {})}
    return document("Workload", name, {"queue": at, "podSets": [pods], **more})


def running(name: str, nodes: Mapping[str, int], at: str = "lab/speech", **more: Any) -> Document:  # noqa: ANN401 - as JSON has it
    """On these nodes of cluster north."""
    spec = workload(name, sum(nodes.values()), at)["spec"]
    place = {"placement": [{"cluster": "north", "nodes": dict(nodes)}], "startedAt": "2026-03-01T09:00:00Z"}
    return document("Running", name, {**spec, **place, **more})


LAB = (queue("lab"), queue("lab/vision", 16), queue("lab/speech", 16))


def world(*documents: Document) -> World:
    """What these documents describe, in one file."""
    text = "".join(f"---\n{json.dumps(each)}\n" for each in documents)
    return world_from(read([Source("world.yaml", text)]), NOW, NOW)


def planned(*documents: Document) -> PoolPlan:
    """The plan of the only Pool."""
    (pool,) = plan(world(*documents)).pools
    return pool


def mistakes(*texts: str) -> list[str]:
    """What is said of these files, a, b, c…"""
    sources = [Source(f"{name}.yaml", text) for name, text in zip("abc", texts, strict=False)]
    try:
        world_from(read(sources), NOW, NOW)
    except WrongWorld as wrong:
        return wrong.lines()
    return []
