"""/api/v1/apply, queues, tokens, whoami over real HTTP: the quota tree and who may do what."""

import json

import httpx
import pytest
import yaml

from tests.api.bodies import QUEUES, YAML, job, workload
from tests.support.api import Api

H100 = "nvidia-h100-80gb"
STANDS = {"If-Match": "*"}


def queue(path: str, **spec: object) -> dict[str, object]:
    return {"apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": path}, "spec": spec}


def applied(client: httpx.Client, *documents: object) -> httpx.Response:
    return client.post("/api/v1/apply", content=yaml.safe_dump_all(documents), headers=YAML)


def slug(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["type"]).rpartition("/")[2]


def test_a_tree_is_applied_whatever_the_order_of_its_documents(admin: httpx.Client) -> None:
    reversed_ = list(yaml.safe_load_all(QUEUES))[::-1]
    answer = applied(admin, *reversed_)
    names = [each["name"] for each in answer.json()["applied"]]
    assert (names[0], sorted(names)) == ("research", ["research", "research/nlp", "research/vision"])
    assert {each["result"] for each in answer.json()["applied"]} == {"created"}
    again = applied(admin, *reversed_).json()["applied"]
    assert {each["result"] for each in again} == {"unchanged"}


def test_a_queue_shows_its_quota_and_what_it_could_ever_use(tree: httpx.Client) -> None:
    shown = tree.get("/api/v1/queues/research/nlp").json()
    assert (shown["parent"], shown["weight"], shown["namespace"], shown["isLeaf"]) == ("research", 3, "nlp", True)
    (quota,) = shown["quotas"]
    assert (quota["flavor"], quota["nominal"], quota["borrow"], quota["used"]) == (H100, 128, 64, 0)
    assert (quota["potential"], quota["available"]) == (192, 192)
    root = tree.get("/api/v1/queues").json()["items"][0]
    assert (root["path"], root["isLeaf"], root["quotas"][0]["subtree"]) == ("research", False, 256)


def test_all_documents_of_a_request_are_taken_or_none(admin: httpx.Client) -> None:
    answer = applied(admin, queue("a"), queue("a/b", frobnicate=1))
    assert slug(answer) == (422, "unknown-field")
    assert answer.json()["errors"][0]["pointer"] == "/1/spec/frobnicate"
    assert slug(applied(admin, queue("a"), queue("x/y"))) == (422, "queue-unknown")
    assert admin.get("/api/v1/queues").json()["items"] == []


def test_a_tree_is_at_most_eight_deep(admin: httpx.Client) -> None:
    paths = ["/".join("abcdefghi"[: depth + 1]) for depth in range(9)]
    assert applied(admin, *map(queue, paths[:8])).status_code == 200
    assert slug(applied(admin, queue(paths[8]))) == (422, "queue-too-deep")


def test_a_queue_moves_with_all_below_it_but_never_below_itself(admin: httpx.Client) -> None:
    assert applied(admin, queue("a"), queue("a/b"), queue("a/b/c"), queue("z")).status_code == 200
    assert slug(admin.post("/api/v1/queues/a/move", json={"path": "a/b/c/a"})) == (422, "queue-cycle")
    assert slug(admin.post("/api/v1/queues/a/move", json={"path": "z"})) == (409, "name-conflict")
    assert slug(admin.post("/api/v1/queues/nope/move", json={"path": "y"})) == (404, "not-found")
    moved = admin.post("/api/v1/queues/a/b/move", json={"path": "z/b"})
    assert (moved.status_code, moved.json()["parent"]) == (200, "z")
    assert [each["path"] for each in admin.get("/api/v1/queues").json()["items"]] == ["a", "z", "z/b", "z/b/c"]


