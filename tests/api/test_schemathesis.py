"""Both OpenAPI documents are kept: whatever is asked, the answer is one of those that are written there, and no fault.

Of every route of the two listeners, as it is served; a new one comes under it by itself. Where nobody answers at all,
or a 500, the last request is in the failure.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.api.app import ROUTERS
from controlplane.embedded.postgres import Postgres
from controlplane.embedded.valkey import Valkey
from tests.api.bodies import job, workload
from tests.api.fuzzing import EXAMPLES, STEADY, Case, answer_checks, cases_of, label_of, schema_of, spoilt
from tests.api.refusals import refusing
from tests.support.api import Api

pytestmark = pytest.mark.xdist_group("schemathesis")  # one plane for all of them

STREAM = "text/event-stream"
FAR = 2**40

QUEUE = {
    "apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": "research/fuzz", "labels": {"a": "b"}},
    "spec": {"namespace": "fuzz", "weight": 2, "quotas": [{"flavor": "nvidia-h100-80gb", "nominal": 8, "borrow": 1}]},
}  # fmt: skip
POLICY = {
    "apiVersion": "muster.dev/v1", "kind": "Policy", "metadata": {"name": "default"}, "spec": {"reclaim": True},
}  # fmt: skip
CLUSTER = {
    "apiVersion": "muster.dev/v1", "kind": "Cluster", "metadata": {"name": "fuzz", "labels": {"region": "eu"}},
    "spec": {"pool": "default", "topologyKeys": {"rack": "example.com/rack"}, "budgets": {"bindSeconds": 60}},
}  # fmt: skip
POOL = {"apiVersion": "muster.dev/v1", "kind": "Pool", "metadata": {"name": "fuzz"}, "spec": {}}
SOUND = [
    workload("fuzz", priority=7, maxAttempts=2, clusters={"selector": {"region": "eu"}, "avoid": ["us"]}),
    workload("fuzz", pod_set={"topology": {"preferred": "rack"}}, strategy="spread", priorityClass="low"),
    job("fuzz", annotations={"muster.dev/topology-required": "rack", "muster.dev/max-attempts": "2"}),
]


def labels() -> list[str]:
    """Every operation that people may ask for."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    return [label_of(method, route.path) for route in routes for method in sorted(route.methods or ())]


@pytest.fixture(scope="module")
def plane(
    postgres: Postgres, migrated: str, valkey_server: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    with refusing(postgres, migrated, valkey_server, tmp_path_factory) as api:
        yield api


@pytest.fixture(scope="module")
def admin(plane: Api) -> httpx.Client:
    """One whose token no request by chance can name and end."""
    with plane.container.engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL ROLE NONE")  # the owner, who may
        connection.exec_driver_sql(f"SELECT setval(pg_get_serial_sequence('api_token', 'id'), {FAR})")
    return plane.client(plane.token("fuzzer", "platform-admin"))


@pytest.fixture(scope="module")
def things(plane: Api, admin: httpx.Client) -> dict[str, str]:
    """Path parameters that name something."""
    made = admin.post("/api/v1/workloads", json=workload())
    assert made.status_code == 201, made.text
    assert admin.post("/api/v1/clusters", json={"name": "eu"}).status_code == 201
    return {
        "reference": made.json()["id"], "name": "eu", "cluster": "eu", "path": "research/nlp", "number": "1",
        "kind": "Queue",
    }  # fmt: skip


@pytest.fixture(scope="module")
def operations(plane: Api) -> dict[str, Any]:
    """What the document, as it is served, says of each route; by label."""
    found = [each.ok() for each in schema_of(plane.url).get_all_operations()]
    return {each.label: each for each in found}


@pytest.mark.parametrize("label", labels())
def test_whatever_is_asked_the_answer_is_one_that_is_documented(
    plane: Api, admin: httpx.Client, operations: dict[str, Any], things: dict[str, str], label: str
) -> None:
    operation = operations[label]
    told = operation.definition.raw["responses"]
    is_endless = any(STREAM in answer.get("content", {}) for answer in told.values())

    def check(case: Case) -> None:
        if is_endless:  # only how it begins is looked at
            with admin.stream(case.method, case.formatted_path, params=case.query) as begun:
                assert str(begun.status_code) in told, case
            return
        answer = case.call(base_url=plane.url, headers={"Authorization": admin.headers["authorization"]}, timeout=20)
        case.validate_response(answer, checks=answer_checks())

    cases_of(operation, check, things)


@pytest.mark.parametrize("path", ["/api/v1/workloads", "/api/v1/apply"])
def test_a_sound_document_with_anything_in_the_place_of_anything_is_taken_or_refused(
    admin: httpx.Client, things: dict[str, str], path: str
) -> None:
    sound = SOUND if path.endswith("workloads") else [*SOUND, QUEUE, POLICY, CLUSTER, POOL, [QUEUE, SOUND[0]]]

    @settings(STEADY, max_examples=8 * EXAMPLES)
    @given(body=spoilt(sound), kind=st.sampled_from(["application/json", "application/yaml"]))
    def ask(body: bytes, kind: str) -> None:
        answer = admin.post(path, content=body, headers={"Content-Type": kind})
        assert answer.status_code in {200, 201, 400, 403, 404, 409, 422}, (answer.text, body)
        if answer.status_code >= 400:
            problem = answer.json()
            assert answer.headers["content-type"] == "application/problem+json"
            assert problem["detail"], (problem, body)

    ask()
