"""One file, two readers: a simulated cluster's agent and `muster plan` see the same machines in the same boxes."""

import json
from pathlib import Path
from typing import Any

import pytest

from agents.simulated import worlds as simulated
from controlplane.core.capacity import Node
from controlplane.worlds.building import world_from
from controlplane.worlds.reading import read
from controlplane.worlds.sources import Source
from tests.support.databases import ROOT
from tests.worlds.described import NOW, cluster, document

FILES = [ROOT / "agents/simulated/two-clusters.yaml", ROOT / "controlplane/embedded/demo/world.yaml"]


def of_agent(node: dict[str, Any], levels: tuple[str, ...]) -> tuple[str, tuple[str, ...], int]:
    """Name, boxes and devices of a Node object."""
    name, labels = node["metadata"]["name"], node["metadata"]["labels"]
    boxes = [name if level == "host" else labels.get(simulated.LEVEL_LABEL + level, "") for level in levels]
    return name, tuple(boxes), int(node["status"]["capacity"].get(simulated.GPU, 0))


def of_world(node: Node) -> tuple[str, tuple[str, ...], int]:
    return node.name, node.domains, sum(node.owned.values())


def compare(path: Path) -> int:
    """Compares every Cluster of a file; says how many machines there were."""
    members = read([Source(path.name, path.read_text(encoding="utf-8"))])
    count = 0
    for pool in world_from(members, NOW, NOW).pools:
        for each in pool.snapshot.clusters.values():
            mine = [of_world(node) for node in pool.snapshot.nodes.values() if node.cluster == each.id]
            theirs = [of_agent(node, each.levels) for node in simulated.read(path, each.name).nodes]
            assert mine == theirs
            count += len(mine)
    return count


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_that_comes_with_the_clone_is_read_alike(path: Path) -> None:
    assert compare(path) > 20


def test_several_groups_with_names_levels_and_no_devices_are_read_alike(tmp_path: Path) -> None:
    made = cluster("north", 5)
    (group,) = made["spec"]["nodes"]
    made["spec"]["nodes"] += [
        {**group, "name": "fast", "topology": [{"level": "block", "of": 4}, {"level": "rack", "of": 2}]},
        {"count": 2, "cpu": 8, "memory": "64Gi"},
    ]
    file = tmp_path / "world.yaml"
    faults = document("Faults", "north", {"schedule": [{"do": "fail-node", "node": "north-0-0"}]})
    file.write_text("".join(f"---\n{json.dumps(each)}\n" for each in (made, faults)), encoding="utf-8")
    assert compare(file) == 12