def test_what_has_live_work_neither_moves_nor_goes_nor_becomes_a_parent(tree: httpx.Client) -> None:
    assert tree.post("/api/v1/workloads", json=workload()).status_code == 201
    assert slug(tree.post("/api/v1/queues/research/nlp/move", json={"path": "nlp"})) == (409, "queue-in-use")
    assert slug(tree.post("/api/v1/queues/research/move", json={"path": "r"})) == (409, "queue-in-use")
    assert slug(tree.delete("/api/v1/queues/research/nlp", headers=STANDS)) == (409, "queue-in-use")
    assert slug(tree.delete("/api/v1/queues/research", headers=STANDS)) == (409, "queue-in-use")
    assert slug(applied(tree, queue("research/nlp/below"))) == (409, "queue-in-use")
    tree.post("/api/v1/workloads/llama/cancel")
    assert tree.delete("/api/v1/queues/research/nlp", headers=STANDS).status_code == 204
    assert slug(tree.get("/api/v1/queues/research/nlp")) == (404, "not-found")
    assert applied(tree, queue("research/nlp", namespace="nlp")).json()["applied"][0]["result"] == "created"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"budgets": [{"flavor": "*", "deviceHours": hours, "per": "month"} for hours in (1, 2)]}, "name-conflict"),
        ({"budgets": [{"flavor": "*", "deviceHours": 0, "per": "month"}]}, "invalid-quantity"),
        ({"mostRunning": 0}, "invalid-quantity"),
        ({"quotas": [{"flavor": H100, "domains": {"level": "rack", "count": 2}}]}, "not-yet"),
        ({"quotas": [{"flavor": H100, "nominal": -1}]}, "invalid-quantity"),
        ({"quotas": [{"flavor": H100, "nominal": 1.5}]}, "invalid-quantity"),
        ({"quotas": [{"flavor": H100}, {"flavor": H100}]}, "name-conflict"),
        ({"quotas": [{"flavor": "NVIDIA H100"}]}, "invalid-name"),
        ({"weight": -1}, "invalid-quantity"),
        ({"namespace": "kube-system"}, "reserved-name"),
        ({"tenant_id": "x"}, "unknown-field"),
    ],
)
def test_a_queue_that_is_none_is_refused(still: httpx.Client, spec: dict[str, object], expected: str) -> None:
    assert slug(applied(still, queue("a", **spec))) == (422, expected)


def test_two_roots_cannot_both_own_what_is_left_of_a_flavor(admin: httpx.Client) -> None:
    open_end = {"quotas": [{"flavor": H100}]}
    assert slug(applied(admin, queue("a", **open_end), queue("b", **open_end))) == (422, "quota-conflict")


def test_a_kind_that_nothing_obeys_yet_is_refused(admin: httpx.Client) -> None:
    window = {"apiVersion": "muster.dev/v1", "kind": "Window", "metadata": {"name": "x"}, "spec": {}}
    assert slug(applied(admin, window)) == (422, "not-yet")
    assert slug(applied(admin, {**window, "kind": "ConfigMap"})) == (422, "kind-not-allowed")
    assert slug(admin.post("/api/v1/apply", content="", headers=YAML)) == (400, "empty-body")


def test_pools_policies_clusters_and_work_are_applied_together(tree: httpx.Client) -> None:
    head = {"apiVersion": "muster.dev/v1"}
    answer = applied(
        tree,
        job(),
        workload(pool="big"),
        {**head, "kind": "Policy", "metadata": {"name": "big"}, "spec": {"earmarkSeconds": 60, "reclaim": False}},
        {
            **head,
            "kind": "Cluster",
            "metadata": {"name": "eu-west"},
            "spec": {"pool": "big", "suspectSeconds": 5, "budgets": {"pullSeconds": 7_200}},
        },
        {**head, "kind": "Pool", "metadata": {"name": "big"}},
        {**head, "kind": "Flavor", "metadata": {"name": "nvidia-a100-40gb-mig-1g.5gb"}},
    )
    assert answer.status_code == 200, answer.text
    results = {(each["kind"], each["name"]): each["result"] for each in answer.json()["applied"]}
    assert results == {
        ("Pool", "big"): "created",
        ("Policy", "big"): "created",
        ("Cluster", "eu-west"): "created",
        ("Flavor", "nvidia-a100-40gb-mig-1g.5gb"): "unchanged",
        ("Workload", "resnet"): "submitted",
        ("Workload", "llama"): "submitted",
    }
    assert tree.get("/api/v1/workloads/llama").json()["pool"] == "big"
    spec = tree.get("/api/v1/clusters/eu-west").json()["spec"]
    assert spec["suspectSeconds"] == 5
    assert spec["budgets"] == {"prepareSeconds": 120, "bindSeconds": 600, "pullSeconds": 7_200, "readySeconds": 600}


