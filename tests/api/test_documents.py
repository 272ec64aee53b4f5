"""/api/v1/documents and apply over real HTTP: read back, compared, rehearsed, pruned, deleted by rules."""

import httpx
import pytest

from tests.api.bodies import workload
from tests.api.documents import DRY, H100, STANDS, applied, changes, deeds, document, paths, results, slug
from tests.support.api import Api

WORLD = (
    document("Pool", "big", {"team": "infra"}),
    document("Policy", "big", {"team": "infra"}, earmarkSeconds=60, reclaim=False),
    document("Cluster", "eu-west", {"region": "eu"}, pool="big", suspectSeconds=5, budgets={"pullSeconds": 7_200}),
    document("Queue", "lab", {"team": "lab"}, quotas=[{"flavor": H100}]),
    document("Queue", "lab/a", weight=2, namespace="lab-a", quotas=[{"flavor": H100, "nominal": 8, "lend": 4}]),
)


def test_what_is_read_back_is_what_was_written_and_changes_nothing_when_applied_again(admin: httpx.Client) -> None:
    assert set(results(applied(admin, *WORLD)).values()) == {"created"}
    read = [
        admin.get(f"/api/v1/documents/{each['kind']}/{each['metadata']['name']}").json()["document"] for each in WORLD
    ]
    assert read == list(WORLD)
    before = len(deeds(admin))
    assert set(results(applied(admin, *read)).values()) == {"unchanged"}
    assert len(deeds(admin)) == before, "what changes nothing is no deed"


