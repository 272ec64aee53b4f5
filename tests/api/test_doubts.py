"""What is taken and may wait for ever is told with the answer: a wide pod, a level or Flavor that no cluster has."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.bodies import job, template, workload
from tests.services.planes import H100, Plane
from tests.support.api import Api
from tests.support.databases import Database


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    plane = Plane(database)
    yield plane
    plane.close()


def warnings(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code in {200, 201}, answer.text
    return {each["code"]: each["detail"] for each in answer.json()["warnings"]}


def of_devices(devices: int) -> dict[str, Any]:
    asked = template()
    asked["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = devices
    return asked


def test_what_could_start_nowhere_today_is_taken_with_a_warning(plane: Plane, api: Api, tree: httpx.Client) -> None:
    plane.cluster("eu", nodes=32)

    def submitted(name: str, **pod_set: object) -> dict[str, str]:
        return warnings(tree.post("/api/v1/workloads", json=workload(name, {"replicas": 1, **pod_set})))

    assert submitted("sound", topology={"required": "rack"}) == {}
    assert submitted("on-a-host", topology={"required": "host"}) == {}
    assert submitted("wide", template=of_devices(16)) == {
        "wider-than-any-node": "a pod of trainer asks for 16 devices, and no node has more than 8 of them"
    }
    assert submitted("mistyped", topology={"required": "rakc"}) == {
        "level-unknown": "no enrolled cluster has a topology level rakc, so it waits until one has;"
        " there are host, rack"
    }
    assert "has no effect" in submitted("wished", topology={"preferred": "rakc"})["level-unknown"]
    slices = {"slices": {"size": 1, "required": "nvlink"}}
    assert "waits until one has" in submitted("sliced", topology=slices)["level-unknown"]
    either = [{"name": H100}, {"name": "nvidia-h200-141gb"}]
    assert submitted("unknown", flavors=either) == {
        "flavor-unknown": f"no enrolled cluster has nvidia-h200-141gb; there are {H100}"
    }
    annotated = job(annotations={"muster.dev/topology-required": "rakc"})
    assert "level-unknown" in warnings(tree.post("/api/v1/workloads", json=annotated))


def test_a_quota_for_a_flavor_that_no_cluster_has_is_taken_with_a_warning(plane: Plane, tree: httpx.Client) -> None:
    quotas = [{"flavor": "nvidia-h10-80gb", "nominal": 4}]
    metadata = {"name": "research/new"}
    queue = {"apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": metadata, "spec": {"quotas": quotas}}
    early = tree.post("/api/v1/apply?dryRun=true", json=queue).json()["applied"][0]
    assert early.get("warnings", []) == [], "before there is any cluster nobody can know"
    plane.cluster("eu", nodes=4)
    applied = tree.post("/api/v1/apply", json=queue).json()["applied"][0]
    assert [each["code"] for each in applied["warnings"]] == ["flavor-unknown"]
    assert "nvidia-h10-80gb" in applied["warnings"][0]["detail"]


def test_a_part_that_is_given_more_than_clusters_own_is_taken_with_a_warning(plane: Plane, tree: httpx.Client) -> None:
    plane.cluster("eu", nodes=4)
    warned = {}
    for nominal in (32, 500):
        metadata, spec = {"name": "research/new"}, {"quotas": [{"flavor": H100, "nominal": nominal}]}
        queue = {"apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": metadata, "spec": spec}
        warned[nominal] = tree.post("/api/v1/apply", json=queue).json()["applied"][0]["warnings"]
    assert warned[32] == []
    (told,) = warned[500]
    assert told["code"] == "beyond-owned"
    assert f"500 {H100} are given and all clusters own 32" in told["detail"]
