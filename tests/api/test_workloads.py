"""/api/v1/workloads over real HTTP: submit, list, show, explain, cancel."""

import httpx
import yaml

from tests.api.bodies import YAML, job, workload
from tests.support.api import Api

NO_RARE_NEEDS = {"rdma": 0, "hugepagesBytes": 0, "localStorageBytes": 0}


def test_a_submitted_workload_waits_and_is_shown_with_what_was_read_from_it(tree: httpx.Client) -> None:
    answer = tree.post("/api/v1/workloads", json=workload())
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["state"], made["queue"], made["owner"]) == ("pending", "research/nlp", "admin")
    shown = tree.get(answer.headers["Location"]).json()
    assert shown["podSets"] == [
        {
            "name": "trainer", "replicas": 4, "minReplicas": None, "devices": 8, "flavors": ["nvidia-h100-80gb"],
            "speeds": [], "topology": "", "nodes": "",
            "needs": {**NO_RARE_NEEDS, "cpuMilli": 4_000, "memoryBytes": 2**35},
        }
    ]  # fmt: skip
    assert shown["spec"]["namespace"] == "nlp"
    assert tree.get("/api/v1/workloads/llama").json()["id"] == made["id"]


def test_yaml_and_json_of_one_document_mean_the_same(tree: httpx.Client) -> None:
    as_json = tree.post("/api/v1/workloads", json=workload("one")).json()
    as_yaml = tree.post("/api/v1/workloads", content=yaml.safe_dump(workload("two")), headers=YAML).json()
    assert as_json["podSets"] == as_yaml["podSets"]
    assert as_json["spec"] == as_yaml["spec"]


def test_a_job_manifest_is_a_workload(tree: httpx.Client) -> None:
    manifest = job(annotations={"muster.dev/topology-required": "rack", "muster.dev/priority": "700"}, backoffLimit=3)
    made = tree.post("/api/v1/workloads", json=manifest).json()
    assert made["kind"] == "Job"
    assert made["priority"] == 700
    assert [(each["name"], each["replicas"], each["devices"]) for each in made["podSets"]] == [("main", 4, 8)]
    assert made["podSets"][0]["topology"] == "required rack"
    assert any("backoffLimit" in warning["detail"] for warning in made["warnings"])


def test_what_a_workload_asks_of_its_place_is_shown_as_it_was_asked_for(tree: httpx.Client) -> None:
    trainer = {
        "replicas": 8,
        "minReplicas": 4,
        "flavors": [{"name": "nvidia-h100-80gb"}, {"name": "nvidia-a100-80gb", "speed": 480}],
        "topology": {"preferred": "block", "slices": {"size": 4, "required": "rack"}},
    }
    asked = {"requires": {"storage": ["nvme"], "rdma": 8, "hugepages": "64Gi"}, "clusters": {"max": 3}}
    tree.post("/api/v1/workloads", json=workload("placed", trainer, strategy="dynamic", **asked))
    shown = tree.get("/api/v1/workloads/placed").json()
    assert shown["podSets"] == [
        {
            "name": "trainer", "replicas": 8, "minReplicas": 4, "devices": 8, "speeds": [1000, 480],
            "flavors": ["nvidia-h100-80gb", "nvidia-a100-80gb"], "topology": "preferred block, slices of 4 in one rack",
            "needs": {**NO_RARE_NEEDS, "cpuMilli": 4_000, "memoryBytes": 2**35, "rdma": 8, "hugepagesBytes": 2**36},
            "nodes": "",
        }
    ]  # fmt: skip
    assert shown["spec"]["podSets"][0]["flavors"][1] == {"name": "nvidia-a100-80gb", "speed": 480}
    assert shown["spec"]["requires"] == {"storage": ["nvme"], "rdma": 8, "hugepages": 64 * 2**30}


def test_the_annotations_of_a_job_say_the_same(tree: httpx.Client) -> None:
    told = {"slice-size": "2", "slice-level": "rack", "min-replicas": "2", "clusters-max": "2", "requires-data": "a,b"}
    manifest = job("annotated", annotations={f"muster.dev/{key}": value for key, value in told.items()})
    made = tree.post("/api/v1/workloads", json=manifest).json()
    assert made["podSets"][0]["topology"] == "slices of 2 in one rack"
    assert made["podSets"][0]["minReplicas"] == 2
    assert (made["spec"]["clusters"], made["spec"]["requires"]) == ({"max": 2}, {"data": ["a", "b"]})


def test_a_live_name_is_taken_once_per_queue(tree: httpx.Client) -> None:
    assert tree.post("/api/v1/workloads", json=workload()).status_code == 201
    again = tree.post("/api/v1/workloads", json=workload())
    assert (again.status_code, again.json()["type"]) == (409, "/problems/name-conflict")
    assert tree.post("/api/v1/workloads", json=workload(queue="research/vision")).status_code == 201
    both = tree.get("/api/v1/workloads/llama")
    assert (both.status_code, both.json()["type"]) == (409, "/problems/ambiguous")


def test_the_same_request_with_one_key_is_carried_out_once(tree: httpx.Client) -> None:
    key = {"Idempotency-Key": "try-1"}
    first = tree.post("/api/v1/workloads", json=workload(), headers=key)
    second = tree.post("/api/v1/workloads", json=workload(), headers=key)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert second.headers["Idempotent-Replayed"] == "true"
    other = tree.post("/api/v1/workloads", json=workload("other"), headers=key)
    assert (other.status_code, other.json()["type"]) == (422, "/problems/idempotency-mismatch")
    assert len(tree.get("/api/v1/workloads").json()["items"]) == 1


