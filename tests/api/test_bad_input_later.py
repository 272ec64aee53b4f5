"""Requests that are wrong only because of what stands already: a name that is taken, work that runs or has ended."""

from collections.abc import Iterator

import httpx
import pytest

from tests.api.agents_http import HttpAgent, http_agent
from tests.api.bodies import workload
from tests.api.refusals import assert_problem
from tests.services.agents import node, plan
from tests.services.planes import H100, Plane
from tests.support.api import Api
from tests.support.databases import Database


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    plane = Plane(database)
    yield plane
    plane.close()


@pytest.fixture
def agent(plane: Plane, api: Api) -> HttpAgent:
    agent = http_agent(plane, api, "eu", node("n1"), node("n2"))
    agent.hello(namespaces=["nlp"])
    return agent


def test_a_quota_may_be_cut_below_what_is_in_use_and_what_has_ended_cannot_be_cancelled(
    plane: Plane, agent: HttpAgent, tree: httpx.Client
) -> None:
    made = tree.post("/api/v1/workloads", json=workload(pod_set={"replicas": 1})).json()
    plan(plane)
    agent.sync()
    agent.run(agent.only())
    cut = {
        "apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": "research/nlp"},
        "spec": {"namespace": "nlp", "quotas": [{"flavor": H100, "nominal": 0, "borrow": 0}]},
    }  # fmt: skip
    answer = tree.post("/api/v1/apply", json=cut)
    assert answer.status_code == 200, answer.text
    (warned,) = answer.json()["applied"][0]["warnings"]
    assert (warned["code"], warned["detail"][:10]) == ("overdraft", f"8 {H100}"[:10])
    assert tree.get(f"/api/v1/workloads/{made['id']}").json()["state"] == "running", "a cut kills nothing"
    agent.finish(agent.only())
    agent.bury(agent.only())
    again = tree.post(f"/api/v1/workloads/{made['id']}/cancel")
    assert "succeeded" in assert_problem(again, 409, "terminal")["detail"]


def test_a_name_that_is_taken_is_refused_by_kind(agent: HttpAgent, tree: httpx.Client) -> None:
    small = workload(pod_set={"replicas": 1})
    assert tree.post("/api/v1/workloads", json=small).status_code == 201
    assert_problem(tree.post("/api/v1/workloads", json=small), 409, "name-conflict")
    assert_problem(tree.post("/api/v1/clusters", json={"name": agent.name}), 409, "name-conflict")
    queue = {"apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": "research/new"}, "spec": {}}
    assert_problem(tree.post("/api/v1/apply", json=[queue, queue]), 409, "name-conflict")
    twice = [{"flavor": H100, "nominal": 1}, {"flavor": H100, "nominal": 2}]
    problem = assert_problem(
        tree.post("/api/v1/apply", json={**queue, "spec": {"quotas": twice}}), 422, "name-conflict"
    )
    assert problem["errors"][0]["pointer"] == "/0/spec"
