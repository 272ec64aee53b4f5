"""A world file's nodes as the API server would tell them, and what a simulated cluster's scheduler makes of them."""

from pathlib import Path

import pytest

from agents.facts import node_facts
from agents.inventory import node_report
from agents.simulated import worlds
from agents.simulated.cluster import SimulatedCluster
from agents.simulated.worlds import Devices, NodeGroup, World, nodes_of
from tests.agents.bench import NAMESPACE, Bench, a_start, an_apply

WORLD = """
kind: Cluster
metadata: {name: east}
spec:
  nodes:
    - {count: 2, devices: {flavor: nvidia-h100-80gb, count: 8}, cpu: 192, memory: 2Ti, labels: {zone: a},
       taints: [{key: nvidia.com/gpu, value: present}], pods: 250, rdma: 8, hugepages: 64Gi, localStorage: 4Ti}
    - {count: 1, cpu: 64, memory: 256Gi, taints: [{key: team, value: ml, effect: NoExecute}]}
"""


def test_groups_of_nodes_have_taints_and_limits(tmp_path: Path) -> None:
    file = tmp_path / "world.yaml"
    file.write_text(WORLD, encoding="utf-8")
    first, _, last = (node_report(node_facts(raw), [], ()) for raw in worlds.read(file, "east").nodes)
    assert (first.pods, first.rdma, first.hugepages_bytes, first.local_storage_bytes) == (250, 8, 2**36, 2**42)
    assert first.taints == [{"effect": "NoSchedule", "key": "nvidia.com/gpu", "value": "present"}]
    assert first.labels["zone"] == "a"
    assert (last.pods, last.rdma, last.hugepages_bytes, last.local_storage_bytes) == (110, 0, 0, 2**40)
    assert last.taints == [{"effect": "NoExecute", "key": "team", "value": "ml"}]


@pytest.mark.parametrize(
    ("group", "spec", "words"),
    [
        ({"taints": [{"key": "nvidia.com/gpu"}]}, {}, ""),
        ({"taints": [{"key": "team"}]}, {}, "untolerated taint {team}"),
        ({"taints": [{"key": "team"}]}, {"tolerations": [{"key": "team", "operator": "Exists"}]}, ""),
        ({"labels": {"zone": "a"}}, {"nodeSelector": {"zone": "b"}}, "didn't match Pod's node affinity/selector"),
        ({"pods": 0}, {}, "Insufficient pods"),
        ({"rdma": 1}, {"asks": {"rdma/hca": "2"}}, "Insufficient rdma/hca"),
        ({"localStorage": "1Gi"}, {"asks": {"ephemeral-storage": "2Gi"}}, "Insufficient ephemeral-storage"),
    ],
)
async def test_a_simulated_scheduler_refuses_what_a_real_one_would(
    group: dict[str, object], spec: dict[str, object], words: str
) -> None:
    container = {"name": "main", "image": "registry.example/train:1", "resources": {"requests": spec.get("asks", {})}}
    asked = {"containers": [container], **{name: value for name, value in spec.items() if name != "asks"}}
    nodes = NodeGroup.model_validate({"devices": Devices(flavor="nvidia-h100-80gb"), **group})
    cluster = SimulatedCluster(World(name="east", nodes=nodes_of("east", [nodes]), namespaces=[NAMESPACE]), speed=20)
    await cluster.open()
    apply = an_apply(1, nodes=["east-0"], template={"spec": asked})
    async with Bench(cluster) as bench:
        bench.work.take([apply, a_start(apply)])
        if words:
            seen = await bench.until_state(apply.object_id, "rejected")
            assert seen.rejection is not None
            assert words in str(seen.rejection.facts["words"])
        else:
            await bench.until_phases(apply.object_id, "running", 1)
    await cluster.close()