def test_a_key_whose_request_is_not_done_yet_is_told_to_come_again(api: Api, tree: httpx.Client) -> None:
    key = {"Idempotency-Key": "slow"}
    me = tree.get("/api/v1/whoami").json()
    with api.container.uow_factory() as uow:
        principal = uow.tenancy.principal(me["kind"], me["principal"])
        assert principal is not None
        assert uow.tenancy.hold_key(principal.id, "slow")
        answer = tree.post("/api/v1/workloads", json=workload(), headers=key)
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/in-progress")
        assert answer.headers["Retry-After"] == "1"
        assert tree.post("/api/v1/workloads", json=workload("b"), headers={"Idempotency-Key": "b"}).status_code == 201
    assert tree.post("/api/v1/workloads", json=workload(), headers=key).status_code == 201


def test_more_than_the_queue_could_ever_use_is_refused_with_the_numbers(tree: httpx.Client) -> None:
    answer = tree.post("/api/v1/workloads", json=workload(pod_set={"replicas": 100}))
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/never-satisfiable")
    assert "192" in answer.json()["detail"]
    assert "800" in answer.json()["detail"]


def test_a_list_comes_in_pages_that_neither_skip_nor_repeat(tree: httpx.Client) -> None:
    names = [f"run-{number}" for number in range(5)]
    for name in names:
        assert tree.post("/api/v1/workloads", json=workload(name, pod_set={"replicas": 1})).status_code == 201
    seen: list[str] = []
    cursor: str | None = None
    while True:
        asked: dict[str, str | int] = {"limit": 2, "state": "pending,running", **({"cursor": cursor} if cursor else {})}
        page = tree.get("/api/v1/workloads", params=asked).json()
        seen += [item["name"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == names[::-1]


def test_a_list_shows_what_its_filters_name(tree: httpx.Client) -> None:
    tree.post("/api/v1/workloads", json={**workload("a"), "metadata": {"name": "a", "labels": {"project": "x"}}})
    tree.post("/api/v1/workloads", json=workload("b", queue="research/vision"))

    def names(**asked: str) -> list[str]:
        return [item["name"] for item in tree.get("/api/v1/workloads", params=asked).json()["items"]]

    assert names(queue="research") == ["b", "a"]
    assert names(queue="research/nlp") == ["a"]
    assert names(label="project=x") == ["a"]
    assert names(owner="nobody") == []
    assert names(name="b") == ["b"]
    assert names(state="running") == []


def test_a_cursor_of_another_filter_is_refused(tree: httpx.Client) -> None:
    for name in ("a", "b"):
        tree.post("/api/v1/workloads", json=workload(name, pod_set={"replicas": 1}))
    cursor = tree.get("/api/v1/workloads", params={"limit": 1}).json()["next"]
    for asked in ({"cursor": cursor, "owner": "x"}, {"cursor": "AAAA"}, {"cursor": "WyJhIl0"}):
        answer = tree.get("/api/v1/workloads", params=asked)
        assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-cursor")


def test_a_waiting_workload_is_explained_in_words_that_are_true_now(tree: httpx.Client) -> None:
    tree.post("/api/v1/workloads", json=workload())
    told = tree.get("/api/v1/workloads/llama/explain").json()
    assert told["live"] is True
    assert told["text"].startswith("llama of research/nlp has waited for")
    assert "4 pods with 32 devices in all" in told["text"]
    assert "No cluster of pool default is there yet." in told["text"]
    assert [reason["code"] for reason in told["reasons"]] == ["no-cluster"]


def test_a_waiting_workload_is_cancelled_at_once_and_twice_is_once(tree: httpx.Client) -> None:
    tree.post("/api/v1/workloads", json=workload())
    for _ in range(2):
        answer = tree.post("/api/v1/workloads/llama/cancel")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    told = tree.get("/api/v1/workloads/llama/explain").json()
    assert told["text"].startswith("llama was cancelled")
    lines = tree.get("/api/v1/audit", params={"kind": "workload"}).json()["items"]
    assert [(line["stateFrom"], line["stateTo"]) for line in lines] == [
        ("cancelling", "cancelled"), ("pending", "cancelling"), (None, "pending"),
    ]  # fmt: skip


def test_only_the_owner_or_a_lead_may_cancel(api: Api, tree: httpx.Client) -> None:
    ada, bob = (api.client(api.token(name, "member", "research/nlp")) for name in ("ada", "bob"))
    lead = api.client(api.token("lena", "team-lead", "research"))
    for name in ("one", "two"):
        assert ada.post("/api/v1/workloads", json=workload(name)).status_code == 201
    assert bob.post("/api/v1/workloads/one/cancel").status_code == 403
    assert ada.post("/api/v1/workloads/one/cancel").status_code == 200
    assert lead.post("/api/v1/workloads/two/cancel").status_code == 200


def test_what_is_anothers_is_not_there(api: Api, tree: httpx.Client) -> None:
    made = tree.post("/api/v1/workloads", json=workload()).json()
    stranger = api.client(api.token("sven", "member", "research/vision"))
    for path in (f"/api/v1/workloads/{made['id']}", "/api/v1/workloads/llama", "/api/v1/queues/research/nlp"):
        assert stranger.get(path).status_code == 404, path
    assert stranger.post("/api/v1/workloads", json=workload("x")).json()["type"] == "/problems/queue-unknown"
    assert stranger.get("/api/v1/workloads").json()["items"] == []
    assert [queue["path"] for queue in stranger.get("/api/v1/queues").json()["items"]] == ["research/vision"]
