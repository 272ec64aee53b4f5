"""What a cycle did, over real HTTP: its plan, the ledger's accounts and transfers, and where logs of live pods are."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.services.planes import H100, Plane
from tests.support.api import Api, serving, settings_for
from tests.support.databases import Database


@pytest.fixture
def planned(database: Database, valkey: str, tmp_path: Path) -> Iterator[Api]:
    """One gang was placed in lab/a, and one of lab/b waits."""
    plane = Plane(database)
    plane.cluster("eu-west", nodes=4)
    plane.queue("lab", nominal=0)
    first, second = plane.queue("lab/a", nominal=24, borrow=0), plane.queue("lab/b", nominal=8, borrow=0)
    plane.workload("runs", first, pods=2)
    plane.workload("waits", second, pods=2)
    plane.planner().step()
    with serving(settings_for(database, valkey, tmp_path)) as api:
        yield api
    plane.close()


def test_a_cycle_tells_what_it_decided_and_why_others_wait(planned: Api) -> None:
    admin = planned.client()
    (listed,) = admin.get("/api/v1/cycles").json()["items"]
    assert admin.get(f"/api/v1/cycles/{listed['id']}").json() == listed
    plan = admin.get(f"/api/v1/cycles/{listed['id']}/plan").json()
    assert plan["planSha256"] == listed["planSha256"]
    (decision,) = plan["decisions"]
    assert (decision["kind"], decision["name"], decision["queue"], decision["attempt"]) == ("admit", "runs", "lab/a", 1)
    assert decision["placements"] == [{"cluster": "eu-west", "nodes": 2, "pods": 2, "units": {H100: 16}}]
    (waiting,) = plan["waiting"]
    assert (waiting["name"], plan["waitingTotal"]) == ("waits", 1)
    assert waiting["reasons"][0]["code"].startswith("quota-")
    for number, status in (("4711", 404), ("0", 400), ("x", 400)):
        for rest in ("", "/plan"):
            assert admin.get(f"/api/v1/cycles/{number}{rest}").status_code == status, number


def test_the_ledger_is_shown_as_it_is_stored(planned: Api) -> None:
    admin = planned.client()
    accounts = admin.get("/api/v1/ledger/accounts", params={"flavor": H100}).json()["items"]
    assert [(each["queue"], each["subtree"], each["pending"], each["posted"]) for each in accounts] == [
        ("lab", 32, 0, accounts[0]["posted"]), ("lab/a", 24, 16, 0), ("lab/b", 8, 0, 0),
    ]  # fmt: skip
    (transfer,) = admin.get("/api/v1/ledger/transfers", params={"workload": "runs", "queue": "lab/a"}).json()["items"]
    assert (transfer["kind"], transfer["name"], transfer["attempt"]) == ("place", "runs", 1)
    assert transfer["legs"] == [{"queue": "lab/a", "flavor": H100, "amount": 16, "source": "free", "target": "pending"}]
    assert admin.get("/api/v1/ledger/transfers", params={"queue": "lab/b"}).json()["items"] == []


def test_money_is_shown_of_ones_own_subtree_in_pages(planned: Api) -> None:
    mine = planned.client(planned.token("ada", "member", "lab/a"))
    assert {each["queue"] for each in mine.get("/api/v1/ledger/accounts").json()["items"]} == {"lab/a"}
    (transfer,) = mine.get("/api/v1/ledger/transfers").json()["items"]
    assert {leg["queue"] for leg in transfer["legs"]} == {"lab/a"}
    other = planned.client(planned.token("bea", "member", "lab/b"))
    assert other.get("/api/v1/ledger/transfers").json()["items"] == []
    seen = pages(planned.client(), "/api/v1/ledger/accounts")
    assert seen == ["lab", "lab/a", "lab/b"]


def pages(client: httpx.Client, path: str) -> list[str]:
    """The queues of all pages of one item each."""
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        asked: dict[str, str | int] = {"limit": 1} | ({"cursor": cursor} if cursor else {})
        page = client.get(path, params=asked).json()
        seen += [each["queue"] for each in page["items"]]
        cursor = page["next"]
    return seen


def test_where_the_logs_of_live_pods_are_is_told_once_they_run(planned: Api) -> None:
    admin = planned.client()
    assert admin.get("/api/v1/workloads/runs").json()["logs"] == []
    with planned.container.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE pod SET uid = 'u-' || id, state = 'running'")
    shown = admin.get("/api/v1/workloads/runs").json()
    (logs,) = shown["logs"]
    assert (logs["cluster"], logs["podSet"], logs["pods"]) == ("eu-west", "main", 2)
    assert logs["command"].startswith("kubectl --context eu-west -n ")
    assert f"muster.dev/workload-uid={shown['id']},muster.dev/attempt=1,muster.dev/pod-set=main" in logs["command"]
