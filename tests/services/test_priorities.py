"""A priority that is changed while a Workload waits or runs: a warm planner sees it at its next step."""

import pytest

from controlplane.core.facts.tenancy import Binding, Principal, Role
from controlplane.core.ids import WorkloadId
from controlplane.services import priorities
from controlplane.services.authz import Caller
from controlplane.services.errors import Forbidden, NotFound, PreconditionFailed
from controlplane.services.ports.unit_of_work import run
from controlplane.services.preconditions import UNCONDITIONAL, Expected
from tests.services.planes import Plane

ADMIN = Caller(Principal(1, "person", "root", (Binding(Role.PLATFORM_ADMIN),)))


def give(
    plane: Plane, workload: str, priority: int, caller: Caller = ADMIN, expected: Expected = UNCONDITIONAL
) -> None:
    run(plane.uow, lambda uow: priorities.change(uow, caller, WorkloadId(workload), priority, expected))


def test_what_was_put_first_is_placed_first(plane: Plane) -> None:
    plane.cluster("eu", nodes=1)
    queue = plane.queue("lab", nominal=8)
    first, second = (plane.workload(name, queue, pods=1) for name in ("first", "second"))
    plane.do("UPDATE node SET ready = false")
    planner = plane.planner()
    planner.step()
    assert [plane.state(each) for each in (first, second)] == ["pending", "pending"]
    give(plane, second, 501)
    plane.do("UPDATE node SET ready = true")
    plane.wake()
    planner.take()
    planner.step()
    assert [plane.state(each) for each in (first, second)] == ["pending", "reserved"]


def test_of_what_is_placed_planners_read_it_again(plane: Plane) -> None:
    plane.cluster("eu", nodes=1)
    workload = plane.workload("first", plane.queue("lab", nominal=8), pods=1)
    plane.planner().step()
    since = plane.tools.reader.read(plane.pool, None).horizon
    give(plane, workload, 900)
    changed = [change.value for change in plane.tools.reader.read(plane.pool, since).changes]
    assert [getattr(value, "priority", None) for value in changed if hasattr(value, "priority")] == [900]


def test_who_may_not_changes_nothing(plane: Plane) -> None:
    workload = plane.workload("first", plane.queue("lab", nominal=8), pods=1)
    member = Caller(Principal(2, "person", "bob", (Binding(Role.MEMBER, "lab"),)))
    owner = Caller(Principal(3, "person", "ann", (Binding(Role.MEMBER, "lab"),)))
    stranger = Caller(Principal(4, "person", "sven", (Binding(Role.TEAM_LEAD, "other"),)))
    with pytest.raises(Forbidden, match="bob"):
        give(plane, workload, 1, member)
    with pytest.raises(NotFound):
        give(plane, workload, 1, stranger)
    with pytest.raises(Forbidden, match="10000 at most"):
        give(plane, workload, 10_001, owner)
    with pytest.raises(PreconditionFailed):
        give(plane, workload, 1, owner, Expected(tags=frozenset({"99"})))
    give(plane, workload, 10_000, owner, Expected(tags=frozenset({"1"})))
    rows = plane.rows("SELECT priority, version, spec ->> 'priority' AS told FROM workload")
    assert [(row.priority, row.version, row.told) for row in rows] == [(10_000, 2, "10000")]
