"""Clusters and machines over real HTTP: made, let in, banned; taken out of planning and put back."""

from collections.abc import Iterator

import httpx
import pytest

from controlplane.core.ids import ClusterId
from tests.api.agents_http import HELLO, HttpAgent
from tests.services.agents import node
from tests.services.planes import Plane
from tests.support.api import Api
from tests.support.databases import Database


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    plane = Plane(database)
    yield plane
    plane.close()


def created(admin: httpx.Client, name: str) -> str:
    """A new cluster's one-time token."""
    answer = admin.post("/api/v1/clusters", json={"name": name})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def enrolled(plane: Plane, api: Api, name: str, token: str) -> HttpAgent:
    """An agent of a cluster that is there, known by its key from now on."""
    [row] = plane.rows("SELECT id FROM cluster WHERE name = :name", name=name)
    http = httpx.Client(base_url=api.agent_url, timeout=40, trust_env=False, verify=False)
    api.clients[f"agent {name} {token}"] = http
    agent = HttpAgent(plane, ClusterId(row.id), name, http=http)
    agent.enrol(token)
    return agent


def state(admin: httpx.Client, name: str) -> str:
    return str(admin.get(f"/api/v1/clusters/{name}").json()["state"])


def test_a_cluster_is_made_enrols_and_works_once_an_admin_accepts_it(plane: Plane, api: Api) -> None:
    admin = api.client()
    token = created(admin, "eu")
    assert state(admin, "eu") == "created"
    agent = enrolled(plane, api, "eu", token)
    assert state(admin, "eu") == "enrolled"
    for _ in range(2):  # twice is once
        answer = admin.post("/api/v1/clusters/eu/accept")
        assert (answer.status_code, answer.json()["state"]) == (200, "accepted")
    agent.hello()
    agent.report(node("n1"), whole=True)
    [shown] = admin.get("/api/v1/clusters").json()["items"]
    assert (shown["name"], shown["state"], shown["nodes"]) == ("eu", "ready", 1)


def test_a_second_token_lets_a_new_key_in(plane: Plane, api: Api) -> None:
    admin = api.client()
    created(admin, "eu")
    again = admin.post("/api/v1/clusters/eu/enrolment-tokens", json={})
    assert again.status_code == 201, again.text
    assert again.json()["cluster"] == "eu"
    enrolled(plane, api, "eu", again.json()["token"])
    assert state(admin, "eu") == "enrolled"


def test_a_banned_agent_is_no_longer_heard(plane: Plane, api: Api) -> None:
    admin = api.client()
    agent = enrolled(plane, api, "eu", created(admin, "eu"))
    admin.post("/api/v1/clusters/eu/accept")
    agent.hello()
    assert admin.post("/api/v1/clusters/eu/revoke").status_code == 200
    assert agent.post(HELLO, b"{}").status_code == 403


def test_a_machine_is_taken_out_of_planning_for_a_reason_and_put_back(plane: Plane, api: Api) -> None:
    admin = api.client()
    agent = enrolled(plane, api, "eu", created(admin, "eu"))
    admin.post("/api/v1/clusters/eu/accept")
    agent.hello()
    agent.report(node("n1"), whole=True)
    [machine] = admin.get("/api/v1/nodes?cluster=eu").json()["items"]
    for reason in ("burn-in", ""):
        answer = admin.post(f"/api/v1/nodes/{machine['id']}/cordon", json={"reason": reason})
        assert answer.status_code == 204, answer.text
        [shown] = admin.get("/api/v1/nodes?cluster=eu").json()["items"]
        assert shown.get("cordonedByUs", "") == reason


@pytest.mark.parametrize("what", ["accept", "revoke", "enrolment-tokens"])
def test_clusters_are_an_admins_business(api: Api, what: str) -> None:
    created(api.client(), "eu")
    reader = api.client(api.token("ann", "auditor"))
    assert reader.post(f"/api/v1/clusters/eu/{what}", json={}).status_code == 403
    assert api.client().post(f"/api/v1/clusters/nowhere/{what}", json={}).status_code == 404


def test_a_tenant_sees_its_own_namespaces_of_a_cluster_and_what_cards_are(plane: Plane, api: Api) -> None:
    admin = api.client()
    agent = enrolled(plane, api, "eu", created(admin, "eu"))
    admin.post("/api/v1/clusters/eu/accept")
    agent.hello(namespaces=["nlp", "secret-merger", "vision"])
    agent.report(node("n1", devices=1), whole=True)
    plane.queue("research")
    plane.queue("research/nlp")
    plane.queue("research/nlp/deep")
    plane.do("UPDATE queue SET namespace = CASE path WHEN 'research' THEN 'nlp' ELSE '' END")
    plane.queue("other")
    plane.do("UPDATE queue SET namespace = 'secret-merger' WHERE path = 'other'")
    member = api.client(api.token("mia", "member", "research/nlp"))
    for shown in (member.get("/api/v1/clusters/eu").json(), member.get("/api/v1/clusters").json()["items"][0]):
        assert shown["namespaces"] == ["nlp"]
    for all_seeing in (admin, api.client(api.token("ann", "auditor"))):
        assert len(all_seeing.get("/api/v1/clusters/eu").json()["namespaces"]) == 3
    [card] = member.get("/api/v1/devices?cluster=eu").json()["items"]
    assert card["model"] == "NVIDIA-H100-80GB-HBM3"