@pytest.mark.parametrize(
    "address", ["east.example", "{host}", "{pod}.east.example", "{host}.east..example", "{host}/x"]
)
def test_how_members_are_called_is_a_name_with_the_host_in_front(still: httpx.Client, address: str) -> None:
    document = {
        "apiVersion": "muster.dev/v1", "kind": "Cluster", "metadata": {"name": "eu-west"},
        "spec": {"memberAddress": address},
    }  # fmt: skip
    assert applied(still, document).status_code == 422


def test_what_a_cluster_has_and_how_it_is_reached_is_kept_as_it_was_applied(tree: httpx.Client) -> None:
    said = {
        "networkDomain": "wan", "facts": {"storage": ["nvme"], "data": ["s3://corpus/v7"]},
        "memberAddress": "{host}.{service}.{namespace}.svc.eu.example",
    }  # fmt: skip
    document = {"apiVersion": "muster.dev/v1", "kind": "Cluster", "metadata": {"name": "eu-west"}, "spec": said}
    assert applied(tree, document).status_code == 200
    spec = tree.get("/api/v1/clusters/eu-west").json()["spec"]
    assert {name: spec[name] for name in said} == said


@pytest.mark.parametrize("seconds", [0, "60", 86_401])
def test_a_budget_is_at_least_a_second_and_at_most_a_day(still: httpx.Client, seconds: object) -> None:
    spec = {"budgets": {"bindSeconds": seconds}}
    cluster = {"apiVersion": "muster.dev/v1", "kind": "Cluster", "metadata": {"name": "eu"}, "spec": spec}
    assert applied(still, cluster).status_code == 422


def test_a_policy_that_says_nothing_new_is_no_new_version(tree: httpx.Client) -> None:
    policy = {
        "apiVersion": "muster.dev/v1", "kind": "Policy", "metadata": {"name": "default"}, "spec": {"backoffSeconds": 5},
    }  # fmt: skip
    first, second = (applied(tree, policy).json()["applied"][0] for _ in range(2))
    assert (first["result"], second["result"]) == ("created", "unchanged")
    assert first["id"] == second["id"]


def test_a_json_list_of_documents_is_applied_once_under_one_key(admin: httpx.Client) -> None:
    key = {"Idempotency-Key": "tree-1"}
    body = [queue("a"), queue("a/b")]
    first = admin.post("/api/v1/apply", json=body, headers=key)
    again = admin.post("/api/v1/apply", json=body, headers=key)
    assert first.status_code == 200
    assert again.json() == first.json()
    assert again.headers["Idempotent-Replayed"] == "true"


def test_a_role_ends_where_its_subtree_ends(api: Api, tree: httpx.Client) -> None:
    member = api.client(api.token("ada", "member", "research/nlp"))
    assert member.get("/api/v1/whoami").json()["roles"] == ["member of research/nlp"]
    assert slug(applied(member, queue("research/nlp", weight=9))) == (403, "forbidden")
    assert slug(member.post("/api/v1/tokens", json={"principal": "eve"})) == (403, "forbidden")
    assert slug(member.get("/api/v1/doctor")) == (403, "forbidden")
    assert slug(member.get("/api/v1/audit")) == (403, "forbidden")
    assert member.get("/api/v1/clusters").status_code == 200
    auditor = api.client(api.token("otto", "auditor"))
    assert auditor.get("/api/v1/audit").status_code == 200
    assert slug(auditor.post("/api/v1/workloads", json=workload())) == (403, "forbidden")


def test_a_token_is_shown_once_and_ends_when_it_is_revoked(api: Api, tree: httpx.Client) -> None:
    made = tree.post(
        "/api/v1/tokens", json={"principal": "ci", "kind": "service", "queue": "research", "expiresIn": "1h"}
    )
    assert made.status_code == 201, made.text
    token = made.json()["token"]
    client = api.client(token)
    assert client.get("/api/v1/whoami").json()["principal"] == "ci"
    assert token not in json.dumps(tree.get("/api/v1/audit").json())
    assert tree.delete(f"/api/v1/tokens/{made.json()['id']}").status_code == 204
    assert slug(client.get("/api/v1/whoami")) == (401, "invalid-token")
    assert slug(tree.delete(f"/api/v1/tokens/{made.json()['id']}")) == (404, "not-found")
    assert slug(tree.post("/api/v1/tokens", json={"principal": "x", "queue": "nope"})) == (422, "queue-unknown")
