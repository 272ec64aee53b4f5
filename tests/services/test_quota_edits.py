"""The quota tree is edited while work waits and runs: accounts, a warm planner and a submit see the tree as it is."""

from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.core.demand import PodSet
from controlplane.core.facts.tenancy import Principal
from controlplane.core.ids import FlavorName, QueueId
from controlplane.services import applying, queries, tokens
from controlplane.services.applying import Sent
from controlplane.services.authz import Caller
from controlplane.services.documents import document_from
from controlplane.services.ports.unit_of_work import run
from controlplane.services.preconditions import UNCONDITIONAL
from controlplane.services.recent import RecentWorld
from controlplane.services.satisfiable import never_satisfiable
from tests.services.planes import H100, Plane
from tests.support.databases import Database


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    """A cluster of 64 devices, and an admin."""
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


def apply(plane: Plane, path: str, **quota: int) -> int:
    """Returns its id."""
    document: dict[str, Any] = {
        "apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": path},
        "spec": {"namespace": "team", "quotas": [{"flavor": H100, **quota}]},
    }  # fmt: skip
    caller = Caller(admin(plane))
    run(plane.uow, lambda uow: applying.apply(uow, caller, [Sent(*document_from(document))], str))
    return int(plane.rows("SELECT id FROM queue WHERE path = :path", path=path)[0].id)


def available(plane: Plane, path: str) -> int:
    with plane.uow() as uow:
        (quota,) = queries.queue(uow, admin(plane), path).quotas
    return quota.available


def test_a_queue_that_is_deleted_takes_along_what_it_was_given(plane: Plane) -> None:
    """T02: nothing of the team's 8 stays with the root, neither in its account nor for a planner that is warm."""
    apply(plane, "lab", nominal=0)
    apply(plane, "lab/team", nominal=8)
    leaf = apply(plane, "lab/borrower", nominal=0)
    planner = plane.planner()
    first = plane.workload("first", leaf, pods=1, devices=4)
    planner.step()
    assert plane.state(first) == "reserved"
    assert available(plane, "lab/borrower") == 4

    caller = Caller(admin(plane))
    run(plane.uow, lambda uow: applying.delete(uow, caller, "Queue", "lab/team", UNCONDITIONAL))
    assert available(plane, "lab/borrower") == -4, "what runs goes on, and nothing more starts"
    second = plane.workload("second", leaf, pods=1, devices=1)
    planner.step()
    assert (plane.state(first), plane.state(second)) == ("reserved", "pending")
    (why,) = plane.rows("SELECT reasons FROM workload WHERE id = CAST(:id AS uuid)", id=second)[0].reasons
    assert (why["code"], why["facts"]["potential"]) == ("quota-beyond-potential", 0)


def test_a_quota_is_cut_and_raised_under_a_warm_planner(plane: Plane) -> None:
    """T23: over-use is told and stops admission until it has fallen or the quota is raised."""
    apply(plane, "lab", nominal=0)
    leaf = apply(plane, "lab/team", nominal=16)
    planner = plane.planner()
    both = [plane.workload(name, leaf, pods=1) for name in ("first", "second")]
    planner.step()
    apply(plane, "lab/team", nominal=8)
    third = plane.workload("third", leaf, pods=1)
    planner.step()
    assert [plane.state(each) for each in (*both, third)] == ["reserved", "reserved", "pending"]
    assert available(plane, "lab/team") == -8
    apply(plane, "lab/team", nominal=24)
    planner.step()
    assert plane.state(third) == "reserved"


def test_what_was_given_and_is_not_there_yet_refuses_no_submit(plane: Plane) -> None:
    """Two teams were given 64 each of 64 devices: each has 32 now, and a gang of 48 may yet start."""
    apply(plane, "lab")
    for name in ("a", "b"):
        leaf = apply(plane, f"lab/{name}", nominal=64, borrow=0)
    assert available(plane, "lab/b") == 32
    asked = {}
    with plane.uow() as uow:
        for pods in (6, 8, 9):
            gang = PodSet("main", pods, 8, (FlavorName(H100),))
            asked[pods] = never_satisfiable(uow, RecentWorld(), QueueId(leaf), [gang])
    assert (asked[6], asked[8]) == (None, None)
    assert asked[9] is not None
    assert asked[9].facts["potential"] == 64
