"""What is planned from files is what a plane does: the same documents, offline and through the API, go the same way."""

import json
from pathlib import Path
from typing import Any

import yaml

from controlplane.worlds.building import world_from
from controlplane.worlds.planning import plan
from controlplane.worlds.reading import read
from controlplane.worlds.sources import Source
from tests.api.bodies import QUEUES, YAML, job, workload
from tests.services.planes import Plane
from tests.support.api import Api, serving, settings_for
from tests.support.databases import Database
from tests.worlds.described import NOW

Places = dict[str, dict[str, dict[str, int]]]
"""By Workload and cluster: the devices that it has on each node."""

WORK = [
    workload("rack", pod_set={"replicas": 3, "topology": {"required": "rack"}}),
    job("manifest", {"muster.dev/topology-preferred": "rack", "muster.dev/flavors": "nvidia-h100-80gb"}),
    workload("spread", pod_set={"replicas": 2}, strategy="spread", queue="research/vision"),
    workload("wide", pod_set={"replicas": 8}, queue="research/vision"),
    workload("urgent", pod_set={"replicas": 1}, priority=2000),
]


def described() -> tuple[Places, dict[str, list[str]]]:
    """Who starts where and who waits why, by `muster plan`."""
    clusters: list[dict[str, Any]] = [
        {
            "apiVersion": "muster.dev/v1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"nodes": [{
                "count": count, "devices": {"flavor": "nvidia-h100-80gb", "count": 8}, "cpu": 192,
                "memory": 2_000_000_000_000, "topology": [{"level": "rack", "of": 4}],
            }]},
        }
        for name, count in (("eu-west", 8), ("us-east", 6))
    ]  # fmt: skip
    text = "".join(f"---\n{json.dumps(each)}\n" for each in (*clusters, *yaml.safe_load_all(QUEUES), *WORK))
    (pool,) = plan(world_from(read([Source("world.yaml", text)]), NOW, NOW)).pools
    starts = {
        start.workload: {place.cluster: {node.node: node.units for node in place.nodes} for place in start.placements}
        for start in pool.starts
    }
    return starts, {wait.workload: [why.code for why in wait.reasons[:3]] for wait in pool.waits}


def lived(api: Api, plane: Plane) -> tuple[Places, dict[str, list[str]]]:
    """The same of a plane, after one cycle."""
    for name, count in (("eu-west", 8), ("us-east", 6)):
        plane.cluster(name, nodes=count, namespaces=["nlp", "vision"])
    client = api.client()
    assert client.post("/api/v1/apply", content=QUEUES, headers=YAML).status_code == 200
    for each in WORK:
        answer = client.post("/api/v1/workloads", json=each)
        assert answer.status_code == 201, answer.text
    plane.planner().step()
    starts: Places = {}
    waits: dict[str, list[str]] = {}
    for each in client.get("/api/v1/workloads").json()["items"]:
        shown = client.get(f"/api/v1/workloads/{each['id']}").json()
        if shown["state"] == "pending":
            waits[each["name"]] = [why["code"] for why in shown["reasons"]]
            continue
        starts[each["name"]] = {
            place["cluster"]: {node["node"]: node["devices"] for node in place["nodes"]}
            for place in shown["attempts"][0]["placements"]
        }
    return starts, waits


def test_the_same_documents_go_the_same_places_offline_and_on_a_plane(
    database: Database, valkey: str, tmp_path: Path
) -> None:
    plane = Plane(database)
    with serving(settings_for(database, valkey, tmp_path)) as api:
        starts, waits = lived(api, plane)
    plane.close()
    planned = described()
    assert planned[0] == starts
    assert set(starts) == {"rack", "manifest", "spread", "urgent"}
    assert set(planned[1]) == set(waits) == {"wide"}
    assert waits["wide"] == planned[1]["wide"][: len(waits["wide"])]
