"""What is done to live Workloads and seen of them over real HTTP: priorities, ETags, filters by time, logs."""

from datetime import datetime, timedelta

import httpx

from tests.api.bodies import workload
from tests.support.api import Api

LLAMA = "/api/v1/workloads/llama"


def slug(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].removeprefix("/problems/")


def test_a_priority_is_changed_under_the_state_that_was_seen(tree: httpx.Client) -> None:
    tree.post("/api/v1/workloads", json=workload(priorityClass="low"))
    seen = tree.get(LLAMA)
    etag = {"If-Match": seen.headers["ETag"]}
    changed = tree.patch(LLAMA, json={"priority": 700}, headers=etag)
    assert (changed.status_code, changed.json()["priority"]) == (200, 700)
    assert changed.json()["spec"]["priority"] == 700
    assert "priorityClass" not in changed.json()["spec"]
    assert changed.headers["ETag"] != seen.headers["ETag"]
    stale = tree.patch(LLAMA, json={"priorityClass": "high"}, headers=etag)
    assert slug(stale) == (412, "precondition-failed")
    assert stale.headers["ETag"] == changed.headers["ETag"]
    assert slug(tree.patch(LLAMA, json={"priority": 1})) == (428, "precondition-required")
    same = tree.patch(LLAMA, json={"priority": 700}, headers={"If-Match": "*"})
    assert same.headers["ETag"] == changed.headers["ETag"], "what says nothing new changes nothing"
    (line,) = tree.get("/api/v1/audit", params={"kind": "workload"}).json()["items"][:1]
    assert (line["action"], line["objectName"], line["queue"]) == ("workload.edit", "llama", "research/nlp")
    assert (line["facts"]["priorityBefore"], line["facts"]["priority"]) == (500, 700)


def test_what_has_ended_or_means_nothing_gets_no_priority(tree: httpx.Client) -> None:
    tree.post("/api/v1/workloads", json=workload())
    whatever = {"If-Match": "*"}
    for wrong, told in (
        ({}, "invalid-value"),
        ({"priority": 1, "priorityClass": "low"}, "invalid-value"),
        ({"priority": 2**31}, "invalid-quantity"),
        ({"priority": "7"}, "invalid-quantity"),
        ({"priorityClass": "urgent"}, "invalid-value"),
        ({"queue": "research"}, "unknown-field"),
    ):
        answer = tree.patch(LLAMA, json=wrong, headers=whatever)
        assert answer.status_code == 422, wrong
        assert told in {each["slug"] for each in answer.json()["errors"]}, (wrong, answer.text)
    assert tree.post(f"{LLAMA}/cancel").status_code == 200
    assert slug(tree.patch(LLAMA, json={"priority": 1}, headers=whatever)) == (409, "terminal")
    assert tree.patch("/api/v1/workloads/nothing", json={"priority": 1}, headers=whatever).status_code == 404


def test_above_class_high_is_a_leads_to_give(api: Api, tree: httpx.Client) -> None:
    ada, bob = (api.client(api.token(name, "member", "research/nlp")) for name in ("ada", "bob"))
    lead = api.client(api.token("lena", "team-lead", "research"))
    assert slug(ada.post("/api/v1/workloads", json=workload(priorityClass="production"))) == (
        403, "priority-not-granted",
    )  # fmt: skip
    assert ada.post("/api/v1/workloads", json=workload(priorityClass="high")).status_code == 201
    whatever = {"If-Match": "*"}
    assert slug(ada.patch(LLAMA, json={"priority": 10_001}, headers=whatever)) == (403, "priority-not-granted")
    assert ada.patch(LLAMA, json={"priority": 9}, headers=whatever).status_code == 200, "its owner"
    assert slug(bob.patch(LLAMA, json={"priority": 8}, headers=whatever)) == (403, "forbidden")
    assert lead.patch(LLAMA, json={"priorityClass": "production"}, headers=whatever).json()["priority"] == 1_000_000