def test_documents_are_listed_by_kind_label_and_page(admin: httpx.Client) -> None:
    applied(admin, *WORLD)
    listed = admin.get("/api/v1/documents").json()
    names = [f"{each['kind']} {each['name']}" for each in listed["items"]]
    assert names == ["Cluster eu-west", "Policy big", "Pool big", "Queue lab", "Queue lab/a"]
    assert listed["items"][3]["labels"] == {"team": "lab"}
    found, cursor = [], None
    for _ in range(3):
        page = admin.get("/api/v1/documents", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        found += [f"{each['kind']} {each['name']}" for each in page["items"]]
        cursor = page["next"]
    assert (found, cursor) == (names, None)
    only = admin.get("/api/v1/documents", params={"kind": "Queue", "label": "team=lab"}).json()["items"]
    assert [each["name"] for each in only] == ["lab"]
    assert slug(admin.get("/api/v1/documents", params={"kind": "Secret"})) == (400, "invalid-filter")
    assert slug(admin.get("/api/v1/documents", params={"label": "team"})) == (400, "invalid-filter")
    other = {"kind": "Queue", "cursor": admin.get("/api/v1/documents", params={"limit": 2}).json()["next"]}
    assert slug(admin.get("/api/v1/documents", params=other)) == (400, "invalid-cursor")


def test_a_page_may_end_at_the_longest_name_that_there_is(admin: httpx.Client) -> None:
    names = ["/".join([letter * 63] * depth) for letter in "ab" for depth in range(1, 9)]
    applied(admin, *(document("Queue", name) for name in names))
    found: list[str] = []
    asked = {"kind": "Queue", "limit": "1"}
    while len(found) <= len(names):
        answer = admin.get("/api/v1/documents", params=asked)
        assert answer.status_code == 200, answer.text
        found += [each["name"] for each in answer.json()["items"]]
        if (cursor := answer.json()["next"]) is None:
            break
        asked["cursor"] = cursor
    assert found == names


def test_a_change_is_told_by_pointer_with_both_sides(tree: httpx.Client) -> None:
    changed = document(
        "Queue", "research/nlp", {"team": "nlp"}, namespace="nlp",
        quotas=[{"flavor": H100, "nominal": 96, "borrow": 64}, {"flavor": "nvidia-a100-80gb", "nominal": 8}],
    )  # fmt: skip
    answer = applied(tree, changed, how=DRY)
    assert results(answer) == {"Queue research/nlp": "changed"}
    assert changes(answer) == {
        "/metadata/labels/team": (None, "nlp"),
        f"/spec/quotas/{H100}/nominal": (128, 96),
        "/spec/quotas/nvidia-a100-80gb/nominal": (None, 8),
        "/spec/weight": (3, None),
    }
    assert list(changes(answer)) == sorted(changes(answer))
    assert "before" not in answer.json()["applied"][0]["changes"][0]


def test_a_dry_run_says_what_would_come_of_it_and_changes_nothing(tree: httpx.Client) -> None:
    before, noted = tree.get("/api/v1/documents").json(), len(deeds(tree))
    answer = applied(
        tree,
        document("Pool", "small"),
        document("Policy", "small", backoffSeconds=5),
        document("Cluster", "us", pool="small"),
        document("Queue", "research/speech", namespace="speech", quotas=[{"flavor": H100, "nominal": 8}]),
        document("Queue", "research/vision", namespace="vision"),
        workload("first", {"replicas": 1}, queue="research/speech", pool="small"),
        how=DRY,
    )
    assert results(answer) == {
        "Pool small": "created",
        "Policy small": "created",
        "Cluster us": "created",
        "Queue research/speech": "created",
        "Queue research/vision": "changed",
        "Workload first": "submitted",
    }
    assert answer.json()["dryRun"] is True
    assert tree.get("/api/v1/documents").json() == before
    assert tree.get("/api/v1/workloads").json()["items"] == []
    assert len(deeds(tree)) == noted


def test_a_dry_run_refuses_what_the_real_one_would(tree: httpx.Client) -> None:
    dry = DRY
    too_many = workload("huge", {"replicas": 1_000})
    assert slug(applied(tree, too_many, how=dry)) == slug(applied(tree, too_many)) == (422, "never-satisfiable")
    both_own = [document("Queue", name, quotas=[{"flavor": "nvidia-b200-192gb"}]) for name in ("a", "b")]
    assert slug(applied(tree, *both_own, how=dry)) == slug(applied(tree, *both_own)) == (422, "quota-conflict")
    orphan = document("Queue", "x/y")
    refused = applied(tree, document("Queue", "z"), orphan, how=dry)
    assert slug(refused) == (422, "queue-unknown")
    assert refused.json()["errors"][0]["pointer"] == "/1/metadata/name"
    nowhere = applied(tree, document("Cluster", "eu", pool="nowhere"))
    assert slug(nowhere) == (422, "pool-unknown")
    assert nowhere.json()["errors"][0]["pointer"] == "/0/spec/pool"
    assert slug(applied(tree, document("Policy", "nowhere"))) == (422, "pool-unknown")


@pytest.mark.parametrize(("kind", "name"), [("Workload", "w"), ("Flavor", H100), ("Secret", "s"), ("Queue", "no/such")])
def test_what_is_not_stored_is_not_found(still: httpx.Client, kind: str, name: str) -> None:
    address = f"/api/v1/documents/{kind}/{name}"
    assert slug(still.get(address)) == (404, "not-found")
    assert slug(still.delete(address, headers=STANDS)) == (404, "not-found")


def test_the_log_says_what_was_changed_of_a_document(tree: httpx.Client) -> None:
    for weight in (5, 6):
        applied(tree, document("Queue", "research/vision", namespace="vision", weight=weight))
    tree.delete("/api/v1/documents/Queue/research/vision", headers=STANDS)
    rows = deeds(tree, kind="queue", object="research/vision")
    assert [row["action"] for row in rows] == ["queue.delete", "queue.write", "queue.write", "queue.write"]
    assert rows[1]["facts"]["changes"] == ["/spec/weight"]


def test_prune_takes_what_carries_the_label_and_was_not_sent_children_first(tree: httpx.Client) -> None:
    mine = {"owner": "gitops"}
    world = [
        document("Queue", "a", mine), document("Queue", "a/b", mine), document("Queue", "a/b/c", mine),
        document("Queue", "keep", mine), document("Pool", "old", mine), document("Policy", "old", mine, reclaim=False),
        document("Cluster", "eu", mine),
    ]  # fmt: skip
    assert set(results(applied(tree, *world)).values()) == {"created"}
    how = {"prune": "true", "label": "owner=gitops"}
    shown = applied(tree, world[3], how={**how, **DRY})
    assert results(shown) == {
        "Queue keep": "unchanged", "Queue a/b/c": "deleted", "Queue a/b": "deleted", "Queue a": "deleted",
        "Policy old": "deleted", "Pool old": "deleted",
    }  # fmt: skip
    assert changes(shown, 4) == {"/metadata/labels/owner": ("gitops", None), "/spec/reclaim": (False, None)}
    match = {"If-Match": f'"{shown.json()["basis"]}"'}
    applied(tree, document("Queue", "late", mine))
    assert slug(applied(tree, world[3], headers=match, how=how)) == (412, "precondition-failed"), "late was not shown"
    assert results(applied(tree, world[3], how=how))["Queue late"] == "deleted"
    assert paths(tree) == ["keep", "research", "research/nlp", "research/vision"]
    assert [each["kind"] for each in tree.get("/api/v1/documents").json()["items"] if each["name"] != "default"] == [
        "Cluster", "Queue", "Queue", "Queue", "Queue",
    ]  # fmt: skip


def test_prune_is_refused_whole_where_one_is_in_use_or_no_label_is_given(tree: httpx.Client) -> None:
    mine = {"owner": "gitops"}
    applied(
        tree,
        document("Queue", "a", mine),
        document("Queue", "busy", mine, namespace="busy", quotas=[{"flavor": H100, "nominal": 8}]),
    )
    assert tree.post("/api/v1/workloads", json=workload(pod_set={"replicas": 1}, queue="busy")).status_code == 201
    how = {"prune": "true", "label": "owner=gitops"}
    kept = document("Queue", "other")
    refused = applied(tree, kept, how=how)
    assert slug(refused) == (409, "queue-in-use")
    assert "busy has 1 live workload" in refused.json()["detail"]
    assert slug(applied(tree, kept, how={**how, **DRY})) == (409, "queue-in-use")
    below = applied(tree, document("Queue", "a/b"), document("Queue", "busy", mine, namespace="busy"), how=how)
    assert slug(below) == (422, "queue-unknown"), "its parent would go"
    assert paths(tree) == ["a", "busy", "research", "research/nlp", "research/vision"]
    applied(tree, document("Pool", "old", mine))
    policy = applied(
        tree, document("Policy", "old", mine), document("Queue", "busy", mine), document("Queue", "a", mine), how=how
    )
    assert slug(policy) == (422, "pool-unknown"), "its Pool would go"
    assert slug(applied(tree, kept, how={"prune": "true"})) == (400, "invalid-filter")
    assert slug(applied(tree, kept, how={"label": "owner=gitops"})) == (400, "invalid-filter")
    assert slug(applied(tree, kept, how={"dryRun": "maybe"})) == (400, "invalid-parameter")


def test_a_pool_goes_when_nothing_lives_in_it_and_a_policy_goes_back_to_the_defaults(tree: httpx.Client) -> None:
    applied(
        tree, document("Pool", "big"), document("Policy", "big", reclaim=False), document("Cluster", "eu", pool="big")
    )
    pool = "/api/v1/documents/Pool/big"
    refused = tree.delete(pool, headers=STANDS)
    assert slug(refused) == (409, "pool-in-use")
    assert "eu" in refused.json()["detail"]
    assert slug(tree.delete("/api/v1/documents/Cluster/eu", headers=STANDS)) == (409, "use-removal")
    applied(tree, document("Pool", "spare"), document("Policy", "spare", reclaim=False))
    assert tree.post("/api/v1/workloads", json=workload(pool="spare")).status_code == 201
    assert slug(tree.delete("/api/v1/documents/Pool/spare", headers=STANDS)) == (409, "pool-in-use")
    tree.post("/api/v1/workloads/llama/cancel")
    assert tree.delete("/api/v1/documents/Pool/spare", headers=STANDS).status_code == 204
    assert slug(tree.get("/api/v1/documents/Policy/spare")) == (404, "not-found")
    assert slug(tree.post("/api/v1/workloads", json=workload(pool="spare"))) == (422, "pool-unknown")
    assert results(applied(tree, document("Pool", "spare"))) == {"Pool spare": "created"}
    assert slug(tree.get("/api/v1/documents/Policy/spare")) == (404, "not-found"), "a Pool begins with the defaults"
    assert tree.delete("/api/v1/documents/Policy/big", headers=STANDS).status_code == 204
    assert slug(tree.get("/api/v1/documents/Policy/big")) == (404, "not-found")
    assert results(applied(tree, document("Policy", "big"))) == {"Policy big": "unchanged"}
    put = tree.put("/api/v1/documents/Policy/big", json=document("Policy", "big"), headers={"If-None-Match": "*"})
    assert (put.json()["result"], "ETag" in put.headers) == ("unchanged", False), "what says nothing is no document"
    applied(tree, document("Pool", "default"))
    assert slug(tree.delete("/api/v1/documents/Pool/default", headers=STANDS)) == (409, "pool-in-use")


def test_a_queue_that_is_deleted_takes_the_roles_in_it_along(api: Api, tree: httpx.Client) -> None:
    ada = api.client(api.token("ada", "member", "research/vision"))
    assert ada.get("/api/v1/documents/Queue/research/vision").status_code == 200
    assert tree.delete("/api/v1/queues/research/vision", headers=STANDS).status_code == 204
    assert results(applied(tree, document("Queue", "research/vision", namespace="other")))
    assert slug(ada.get("/api/v1/documents/Queue/research/vision")) in {(404, "not-found"), (401, "invalid-token")}


def test_a_caller_sees_documents_of_its_own_subtree_and_of_no_tenant(api: Api, tree: httpx.Client) -> None:
    applied(tree, *WORLD)
    ada = api.client(api.token("ada", "member", "research/nlp"))
    seen = [f"{each['kind']} {each['name']}" for each in ada.get("/api/v1/documents").json()["items"]]
    assert seen == ["Cluster eu-west", "Policy big", "Pool big", "Queue research/nlp"]
    assert slug(ada.get("/api/v1/documents/Queue/lab/a")) == (404, "not-found")
    assert slug(ada.delete("/api/v1/documents/Queue/lab/a", headers=STANDS)) == (404, "not-found")
    assert slug(ada.delete("/api/v1/documents/Queue/research/nlp", headers=STANDS)) == (403, "forbidden")
    assert slug(applied(ada, document("Queue", "research/nlp"), how=DRY)) == (403, "forbidden")
    work = applied(ada, workload(), how={**DRY, "prune": "true", "label": "a=b"})
    assert slug(work) == (403, "forbidden"), "prune asks for the right to delete"


def test_a_queue_moves_to_where_a_deleted_one_was_but_not_below_one_with_work(tree: httpx.Client) -> None:
    applied(
        tree, document("Queue", "old"), document("Queue", "old/x"), document("Queue", "new"), document("Queue", "new/x")
    )
    for path in ("old/x", "old"):
        assert tree.delete(f"/api/v1/queues/{path}", headers=STANDS).status_code == 204
    etag = tree.get("/api/v1/queues/new").headers["ETag"]
    wrong = tree.post("/api/v1/queues/new/move", json={"path": "old"}, headers={"If-Match": '"0"'})
    assert slug(wrong) == (412, "precondition-failed")
    moved = tree.post("/api/v1/queues/new/move", json={"path": "old"}, headers={"If-Match": etag})
    assert (moved.status_code, moved.json()["path"]) == (200, "old")
    assert moved.headers["ETag"] == tree.get("/api/v1/queues/old").headers["ETag"]
    assert paths(tree) == ["old", "research", "old/x", "research/nlp", "research/vision"]
    assert tree.post("/api/v1/workloads", json=workload()).status_code == 201
    below = tree.post("/api/v1/queues/old/x/move", json={"path": "research/nlp/x"})
    assert slug(below) == (409, "queue-in-use")
    assert slug(tree.post("/api/v1/queues/research/nlp/move", json={"path": "old/nlp"})) == (409, "queue-in-use")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("research/nlр", (422, "invalid-name")),  # noqa: RUF001 - a Cyrillic letter that looks Latin
        ("research/n\u200blp", (422, "invalid-name")),
        ("research/\u202enlp", (422, "invalid-name")),
        ("research/🙂", (422, "invalid-name")),
        ("Research/NLP", (422, "invalid-name")),
        ("research/" + "a" * 64, (422, "invalid-name")),
        ("research/..", (422, "invalid-name")),
        ("research/%2e%2e", (422, "invalid-name")),
        ("research//nlp", (422, "invalid-name")),
        ("/research", (422, "invalid-name")),
        ("", (422, "invalid-name")),
        ("research/default", (422, "reserved-name")),
        ("kube-system", (422, "reserved-name")),
    ],
)
def test_a_name_that_is_none_is_refused(still: httpx.Client, name: str, expected: tuple[int, str]) -> None:
    assert slug(applied(still, document("Queue", name))) == expected
    assert slug(still.post("/api/v1/queues/research/nlp/move", json={"path": name})) == expected


def test_names_that_clash_in_one_request_are_refused(tree: httpx.Client) -> None:
    twice = applied(tree, document("Queue", "ai"), document("Queue", "ai/llm"), document("Queue", "ai/llm", weight=2))
    assert slug(twice) == (409, "name-conflict")
    assert paths(tree) == ["research", "research/nlp", "research/vision"]


def test_nodes_of_a_cluster_are_not_stored_and_that_is_said(admin: httpx.Client) -> None:
    nodes = [{"count": 2, "devices": {"flavor": H100, "count": 8}, "cpu": 8, "memory": "1Gi"}]
    answer = applied(admin, document("Cluster", "eu", nodes=nodes))
    assert [each["code"] for each in answer.json()["applied"][0]["warnings"]] == ["not-stored"]
    assert results(applied(admin, document("Cluster", "eu"))) == {"Cluster eu": "unchanged"}
