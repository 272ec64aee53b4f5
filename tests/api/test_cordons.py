"""Clusters, nodes and devices taken out of planning, drained and removed, over real HTTP."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.api.agents_http import HttpAgent, http_agent
from tests.services.agents import node, plan
from tests.services.planes import Plane
from tests.support.api import Api
from tests.support.databases import Database

EU = "/api/v1/clusters/eu"
N1 = "/api/v1/clusters/eu/nodes/n1"
REMOVAL = "/api/v1/clusters/eu/removal"


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    plane = Plane(database)
    yield plane
    plane.close()


@pytest.fixture
def eu(plane: Plane, api: Api) -> HttpAgent:
    """A ready cluster of one node."""
    return http_agent(plane, api, "eu", node("n1"))


def gang_in(plane: Plane, agent: HttpAgent) -> str:
    """A running gang of one pod; the name of its object."""
    plane.workload("gang", plane.queue("team", nominal=8), pods=1)
    plan(plane)
    agent.sync()
    agent.run(agent.only())
    return agent.only()


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].removeprefix("/problems/")


def device_of(admin: httpx.Client) -> str:
    return f"/api/v1/devices/{admin.get('/api/v1/devices').json()['items'][0]['id']}"


def things(admin: httpx.Client) -> list[str]:
    return [EU, N1, device_of(admin)]


@pytest.mark.usefixtures("eu")
def test_each_is_cordoned_for_a_while_and_put_back(admin: httpx.Client) -> None:
    for thing in things(admin):
        before = admin.get(thing)
        assert before.json()["cordon"] is None
        answer = admin.post(f"{thing}/cordon", json={"reason": "fan is loud", "for": "2h"})
        assert answer.status_code == 200, answer.text
        cordon = answer.json()["cordon"]
        assert (cordon["reason"], cordon["by"]) == ("fan is loud", "person:admin")
        left = datetime.fromisoformat(cordon["until"]) - datetime.now(UTC)
        assert timedelta(hours=1) < left < timedelta(hours=3)
        assert answer.headers["ETag"] == admin.get(thing).headers["ETag"] != before.headers["ETag"]
        back = admin.post(f"{thing}/uncordon")
        assert (back.status_code, back.json()["cordon"]) == (200, None)


@pytest.mark.usefixtures("eu")
def test_a_cordoned_device_is_one_unit_less_of_its_node(admin: httpx.Client) -> None:
    admin.post(f"{device_of(admin)}/cordon", json={"reason": "ecc errors"})
    [flavor] = admin.get(N1).json()["flavors"]
    assert (flavor["owned"], flavor["usable"], flavor["free"]) == (8, 7, 7)
    [flavor] = admin.get(EU).json()["flavors"]
    assert (flavor["owned"], flavor["usable"]) == (8, 7)


@pytest.mark.usefixtures("eu")
def test_an_agent_is_accepted_and_banned_only_by_who_saw_what_stands(admin: httpx.Client) -> None:
    for verb in ("accept", "revoke"):
        path, seen = f"/api/v1/clusters/eu/{verb}", admin.get(EU).headers["ETag"]
        assert problem(admin.post(path, headers={"If-Match": '"0"'})) == (412, "precondition-failed")
        answer = admin.post(path, headers={"If-Match": seen})
        assert (answer.status_code, answer.headers["ETag"]) == (200, admin.get(EU).headers["ETag"])


@pytest.mark.usefixtures("eu")
def test_who_saw_another_state_is_told_so_and_changes_nothing(admin: httpx.Client) -> None:
    for thing in things(admin):
        seen = admin.get(thing).headers["ETag"]
        first = admin.post(f"{thing}/cordon", json={"reason": "mine"}, headers={"If-Match": seen})
        assert first.status_code == 200, first.text
        second = admin.post(f"{thing}/cordon", json={"reason": "also mine"}, headers={"If-Match": seen})
        assert problem(second) == (412, "precondition-failed")
        assert second.headers["ETag"] == first.headers["ETag"]
        assert admin.get(thing).json()["cordon"]["reason"] == "mine"
        assert admin.post(f"{thing}/uncordon", headers={"If-Match": "*"}).status_code == 200


BAD_CORDONS: list[tuple[dict[str, object], str, str]] = [
    ({}, "missing-field", "/reason"),
    ({"reason": ""}, "too-few", "/reason"),
    ({"reason": "  "}, "too-few", "/reason"),
    ({"reason": "ü" * 600}, "too-long", "/reason"),
    ({"reason": "x" * 1_025}, "too-long", "/reason"),
    ({"reason": "bell\u0007"}, "invalid-character", "/reason"),
    ({"reason": 7}, "invalid-value", "/reason"),
    ({"reason": "x", "for": "0s"}, "invalid-quantity", "/for"),
    ({"reason": "x", "for": "1 week"}, "invalid-quantity", "/for"),
    ({"reason": "x", "for": "367d"}, "invalid-quantity", "/for"),
    ({"reason": "x", "for": -1}, "invalid-quantity", "/for"),
    ({"reason": "x", "for": True}, "invalid-quantity", "/for"),
    ({"reason": "x", "until": "tomorrow"}, "unknown-field", "/until"),
]


@pytest.mark.usefixtures("eu")
def test_a_bad_cordon_is_refused_field_by_field_and_nothing_is_half_done(admin: httpx.Client) -> None:
    for thing in things(admin):
        for body, slug, pointer in BAD_CORDONS:
            answer = admin.post(f"{thing}/cordon", json=body)
            assert problem(answer) == (422, slug), (thing, body, answer.text)
            assert answer.json()["errors"][0]["pointer"] == pointer, (thing, body)
        assert admin.get(thing).json()["cordon"] is None


@pytest.mark.usefixtures("eu")
def test_a_bad_drain_is_refused_and_nothing_is_half_done(admin: httpx.Client) -> None:
    for body, slug, pointer in (
        ({"reason": "x"}, "missing-field", "/deadline"),
        ({"deadline": "1h"}, "missing-field", "/reason"),
        ({"reason": "x", "deadline": "31d"}, "invalid-quantity", "/deadline"),
        ({"reason": "x", "deadline": "-5m"}, "invalid-quantity", "/deadline"),
        ({"reason": "x", "deadline": None}, "invalid-quantity", "/deadline"),
        ({"reason": "x", "deadline": "1h", "force": True}, "unknown-field", "/force"),
    ):
        answer = admin.post(f"{EU}/drain", json=body)
        assert problem(answer) == (422, slug), (body, answer.text)
        assert answer.json()["errors"][0]["pointer"] == pointer
    assert admin.get(EU).json()["drain"] is None


@pytest.mark.usefixtures("eu")
@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/clusters/nowhere/cordon",
        "/api/v1/clusters/nowhere/uncordon",
        "/api/v1/clusters/nowhere/nodes/n1/cordon",
        "/api/v1/clusters/eu/nodes/n9/cordon",
        "/api/v1/clusters/eu/nodes/n9/uncordon",
        "/api/v1/devices/999999999/cordon",
        "/api/v1/devices/999999999/uncordon",
        "/api/v1/clusters/nowhere/drain",
        "/api/v1/clusters/nowhere/undrain",
    ],
)
def test_what_is_not_there_is_not_found(still: httpx.Client, path: str) -> None:
    body = {"reason": "x", "deadline": "1h"} if path.endswith("/drain") else {"reason": "x"}
    sent = None if path.rpartition("/")[2].startswith("un") else body
    assert problem(still.post(path, json=sent)) == (404, "not-found")
    assert problem(still.post(path, json=sent, headers={"If-Match": "*"})) == (404, "not-found")


@pytest.mark.parametrize("number", ["0", "-1", "nine", str(2**63)])
def test_a_number_that_no_device_can_have_is_a_mistake(still: httpx.Client, number: str) -> None:
    assert problem(still.get(f"/api/v1/devices/{number}")) == (400, "invalid-parameter")


def test_a_drain_is_shown_while_it_goes_on_and_changed_and_called_off(
    plane: Plane, eu: HttpAgent, admin: httpx.Client
) -> None:
    gang_in(plane, eu)
    drained = admin.post(f"{EU}/drain", json={"reason": "moving out", "deadline": "1h"})
    assert drained.status_code == 200, drained.text
    told = drained.json()["drain"]
    assert (told["reason"], told["by"], told["attemptsLeft"], told["thenRemove"]) == (
        "moving out", "person:admin", 1, False,
    )  # fmt: skip
    later = admin.post(f"{EU}/drain", json={"reason": "moving out", "deadline": "3h"}).json()["drain"]
    assert later["deadlineAt"] > told["deadlineAt"]
    assert admin.post(f"{EU}/undrain").json()["drain"] is None
    assert admin.get("/api/v1/workloads").json()["items"][0]["state"] == "running"


def test_a_cluster_is_removed_only_by_somebody_who_says_what_becomes_of_its_work(
    plane: Plane, eu: HttpAgent, admin: httpx.Client
) -> None:
    name = gang_in(plane, eu)
    assert problem(admin.delete(EU)) == (428, "precondition-required")
    assert problem(admin.delete(EU, headers={"If-Match": '"0"'})) == (412, "precondition-failed")
    tag = {"If-Match": admin.get(EU).headers["ETag"]}
    refused = admin.delete(EU, headers=tag)
    assert problem(refused) == (409, "cluster-in-use")
    assert refused.json()["errors"][0]["detail"] == "team: attempts: 1, devices held: 8"
    assert problem(admin.delete(f"{EU}?work=lost", headers=tag)) == (409, "cluster-not-lost")
    assert problem(admin.delete(f"{EU}?work=burn", headers=tag)) == (400, "invalid-parameter")
    assert problem(admin.delete(f"{EU}?works=stop", headers=tag)) == (400, "invalid-parameter")
    told = admin.get(REMOVAL).json()
    assert (told["attempts"], told["devices"], told["queues"]) == (
        1, 8, [{"queue": "team", "attempts": 1, "devices": 8}],
    )  # fmt: skip
    assert [(choice["work"], choice["allowed"]) for choice in told["choices"]] == [
        ("refuse", False), ("stop", True), ("lost", False),
    ]  # fmt: skip
    going = admin.delete(f"{EU}?work=stop", headers=tag)
    assert (going.status_code, going.json()["attempts"]) == (202, 1)
    assert admin.get(EU).json()["drain"]["thenRemove"] is True
    eu.sync()
    eu.bury(name)
    done = admin.delete(f"{EU}?work=stop", headers={"If-Match": "*"})
    assert done.status_code == 204
    assert admin.get(EU).status_code == 404
    assert problem(admin.delete(EU, headers={"If-Match": "*"})) == (404, "not-found")
    assert admin.post("/api/v1/clusters", json={"name": "eu"}).status_code == 201, "its name is free again"


@pytest.mark.usefixtures("eu")
def test_only_admins_take_things_out_of_planning_and_auditors_may_ask_what_a_removal_would_do(
    plane: Plane, api: Api, admin: httpx.Client
) -> None:
    plane.queue("team")
    auditor, member = api.client(api.token("ann", "auditor")), api.client(api.token("mia", "member", "team"))
    for thing in things(admin):
        for who in (auditor, member):
            assert who.get(thing).status_code == 200
            assert problem(who.post(f"{thing}/cordon", json={"reason": "x"})) == (403, "forbidden")
            assert problem(who.post(f"{thing}/uncordon")) == (403, "forbidden")
    for who in (auditor, member):
        assert problem(who.post(f"{EU}/drain", json={"reason": "x", "deadline": "1h"})) == (403, "forbidden")
        assert problem(who.post(f"{EU}/undrain")) == (403, "forbidden")
        assert problem(who.delete(EU, headers={"If-Match": "*"})) == (403, "forbidden")
    assert auditor.get(REMOVAL).status_code == 200
    assert problem(member.get(REMOVAL)) == (403, "forbidden")


def test_a_cluster_asked_for_twice_with_one_key_is_made_once_and_its_token_is_shown_once(admin: httpx.Client) -> None:
    key = {"Idempotency-Key": "once"}
    first = admin.post("/api/v1/clusters", json={"name": "eu"}, headers=key)
    again = admin.post("/api/v1/clusters", json={"name": "eu"}, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["token"].startswith("mst_")
    assert again.json() == {**first.json(), "token": ""}
    assert problem(admin.post("/api/v1/clusters", json={"name": "eu"})) == (409, "name-conflict")
    key = {"Idempotency-Key": "another"}
    tokens = [admin.post(f"{EU}/enrolment-tokens", json={}, headers=key).json()["token"] for _ in range(2)]
    assert [bool(token) for token in tokens] == [True, False]
