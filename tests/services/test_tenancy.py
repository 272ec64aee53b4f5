"""Documents on a plane where work runs: cuts below what is in use, and the ledger that follows the tree."""

from collections.abc import Iterator

import pytest
import yaml

from controlplane.contract.rest.documents import Applied
from controlplane.core.facts.tenancy import Principal
from controlplane.services import applying, queries, tokens
from controlplane.services.applying import How, Sent
from controlplane.services.authz import Caller
from controlplane.services.documents import document_from
from controlplane.services.errors import Conflict
from controlplane.services.ports.unit_of_work import rehearse, run
from controlplane.services.reading import read_yaml
from tests.services.agents import node, ready
from tests.services.planes import H100, Plane
from tests.support.databases import Database


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    """A cluster of 64 devices, a root that owns them, and an admin."""
    made = Plane(database)
    made.cluster("eu-west", nodes=8)
    run(made.uow, tokens.first_admin)
    yield made
    made.close()


def admin(plane: Plane) -> Principal:
    with plane.uow() as uow:
        found = uow.tenancy.principal("person", tokens.FIRST_ADMIN)
    assert found is not None
    return found


def apply(plane: Plane, *documents: dict[str, object]) -> list[Applied]:
    return run(plane.uow, lambda uow: applying.apply(uow, Caller(admin(plane)), sent(*documents), str)).applied


def sent(*documents: dict[str, object]) -> list[Sent]:
    return [Sent(*document_from(value)) for value in read_yaml(yaml.safe_dump_all(documents))]


def queue(path: str, **quota: int) -> dict[str, object]:
    return {
        "apiVersion": "muster.dev/v1",
        "kind": "Queue",
        "metadata": {"name": path},
        "spec": {"namespace": "team", "quotas": [{"flavor": H100, **quota}]},
    }


def quota_of(plane: Plane, path: str) -> tuple[int, int, int]:
    """Used, available, borrowed."""
    with plane.uow() as uow:
        view = queries.queue(uow, admin(plane), path)
    (quota,) = view.quotas
    return quota.used, quota.available, quota.borrowed


def test_a_cut_below_what_is_in_use_is_taken_with_a_warning_and_stops_admission_only(plane: Plane) -> None:
    apply(plane, queue("lab"), queue("lab/a", nominal=32, borrow=0))
    leaf = plane.rows("SELECT id FROM queue WHERE path = 'lab/a'")[0].id
    first = plane.workload("first", leaf, pods=4)
    planner = plane.planner()
    planner.step()
    assert plane.state(first) == "reserved"
    assert quota_of(plane, "lab/a") == (32, 0, 0)

    (cut,) = apply(plane, queue("lab/a", nominal=8, borrow=0))
    assert [warning.code for warning in cut.warnings] == ["overdraft"]
    assert f"32 {H100} are in use and 8 are allowed" in cut.warnings[0].detail
    assert quota_of(plane, "lab/a") == (32, -24, 24)
    assert plane.state(first) == "reserved"

    second = plane.workload("second", leaf, pods=1)
    planner.take()
    planner.step()
    assert plane.state(second) == "pending"

    (back,) = apply(plane, queue("lab/a", nominal=40, borrow=0))
    assert back.warnings == []
    planner.take()
    planner.step()
    assert plane.state(second) == "reserved"


def test_a_quota_that_is_withdrawn_or_cut_above_warns_as_well_and_a_dry_run_says_so_before(plane: Plane) -> None:
    apply(plane, queue("lab", nominal=64), queue("lab/a", nominal=32, borrow=0))
    leaf = plane.rows("SELECT id FROM queue WHERE path = 'lab/a'")[0].id
    work = plane.workload("first", leaf, pods=4)
    plane.planner().step()
    assert plane.state(work) == "reserved"
    bare = queue("lab/a")
    bare["spec"] = {"namespace": "team"}
    both = (queue("lab", nominal=0), bare)
    accounts = plane.rows("SELECT * FROM account ORDER BY queue_id, flavor")
    dry = rehearse(
        plane.uow, lambda uow: applying.apply(uow, Caller(admin(plane)), sent(*both), str, How(dry_run=True))
    )
    assert plane.rows("SELECT * FROM account ORDER BY queue_id, flavor") == accounts

    (root, cut) = apply(plane, *both)
    assert [each.warnings for each in dry.applied] == [root.warnings, cut.warnings]
    assert [warning.code for warning in root.warnings] == ["overdraft"]
    assert f"32 {H100} are in use and 0 are allowed" in root.warnings[0].detail
    assert [warning.code for warning in cut.warnings] == ["overdraft"], "it is no longer listed"
    assert plane.state(work) == "reserved"


def test_the_log_keeps_the_hash_of_a_document_before_and_after(plane: Plane) -> None:
    apply(plane, queue("lab", nominal=64))
    apply(plane, queue("lab", nominal=65))
    apply(plane, queue("lab", nominal=65))
    apply(plane, queue("lab", nominal=64))
    rows = plane.rows(
        "SELECT before_sha256, after_sha256 FROM audit WHERE object_kind = 'queue' AND object_id = 'lab' ORDER BY id"
    )
    hashes = [(row.before_sha256 and bytes(row.before_sha256), bytes(row.after_sha256)) for row in rows]
    assert len(hashes) == 3, "what changes nothing is no deed"
    assert (hashes[0][0], hashes[1][0], hashes[2][0]) == (None, hashes[0][1], hashes[1][1])
    assert hashes[2][1] == hashes[0][1] != hashes[1][1]


def test_a_root_without_a_nominal_counts_what_clusters_own(plane: Plane) -> None:
    apply(plane, queue("lab"), queue("lab/a", nominal=16))
    with plane.uow() as uow:
        view = queries.queue(uow, admin(plane), "lab/a")
    (quota,) = view.quotas
    assert quota.potential == 64


def test_a_quota_that_is_no_longer_listed_is_withdrawn(plane: Plane) -> None:
    apply(plane, queue("lab", nominal=64), queue("lab/a", nominal=16))
    bare = queue("lab/a")
    bare["spec"] = {"namespace": "team"}
    apply(plane, bare)
    with plane.uow() as uow:
        (root,) = queries.queue(uow, admin(plane), "lab").quotas
        assert queries.queue(uow, admin(plane), "lab/a").quotas == []
    assert root.subtree == 64


def test_an_agent_says_hello_again_when_what_it_was_told_there_has_changed(plane: Plane) -> None:
    agent = ready(plane, "us", node("n1"), suspectSeconds=30)
    spec: dict[str, object] = {"suspectSeconds": 30}
    head = {"apiVersion": "muster.dev/v1", "kind": "Cluster", "metadata": {"name": "us"}}
    apply(plane, {**head, "spec": {**spec, "unreachableSeconds": 600}})
    agent.sync()
    for change in ({"topologyKeys": {"rack": "example.com/rack"}}, {"suspectSeconds": 20}):
        spec |= change
        apply(plane, {**head, "spec": spec})
        with pytest.raises(Conflict, match="hello"):
            agent.sync()
        reply = agent.hello()
        agent.sync()
    assert reply.spec == {"topologyKeys": {"rack": "example.com/rack"}}
    assert reply.poll_seconds == 10