def test_a_cancel_obeys_the_state_that_it_names(tree: httpx.Client) -> None:
    tree.post("/api/v1/workloads", json=workload())
    seen = tree.get(LLAMA).headers["ETag"]
    tree.patch(LLAMA, json={"priority": 3}, headers={"If-Match": seen})
    assert slug(tree.post(f"{LLAMA}/cancel", headers={"If-Match": seen})) == (412, "precondition-failed")
    assert tree.get(LLAMA).json()["state"] == "pending"
    now = tree.get(LLAMA).headers["ETag"]
    assert tree.post(f"{LLAMA}/cancel", headers={"If-Match": now}).json()["state"] == "cancelled"


def test_a_list_is_bounded_by_when_things_were_submitted(tree: httpx.Client) -> None:
    first = tree.post("/api/v1/workloads", json=workload("first", pod_set={"replicas": 1})).json()
    tree.post("/api/v1/workloads", json=workload("second", pod_set={"replicas": 1}))
    at = datetime.fromisoformat(first["submittedAt"])

    def names(**asked: str) -> list[str]:
        return [each["name"] for each in tree.get("/api/v1/workloads", params=asked).json()["items"]]

    assert names(submittedAfter=at.isoformat()) == ["second"]
    assert names(submittedBefore=(at + timedelta(microseconds=1)).isoformat()) == ["first"]
    assert slug(tree.get("/api/v1/workloads", params={"submittedAfter": "yesterday"})) == (400, "invalid-parameter")


def test_a_filter_that_names_nothing_is_no_empty_list(api: Api, tree: httpx.Client) -> None:
    stranger = api.client(api.token("sven", "member", "research/vision"))
    for path in ("/api/v1/workloads", "/api/v1/ledger/accounts", "/api/v1/ledger/transfers"):
        missing = tree.get(path, params={"queue": "research/nlpp"})
        assert slug(missing) == (404, "not-found")
        assert missing.json()["detail"] == "there is no queue research/nlpp"
        assert stranger.get(path, params={"queue": "research/nlp"}).status_code == 404
        assert stranger.get(path, params={"queue": "research"}).status_code == 200, "it sees something below"
    for path in ("/api/v1/workloads", "/api/v1/nodes", "/api/v1/devices"):
        assert tree.get(path, params={"cluster": "mars"}).json()["detail"] == "there is no cluster mars"
    assert tree.get("/api/v1/ledger/transfers", params={"workload": "nothing"}).status_code == 404


def test_what_is_refused_is_noted_once_a_minute(api: Api, tree: httpx.Client) -> None:
    ada = api.client(api.token("ada", "member", "research/nlp"))
    for _ in range(3):
        assert ada.get("/api/v1/doctor").status_code == 403
    assert ada.post("/api/v1/clusters", json={"name": "mine"}).status_code == 403
    told = tree.get("/api/v1/audit", params={"kind": "route"}).json()["items"]
    assert [(line["actor"], line["action"], line["objectId"]) for line in told] == [
        ("person:ada", "refused", "POST /api/v1/clusters"), ("person:ada", "refused", "GET /api/v1/doctor"),
    ]  # fmt: skip
    assert told[0]["requestId"]


def test_who_watches_a_subtree_reads_its_part_of_the_audit_log(api: Api, tree: httpx.Client) -> None:
    tree.post("/api/v1/workloads", json=workload())
    tree.post("/api/v1/workloads", json=workload("other", queue="research/vision"))
    watcher = api.client(api.token("vera", "auditor", "research/vision"))
    lines = watcher.get("/api/v1/audit").json()["items"]
    assert {line["queue"] for line in lines} == {"research/vision"}
    assert {line["objectName"] for line in lines if line["objectKind"] == "workload"} == {"other"}
    since = tree.get("/api/v1/workloads/other").json()["submittedAt"]
    assert len(watcher.get("/api/v1/audit", params={"since": since}).json()["items"]) == 1
    assert api.client(api.token("ada", "member", "research/vision")).get("/api/v1/audit").status_code == 403
