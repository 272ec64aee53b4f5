"""`GET /workloads/{reference}/explain`: what would start it, and with `if=…` whether it would if it asked otherwise."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.bodies import QUEUES, YAML, workload
from tests.services.planes import Plane
from tests.support.api import Api, serving, settings_for
from tests.support.databases import Database

H100 = "nvidia-h100-80gb"


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    made = Plane(database)
    yield made
    made.close()


@pytest.fixture
def api(database: Database, plane: Plane, valkey: str, tmp_path: Path) -> Iterator[Api]:
    """Six nodes, four of them held by `mine`; `late` wants four more."""
    with serving(settings_for(database, valkey, tmp_path)) as started:
        plane.cluster("eu-west", nodes=6, namespaces=["nlp", "vision"])
        client = started.client()
        assert client.post("/api/v1/apply", content=QUEUES, headers=YAML).status_code == 200
        assert client.post("/api/v1/workloads", json=workload("mine")).status_code == 201
        plane.planner().step()
        assert client.post("/api/v1/workloads", json=workload("late")).status_code == 201
        yield started


def supposed(client: httpx.Client, *texts: str, of: str = "late") -> dict[str, Any]:
    answer = client.get(f"/api/v1/workloads/{of}/explain", params={"if": list(texts)})
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["whatIf"])


def refused(client: httpx.Client, *texts: str, of: str = "late") -> tuple[int, str, str]:
    answer = client.get(f"/api/v1/workloads/{of}/explain", params={"if": list(texts)})
    return answer.status_code, answer.json()["type"].rpartition("/")[2], answer.json().get("detail", "")


def test_fewer_pods_would_start_and_it_is_told_where(api: Api) -> None:
    told = supposed(api.client(), "replicas=2")
    assert (told["asked"], told["starts"], told["resubmitted"]) == (["replicas=2"], True, True)
    assert (told["placements"], told["charges"]) == ([{"cluster": "eu-west", "pods": 2}], {H100: 16})
    assert told["text"] == (
        "Submitted again with replicas=2, late would start in the next planning cycle, 2 pods in eu-west."
    )


def test_doing_it_starts_it_where_it_was_told(api: Api, plane: Plane) -> None:
    client = api.client()
    told = supposed(client, "replicas=2", "priority=high")
    assert client.post("/api/v1/workloads/late/cancel").status_code == 200
    again = workload("late", pod_set={"replicas": 2}, priorityClass="high")
    assert client.post("/api/v1/workloads", json=again).status_code == 201
    plane.planner().step()
    shown = client.get("/api/v1/workloads/late").json()
    assert shown["state"] == "reserved"
    assert [each["cluster"] for each in shown["attempts"][0]["placements"]] == [
        each["cluster"] for each in told["placements"]
    ]


def test_what_would_not_start_is_told_what_remains_in_its_way(api: Api) -> None:
    told = supposed(api.client(), "priority=high")
    assert (told["starts"], told["resubmitted"], told["placements"]) == (False, False, [])
    assert told["reasons"][0]["code"] in {"not-enough-free", "quota-exceeded"}
    assert told["text"].startswith("With priority=10000, late would not start in the next planning cycle: ")


def test_nothing_is_changed_by_asking(api: Api, plane: Plane) -> None:
    client = api.client()
    before = client.get("/api/v1/workloads/late").json()
    supposed(client, "replicas=1", "priority=1", "topology=none", "clusters.max=2")
    assert client.get("/api/v1/workloads/late").json() == before
    assert client.get("/api/v1/workloads/late/explain").json()["whatIf"] is None


def test_the_answer_is_that_of_this_moment(api: Api, plane: Plane) -> None:
    client = api.client()
    assert not supposed(client, "replicas=3")["starts"]
    plane.cluster("us-east", nodes=4, namespaces=["nlp", "vision"])
    assert supposed(client, "replicas=3")["placements"] == [{"cluster": "us-east", "pods": 3}]


@pytest.mark.parametrize(
    "text", ["", "priority", "priority=urgent", "priority=-1", "speed=5", "flavor=", "flavor=a,a", "replicas=0",
             "topology=rack", "topology=none:rack", "clusters.max=65", "queue=NO", "replicas=trainer/"],
)  # fmt: skip
def test_what_supposes_nothing_is_refused_with_all_that_can_be_asked(api: Api, text: str) -> None:
    status, slug, words = refused(api.client(), "replicas=2", text)
    assert (status, slug) == (400, "invalid-parameter")
    for each in ("priority=", "flavor=", "replicas=", "topology=", "queue=", "clusters.max="):
        assert each in words


def test_what_no_submit_would_take_is_refused(api: Api) -> None:
    client = api.client()
    assert refused(client, "replicas=tail/2") == (422, "invalid-value", "it has no PodSet tail; there are trainer")
    assert refused(client, "queue=research")[:2] == (422, "queue-not-leaf")
    assert refused(client, "queue=research/nowhere")[0] == 404
    assert refused(client, "replicas=2", of="mine")[:2] == (409, "not-waiting")


def test_another_queue_is_for_those_who_may_submit_to_it(api: Api) -> None:
    bob = api.client(api.token("bob", "member", "research/nlp"))
    assert refused(bob, "queue=research/vision")[0] == 404, "what is others' is not there"
    assert supposed(api.client(), "queue=research/vision", "replicas=2")["starts"]
    ines = api.client(api.token("ines", "auditor"))
    assert refused(ines, "queue=research/vision")[0] == 403


def test_whose_room_is_kept_has_no_name_for_who_does_not_see_it(api: Api, plane: Plane) -> None:
    client = api.client()
    assert client.post("/api/v1/workloads", json=workload("hidden", queue="research/vision")).status_code == 201
    bob = api.client(api.token("bob", "member", "research/nlp"))
    assert "hidden" not in str(supposed(bob, "replicas=4", "priority=low"))


def test_what_would_start_it_is_advised_and_the_plane_agrees(api: Api) -> None:
    client = api.client()
    told = client.get("/api/v1/workloads/late/explain").json()
    assert told["isAllTried"] is True
    sentences = [each["sentence"] for each in told["advice"]]
    assert "It would start if it were submitted again with 2 instead of 4 replicas of trainer." in sentences
    assert [each["if"] for each in told["advice"] if each["steps"][0]["kind"] == "replicas"] == [["replicas=2"]]
    for each in told["advice"]:
        if each["if"]:
            assert supposed(client, *each["if"])["starts"] is True, each
            assert supposed(client, *each["if"])["resubmitted"] is each["resubmitted"]


def test_more_room_that_was_advised_starts_it(api: Api, plane: Plane) -> None:
    client = api.client()
    advice = client.get("/api/v1/workloads/late/explain").json()["advice"]
    steps = {step["kind"]: step["numbers"] for step in advice[0]["steps"]}
    assert (steps["capacity"]["units"], steps["capacity"]["cluster"]) == (16, "eu-west")
    plane.cluster("us-east", nodes=4, namespaces=["nlp", "vision"])
    plane.planner().step()
    assert client.get("/api/v1/workloads/late").json()["state"] == "reserved"


def test_nobody_is_advised_to_give_a_priority_that_is_not_theirs_to_give(api: Api) -> None:
    admin = api.client()
    assert admin.post("/api/v1/workloads", json=workload("small", pod_set={"replicas": 2}, priority=10_000)).is_success
    assert admin.post("/api/v1/workloads", json=workload("mine-too", pod_set={"replicas": 2})).is_success
    for client, priorities in (
        (admin, [10_001]),
        (api.client(api.token("bob", "member", "research/nlp")), []),
    ):
        told = client.get("/api/v1/workloads/mine-too/explain").json()["advice"]
        steps = [step for each in told for step in each["steps"] if step["kind"] == "priority"]
        assert [step["numbers"]["priority"] for step in steps] == priorities


def test_who_holds_what_a_limit_lets_through_has_a_name_only_for_who_sees_it(api: Api, plane: Plane) -> None:
    admin = api.client()
    plane.cluster("us-east", nodes=24, namespaces=["nlp", "vision"])
    theirs = workload("theirs", {"replicas": 16}, queue="research/vision")
    assert admin.post("/api/v1/workloads", json=theirs).is_success
    plane.planner().step()
    assert admin.post("/api/v1/workloads", json=workload("more", {"replicas": 16})).is_success
    bob = api.client(api.token("bob", "member", "research/nlp"))
    for client, largest in ((admin, ("theirs", "research/vision")), (bob, ("other work", "another queue"))):
        leaf, root = client.get("/api/v1/workloads/more/explain").json()["levels"]
        assert (leaf["queue"], leaf["used"], leaf["limit"], leaf["stops"]) == ("research/nlp", 64, 192, False)
        assert (root["queue"], root["used"], root["limit"], root["wanted"]) == ("research", 192, 256, 128)
        assert (root["stops"], root["available"]) == (True, 64)
        told = [(each["workload"], each["queue"], each["units"]) for each in root["holders"]]
        assert told == [(*largest, 128), ("mine", "research/nlp", 32), ("late", "research/nlp", 32)]


def test_one_thing_is_not_supposed_in_two_ways_at_once(api: Api) -> None:
    for pair in (("replicas=2", "replicas=3"), ("priority=600", "replicas=2", "priority=high")):
        status, slug, words = refused(api.client(), *pair)
        assert (status, slug) == (400, "invalid-parameter")
        assert words.startswith(f"{pair[-1]!r} supposes anew what was supposed before it")


def test_who_supposes_a_priority_out_of_range_is_told_the_range(api: Api) -> None:
    _, _, words = refused(api.client(), "priority=-5")
    assert "priority=600 or priority=high, 0 to 1000000;" in words
