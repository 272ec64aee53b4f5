"""A plane's live world and stored cycles, for whoever plans on them elsewhere."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from controlplane.contract.rest.planning import CycleRecordView
from controlplane.core.cycle import plan_cycle
from controlplane.core.facts.tenancy import Binding, Principal, Role
from controlplane.core.records import plan_hash
from controlplane.services.errors import Conflict
from controlplane.services.replay import chain_of, rerun
from controlplane.services.snapshots import pool_snapshot, read_whole
from controlplane.worlds.building import world_from
from controlplane.worlds.planning import plan
from controlplane.worlds.reading import read
from controlplane.worlds.sources import Source
from tests.api.bodies import QUEUES, YAML, workload
from tests.services.planes import Plane
from tests.support.api import Api, serving, settings_for
from tests.support.databases import Database


@pytest.fixture
def planned(database: Database, valkey: str, tmp_path: Path) -> Iterator[Api]:
    """One cycle was planned: two gangs start, one waits."""
    with serving(settings_for(database, valkey, tmp_path)) as api:
        plane = Plane(database)
        plane.cluster("eu-west", nodes=8, namespaces=["nlp", "vision"])
        client = api.client()
        assert client.post("/api/v1/apply", content=QUEUES, headers=YAML).status_code == 200
        for name in ("one", "two", "three"):
            assert client.post("/api/v1/workloads", json=workload(name)).status_code == 201
        plane.planner().step()
        plane.close()
        yield api


def cycle_of(client: httpx.Client) -> int:
    """The first cycle that decided anything."""
    return int(client.get("/api/v1/cycles").json()["items"][-1]["id"])


def test_the_live_world_is_what_the_planner_would_plan_on(planned: Api) -> None:
    sent = planned.client().get("/api/v1/pools/default/snapshot").json()
    with planned.container.uow_factory() as uow:
        pool = uow.tenancy.pool("default")
    assert pool is not None
    reading, snapshot = read_whole(planned.container.snapshot_reader, pool.id)
    assert (len(snapshot.nodes), len(snapshot.running)) == (8, 2)
    assert [each.name for each in snapshot.waiting.values()] == ["three"]
    world = world_from(read([Source("saved.json", json.dumps(sent))]), reading.now, reading.now)
    assert [(each.snapshot, each.policy) for each in world.pools] == [(snapshot, reading.policy)]
    (found,) = plan(world).pools
    assert found.plan_sha256 == plan_hash(plan_cycle(snapshot, reading.policy, reading.now))
    assert [(each.workload, each.reasons[0].code) for each in found.waits] == [("three", "not-enough-free")]


def test_a_large_answer_is_compressed_for_whoever_takes_it(planned: Api) -> None:
    client = planned.client()
    with client.stream("GET", "/api/v1/pools/default/snapshot", headers={"Accept-Encoding": "gzip"}) as answer:
        packed = b"".join(answer.iter_raw())
    assert answer.headers["Content-Encoding"] == "gzip"
    plain = client.get("/api/v1/pools/default/snapshot", headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    assert json.loads(gzip.decompress(packed))["snapshot"] == plain.json()["snapshot"]
    assert len(packed) < len(plain.content) / 2


def test_a_pool_that_is_not_there_is_not_found(planned: Api) -> None:
    answer = planned.client().get("/api/v1/pools/nowhere/snapshot")
    assert (answer.status_code, answer.json()["detail"]) == (404, "there is no pool nowhere")


def test_a_pool_that_is_too_large_to_be_sent_is_refused_with_its_size(planned: Api) -> None:
    admin = Principal(0, "person", "ada", (Binding(Role.PLATFORM_ADMIN),))
    container = planned.container
    with pytest.raises(Conflict, match=r"pool default has 1[0-9] rows, and at most 3 are sent at once") as refused:
        pool_snapshot(container.uow_factory, container.snapshot_reader, admin, "default", rows_max=3)
    assert refused.value.slug == "snapshot-too-large"


def test_a_stored_cycle_is_run_again_by_the_plane_and_elsewhere(planned: Api) -> None:
    client = planned.client()
    number = cycle_of(client)
    told = client.get(f"/api/v1/cycles/{number}/replay").json()
    assert told["identical"] is True
    assert told["storedSha256"] == told["replayedSha256"] == client.get(f"/api/v1/cycles/{number}").json()["planSha256"]
    assert (told["decisions"], told["waiting"]) == (2, 1)
    record = client.get(f"/api/v1/cycles/{number}/record").json()
    again = rerun(chain_of(CycleRecordView.model_validate(record)))
    assert (again.is_identical, again.replayed_sha256) == (True, told["storedSha256"])


def test_a_cycle_that_was_tampered_with_is_told_to_differ(planned: Api, database: Database) -> None:
    client = planned.client()
    number = cycle_of(client)
    with psycopg.connect(database.superuser_url.replace("+psycopg", "")) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("UPDATE cycle SET plan_sha256 = decode(repeat('00', 32), 'hex') WHERE id = %s", (number,))
    told = client.get(f"/api/v1/cycles/{number}/replay").json()
    assert (told["identical"], told["storedSha256"]) == (False, "00" * 32)
    record = client.get(f"/api/v1/cycles/{number}/record").json()
    assert rerun(chain_of(CycleRecordView.model_validate(record))).is_identical is False


def test_a_cycle_that_is_not_there_is_not_found(planned: Api) -> None:
    for view in ("replay", "record"):
        assert planned.client().get(f"/api/v1/cycles/999999/{view}").status_code == 404


def test_what_names_everybodys_work_is_for_those_who_watch_the_plane(planned: Api) -> None:
    number = cycle_of(planned.client())
    paths = ("pools/default/snapshot", f"cycles/{number}/replay", f"cycles/{number}/record")
    for role, queue, status in (
        ("auditor", None, 200),
        ("team-lead", "research", 403),
        ("member", "research/nlp", 403),
    ):
        client = planned.client(planned.token(f"some-{role}", role, queue))
        assert [client.get(f"/api/v1/{path}").status_code for path in paths] == [status] * 3, role
