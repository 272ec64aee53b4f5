"""ETag, If-Match and If-None-Match over real HTTP: nothing is changed that its caller has not seen."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.api.documents import DRY, STANDS, applied, document, results, slug
from tests.support.api import Api


def test_what_a_dry_run_has_shown_is_applied_only_while_it_still_holds(tree: httpx.Client) -> None:
    wanted = [document("Queue", "research/nlp", namespace="nlp", weight=9), document("Queue", "research/new")]
    basis = applied(tree, *wanted, how=DRY).json()["basis"]
    elsewhere = document("Queue", "research/vision", namespace="vision", weight=5)
    assert results(applied(tree, elsewhere)) == {"Queue research/vision": "changed"}
    match = {"If-Match": f'"{basis}"'}
    assert set(results(applied(tree, *wanted, headers=match)).values()) == {"changed", "created"}
    failed = applied(tree, *wanted, headers=match)
    assert slug(failed) == (412, "precondition-failed")
    assert failed.headers["ETag"] == f'"{applied(tree, *wanted, how=DRY).json()["basis"]}"'


def test_of_two_who_saw_the_same_state_exactly_one_wins(api: Api, tree: httpx.Client) -> None:
    basis = applied(tree, document("Queue", "research/nlp", namespace="nlp"), how=DRY).json()["basis"]
    etag = tree.get("/api/v1/documents/Queue/research/vision").headers["ETag"]

    def apply(weight: int) -> int:
        with httpx.Client(base_url=api.url, headers=tree.headers, trust_env=False) as client:
            wanted = document("Queue", "research/nlp", namespace="nlp", weight=weight)
            return applied(client, wanted, headers={"If-Match": f'"{basis}"'}).status_code

    def put(weight: int) -> int:
        with httpx.Client(base_url=api.url, headers=tree.headers, trust_env=False) as client:
            wanted = document("Queue", "research/vision", namespace="vision", weight=weight)
            return client.put(
                "/api/v1/documents/Queue/research/vision", json=wanted, headers={"If-Match": etag}
            ).status_code

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(apply, range(11, 15))) == [200, 412, 412, 412]
        assert sorted(threads.map(put, range(11, 15))) == [200, 412, 412, 412]


def test_one_document_is_put_and_deleted_only_by_who_says_what_stands(tree: httpx.Client) -> None:
    address = "/api/v1/documents/Queue/research/nlp"
    seen = tree.get(address)
    etag = seen.headers["ETag"]
    assert tree.get("/api/v1/queues/research/nlp").headers["ETag"] == etag == f'"{seen.json()["etag"]}"'
    wanted = seen.json()["document"]
    wanted["spec"]["weight"] = 7
    assert slug(tree.put(address, json=wanted)) == (428, "precondition-required")
    for wrong in ('"0"', f"W/{etag}", '"a", "b"'):
        failed = tree.put(address, json=wanted, headers={"If-Match": wrong})
        assert slug(failed) == (412, "precondition-failed"), wrong
        assert failed.headers["ETag"] == etag
    put = tree.put(address, json=wanted, headers={"If-Match": etag})
    assert (put.json()["result"], put.json()["changes"]) == (
        "changed", [{"path": "/spec/weight", "before": 3, "after": 7}],
    )  # fmt: skip
    assert put.headers["ETag"] == tree.get(address).headers["ETag"] != etag
    assert tree.put(address, json=wanted, headers={"If-Match": put.headers["ETag"]}).json()["result"] == "unchanged"
    assert slug(tree.delete(address)) == (428, "precondition-required")
    assert slug(tree.delete("/api/v1/queues/research/nlp")) == (428, "precondition-required")
    assert slug(tree.delete(address, headers={"If-Match": etag})) == (412, "precondition-failed")
    assert tree.delete(address, headers={"If-Match": put.headers["ETag"]}).status_code == 204
    assert slug(tree.get(address)) == (404, "not-found")
    assert slug(tree.delete(address, headers=STANDS)) == (404, "not-found")
    assert slug(tree.put(address, json=wanted, headers=STANDS)) == (412, "precondition-failed")


def test_a_document_is_made_where_there_is_none_and_only_there(admin: httpx.Client) -> None:
    address, wanted, absent = "/api/v1/documents/Pool/small", document("Pool", "small"), {"If-None-Match": "*"}
    assert admin.put(address, json=wanted, headers=absent).json()["result"] == "created"
    assert slug(admin.put(address, json=wanted, headers=absent)) == (412, "precondition-failed")
    mismatch = admin.put("/api/v1/documents/Pool/large", json=wanted, headers=absent)
    assert slug(mismatch) == (422, "invalid-value")
    assert mismatch.json()["errors"][0]["pointer"] == "/metadata/name"
    assert slug(admin.put("/api/v1/documents/Queue/small", json=wanted, headers=absent)) == (422, "invalid-value")


@pytest.mark.parametrize(
    "headers",
    [
        {"If-Match": ""},
        {"If-Match": "7"},
        {"If-Match": '"7'},
        {"If-Match": '*, "7"'},
        {"If-Match": '"' + "x" * 300 + '"'},
        {"If-Match": ", ".join(f'"{number}"' for number in range(30))},
        {"If-None-Match": '"7"'},
        {"If-Match": "*", "If-None-Match": "*"},
    ],
)
def test_a_precondition_that_is_none_is_refused(still: httpx.Client, headers: dict[str, str]) -> None:
    answer = still.put("/api/v1/documents/Pool/small", json=document("Pool", "small"), headers=headers)
    assert slug(answer) == (400, "invalid-precondition")
    assert still.get("/api/v1/documents", params={"kind": "Pool"}).json()["items"] == []


def test_what_a_request_says_has_one_form_in_every_process() -> None:
    """Else a repeated one (the same `Idempotency-Key`) that another process takes would be another one to it."""
    code = """if True:
        from controlplane.services.applying import How
        from controlplane.services.preconditions import Expected
        print(How(Expected(tags=frozenset(("one", "two", "three", "four", "five")))).said())
    """
    told = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1
