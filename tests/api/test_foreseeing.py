"""`apply?dryRun=true&plan=true`: who would start, wait or have to leave, were the documents applied now."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.core.facts.tenancy import Binding, Principal, Role
from controlplane.services.applying import How, Sent, WouldBe, apply
from controlplane.services.authz import Caller
from controlplane.services.documents import document_from
from controlplane.services.ports.unit_of_work import rehearse
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
    """Eight nodes, and what runs on them: four for each of two queues; nothing is free."""
    with serving(settings_for(database, valkey, tmp_path)) as started:
        plane.cluster("eu-west", nodes=8, namespaces=["nlp", "vision"])
        client = started.client()
        assert client.post("/api/v1/apply", content=QUEUES, headers=YAML).status_code == 200
        for name, queue in (("mine", "research/nlp"), ("theirs", "research/vision")):
            assert client.post("/api/v1/workloads", json=workload(name, queue=queue)).status_code == 201
        plane.planner().step()
        yield started


def queue(path: str, nominal: int, **spec: object) -> dict[str, Any]:
    quotas = [{"flavor": H100, "nominal": nominal}]
    return {
        "apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": path}, "spec": {"quotas": quotas, **spec},
    }  # fmt: skip


def foreseen(client: httpx.Client, *documents: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/api/v1/apply?dryRun=true&plan=true", json=list(documents))
    assert answer.status_code == 200, answer.text
    (plan,) = answer.json()["plan"]
    return dict(plan)


def names(items: list[dict[str, Any]]) -> list[tuple[str, str, str | None]]:
    return [(each["workload"], each["queue"], each["before"]) for each in items]


def test_new_work_that_finds_no_room_would_wait_and_is_told_why(api: Api) -> None:
    plan = foreseen(api.client(), workload("late"))
    assert plan["before"] == {"starts": 0, "waits": 0, "leaves": 0, "runs": 2}
    assert plan["after"] == {"starts": 0, "waits": 1, "leaves": 0, "runs": 2}
    assert names(plan["waits"]) == [("late", "research/nlp", None)]
    assert plan["waits"][0]["reasons"][0]["code"] in {"not-enough-free", "quota-exceeded"}


def test_new_work_that_fits_would_start_there(api: Api, plane: Plane) -> None:
    plane.cluster("us-east", nodes=4, namespaces=["nlp", "vision"])
    raised = queue("research", 128)
    plan = foreseen(api.client(), raised, workload("late"))
    assert names(plan["starts"]) == [("late", "research/nlp", None)]
    assert (plan["starts"][0]["clusters"], plan["starts"][0]["charges"]) == (["us-east"], {H100: 32})


def test_a_quota_that_goes_elsewhere_makes_a_borrower_leave_for_who_waits(api: Api) -> None:
    client = api.client()
    moved = [
        queue("research", 64),
        queue("research/nlp", 64, namespace="nlp"),
        queue("research/vision", 0, namespace="vision"),
    ]
    plan = foreseen(client, *moved, workload("late"))
    assert names(plan["leaves"]) == [("theirs", "research/vision", "runs")]
    assert (plan["leaves"][0]["asker"], plan["leaves"][0]["reasons"][0]["code"]) == ("late", "reclaimed")
    assert names(plan["waits"]) == [("late", "research/nlp", None)]
    assert plan["after"]["leaves"] == 1


def test_a_queue_of_the_same_request_takes_work_and_nothing_is_stored(api: Api, plane: Plane) -> None:
    plane.cluster("us-east", nodes=4, namespaces=["nlp", "vision", "speech"])
    documents = [queue("research", 128), queue("research/speech", 32, namespace="speech")]
    plan = foreseen(api.client(), *documents, workload("hello", queue="research/speech"))
    assert names(plan["starts"]) == [("hello", "research/speech", None)]
    assert api.client().get("/api/v1/queues/research/speech").status_code == 404
    assert api.client().get("/api/v1/workloads/hello").status_code == 404


def test_a_policy_is_planned_with_as_it_would_be(api: Api) -> None:
    moved = [queue("research/nlp", 64, namespace="nlp"), queue("research/vision", 0, namespace="vision")]
    keep = {
        "apiVersion": "muster.dev/v1",
        "kind": "Policy",
        "metadata": {"name": "default"},
        "spec": {"reclaim": False},
    }
    plan = foreseen(api.client(), *moved, workload("late"), keep)
    assert (plan["leaves"], plan["after"]["waits"]) == ([], 1)


def test_a_budget_that_is_new_counts_what_was_used_of_it_already(api: Api, plane: Plane) -> None:
    plane.cluster("us-east", nodes=4, namespaces=["nlp", "vision"])
    plane.do(
        """INSERT INTO usage_hour (queue_id, flavor, hour, device_seconds)
           SELECT id, :flavor, date_trunc('hour', now(), 'UTC'), :seconds FROM queue WHERE path = 'research/nlp'""",
        flavor=H100, seconds=100 * 3_600,
    )  # fmt: skip
    for hours, fate in ((100, "waits"), (101, "starts")):
        budget = {"flavor": "*", "deviceHours": hours, "per": "year", "hard": True}
        raised = [queue("research", 128, budgets=[budget]), queue("research/nlp", 128, namespace="nlp")]
        assert names(foreseen(api.client(), *raised, workload("late"))[fate]) == [("late", "research/nlp", None)], hours


def test_documents_that_change_nothing_change_no_fate(api: Api) -> None:
    plan = api.client().post("/api/v1/apply?dryRun=true&plan=true", content=QUEUES, headers=YAML).json()["plan"]
    assert plan == [], "no pool is planned for what says nothing new"


def test_what_others_would_have_to_give_has_no_name_for_who_does_not_see_them(api: Api) -> None:
    moved = [queue("research/nlp", 64, namespace="nlp"), queue("research/vision", 0, namespace="vision")]
    assert api.client().post("/api/v1/apply", json=moved).status_code == 200
    member = api.client(api.token("bob", "member", "research/nlp"))
    plan = foreseen(member, workload("late"))
    assert names(plan["leaves"]) == [("other work", "another queue", "runs")]
    assert plan["leaves"][0] == {
        "workload": "other work", "queue": "another queue", "before": "runs", "clusters": [], "charges": {H100: 32},
        "asker": "", "reasons": [],
    }  # fmt: skip
    assert "theirs" not in json.dumps(plan)
    assert "vision" not in json.dumps(plan)


def test_rights_are_those_of_the_dry_run(api: Api) -> None:
    auditor = api.client(api.token("ines", "auditor"))
    assert auditor.post("/api/v1/apply?dryRun=true&plan=true", json=[workload("late")]).status_code == 403


def test_a_plan_without_a_dry_run_means_nothing(api: Api) -> None:
    answer = api.client().post("/api/v1/apply?plan=true", json=[workload("late")])
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-filter")
    plain = api.client().post("/api/v1/apply?dryRun=true", json=[workload("late")]).json()
    assert "plan" not in plain


def test_a_rehearsal_that_is_tried_again_foresees_each_work_once(api: Api) -> None:
    admin = Caller(Principal(0, "person", "ada", (Binding(Role.PLATFORM_ADMIN),)))
    sent, would_be, container = [Sent(*document_from(workload("late")))], WouldBe(), api.container
    for _ in range(2):
        rehearse(
            container.uow_factory,
            lambda uow: apply(uow, admin, sent, container.new_id, How(dry_run=True), would_be),
        )
    assert [document.metadata.name for document, _ in would_be.work] == ["late"]
