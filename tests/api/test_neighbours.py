"""What a team is told of others: that somebody needed the devices, not who or for what."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from controlplane.core.reasons import Reason, ReasonCode, reason
from tests.services.planes import H100, Plane
from tests.support.api import Api, serving, settings_for
from tests.support.databases import Database

RECLAIMED = reason(ReasonCode.RECLAIMED, amount=8, flavor=H100, queue="secret/lab", workload="launch-codes")
KEPT = reason(ReasonCode.EARMARKED_FOR_ANOTHER, amount=8, flavor=H100, cluster="eu", workload="launch-codes")


def stored(why: Reason) -> str:
    return json.dumps({"code": why.code, "facts": dict(why.facts)})


@pytest.fixture
def api(database: Database, valkey: str, tmp_path: Path) -> Iterator[Api]:
    """In team one gang runs whose devices were wanted by another team, and one waits for devices that are kept."""
    plane = Plane(database)
    plane.cluster("eu", nodes=2)
    team = plane.queue("team", nominal=8)
    plane.queue("secret")
    plane.queue("secret/lab", nominal=8)
    plane.workload("runs", team, pods=1)
    plane.planner().step()
    plane.workload("waits", team, pods=1)
    plane.do("UPDATE attempt SET reason = CAST(:why AS jsonb)", why=stored(RECLAIMED))
    plane.do("UPDATE workload SET reasons = CAST(:why AS jsonb) WHERE name = 'waits'", why=f"[{stored(KEPT)}]")
    with serving(settings_for(database, valkey, tmp_path)) as api:
        yield api
    plane.close()


def told(client: httpx.Client) -> str:
    paths = ("", "/runs", "/runs/explain", "/waits", "/waits/explain")
    answers = [client.get(f"/api/v1/workloads{path}") for path in paths]
    assert [answer.status_code for answer in answers] == [200] * len(paths)
    return "\n".join(answer.text for answer in answers)


def test_a_neighbours_queues_and_workloads_are_named_to_nobody_who_does_not_see_them(api: Api) -> None:
    seen = told(api.client(api.token("ada", "member", "team")))
    assert "Its borrowed 8 nvidia-h100-80gb went back to another queue for its work." in seen
    assert "8 free nvidia-h100-80gb in eu are kept for other work." in seen
    assert "secret" not in seen
    assert "launch-codes" not in seen


@pytest.mark.parametrize("queue", [None, "secret"])
def test_who_sees_the_other_queue_too_is_told_its_name(api: Api, queue: str | None) -> None:
    both = api.token("ines", "auditor", "team")
    if queue is not None:
        assert (
            api.client()
            .post("/api/v1/bindings", json={"principal": "ines", "role": "member", "queue": queue})
            .is_success
        )
    else:
        both = api.token("otto", "auditor")
    assert "went back to secret/lab for launch-codes." in told(api.client(both))
