"""Taken out of planning by hand: clusters, nodes, single devices; for a while or until somebody puts them back."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from controlplane.core.records import World
from controlplane.services import cordons
from controlplane.services.attempt_batch import By
from controlplane.services.cordons import Wish
from controlplane.services.errors import NotFound, PreconditionFailed
from controlplane.services.ports.unit_of_work import run
from controlplane.services.preconditions import Expected
from tests.services.agents import node, placed, plan, ready
from tests.services.planes import H100, Plane

ROOT = By("root", "request-1")
WHY = Wish("fan is loud")


def cordon_cluster(plane: Plane, wish: Wish | None = WHY) -> None:
    run(plane.uow, lambda uow: cordons.cordon_cluster(uow, "eu", wish, ROOT))


def cordon_node(plane: Plane, name: str, wish: Wish | None = WHY) -> None:
    run(plane.uow, lambda uow: cordons.cordon_node(uow, "eu", name, wish, ROOT))


def cordon_device(plane: Plane, key: str, wish: Wish | None = WHY) -> None:
    [row] = plane.rows("SELECT id FROM device WHERE device_key = :key", key=key)
    run(plane.uow, lambda uow: cordons.cordon_device(uow, row.id, wish, ROOT))


def counter(plane: Plane, name: str = "n1") -> tuple[int, int, int, int]:
    """Owned, usable, withheld, overdraft."""
    [row] = plane.rows(
        "SELECT f.owned, f.capacity, f.withheld, f.overdraft FROM node_flavor f JOIN node n ON n.id = f.node_id"
        " WHERE n.name = :name AND n.removed_at IS NULL AND f.flavor = :flavor",
        name=name, flavor=H100,
    )  # fmt: skip
    return row.owned, row.capacity, row.withheld, row.overdraft


def why_waiting(plane: Plane) -> tuple[str, str]:
    [row] = plane.rows("SELECT reasons FROM workload WHERE state = 'pending'")
    return row.reasons[0]["code"], row.reasons[0]["sentence"]


def expire(plane: Plane) -> int:
    return cordons.expire(plane.uow, 100)


def test_a_cordoned_cluster_takes_nothing_new_and_what_runs_there_runs_on(plane: Plane) -> None:
    eu = ready(plane, "eu", node("n1"), node("n2"))
    team = plane.queue("team", nominal=16)
    running, name = placed(plane, eu, team, pods=1)
    cordon_cluster(plane)
    eu.run(name)
    waiting = plane.workload("waiting", team, pods=1)
    plan(plane)
    assert (plane.state(running), plane.state(waiting)) == ("running", "pending")
    assert why_waiting(plane) == ("cluster-cordoned", "eu is cordoned until it is put back: fan is loud")
    cordon_cluster(plane, None)
    plan(plane)
    assert plane.state(waiting) == "reserved"


def test_a_cordoned_node_is_named_where_it_is_what_is_missing(plane: Plane) -> None:
    ready(plane, "eu", node("n1"), node("n2"))
    cordon_node(plane, "n2")
    gang = plane.workload("gang", plane.queue("team", nominal=16), pods=2)
    plan(plane)
    code, sentence = why_waiting(plane)
    assert code == "capacity-cordoned"
    assert sentence == (
        "eu has room for 1 of 2 pods of 8 nvidia-h100-80gb each (8 free, 8 more cordoned: fan is loud)."
    )
    cordon_node(plane, "n2", None)
    plan(plane)
    assert plane.state(gang) == "reserved"


def test_one_device_taken_out_is_one_unit_less_and_who_uses_it_goes_on(plane: Plane) -> None:
    eu = ready(plane, "eu", node("n1"))
    team = plane.queue("team", nominal=16)
    running, name = placed(plane, eu, team, pods=1)
    eu.run(name)
    cordon_device(plane, "GPU-n1-3")
    assert (plane.state(running), counter(plane)) == ("running", (8, 7, 1, 1))
    eu.finish(name)
    eu.bury(name)
    assert counter(plane) == (8, 7, 1, 0)
    gang = plane.workload("eight", team, pods=1)
    plan(plane)
    assert why_waiting(plane)[0] == "capacity-cordoned"
    cordon_device(plane, "GPU-n1-3", None)
    plan(plane)
    assert (plane.state(gang), counter(plane)) == ("reserved", (8, 8, 0, 0))


def test_a_cordoned_device_stays_out_whatever_its_cluster_tells(plane: Plane) -> None:
    eu = ready(plane, "eu", node("n1"))
    cordon_device(plane, "GPU-n1-0")
    eu.report(node("n1", rack="r2"))
    assert counter(plane) == (8, 7, 1, 0)
    eu.report(node("n1", ill=1))
    assert counter(plane) == (8, 6, 1, 0)
    eu.report(node("n1", ill=8))
    assert counter(plane) == (8, 0, 0, 0), "it is counted as ill, and as that only"
    eu.report(node("n1"), whole=True)
    cordon_device(plane, "GPU-n1-0", None)
    assert counter(plane) == (8, 8, 0, 0)


@pytest.mark.parametrize("uid", ["", "uid-after-reinstallation"], ids=["the same Node object", "another Node object"])
def test_a_cordoned_device_that_was_away_for_a_while_comes_back_cordoned(plane: Plane, uid: str) -> None:
    eu = ready(plane, "eu", node("n1"))
    cordon_device(plane, "GPU-n1-0")
    if uid:
        eu.report(removed=["uid-n1"])
    else:
        eu.report(node("n1", 0))
    eu.report(node("n1", uid=uid))
    assert counter(plane) == (8, 7, 1, 0)
    cordon_device(plane, "GPU-n1-0", None)
    assert counter(plane) == (8, 8, 0, 0)


def test_foreign_pods_and_a_cordon_are_taken_off_side_by_side(plane: Plane) -> None:
    eu = ready(plane, "eu", node("n1", foreign=8))
    cordon_device(plane, "GPU-n1-0")
    assert counter(plane) == (8, 0, 1, 0)
    cordon_device(plane, "GPU-n1-0", None)
    assert counter(plane) == (8, 0, 0, 0), "what others hold is not forgotten by a cordon"
    eu.report(node("n1"))
    assert counter(plane) == (8, 8, 0, 0)


def test_rows_of_the_release_before_are_counted_as_they_add_up(plane: Plane) -> None:
    ready(plane, "eu", node("n1", ill=2, foreign=3))
    plane.do("UPDATE node SET resources = '[]'")
    plane.do("UPDATE device SET resource = ''")
    cordon_device(plane, "GPU-n1-0")
    assert counter(plane) == (8, 2, 1, 0)
    cordon_device(plane, "GPU-n1-0", None)
    assert counter(plane) == (8, 3, 0, 0)


def test_a_cordon_and_an_inventory_at_the_same_moment_leave_the_device_out(plane: Plane) -> None:
    eu = ready(plane, "eu", node("n1"))
    for rack in ("r2", "r3", "r4", "r5"):
        with ThreadPoolExecutor(2) as both:
            told, taken = both.submit(eu.report, node("n1", rack=rack)), both.submit(cordon_device, plane, "GPU-n1-0")
            told.result()
            taken.result()
        assert counter(plane) == (8, 7, 1, 0)
        cordon_device(plane, "GPU-n1-0", None)


def test_a_cordon_for_a_while_ends_by_itself_and_wakes_the_planner(plane: Plane) -> None:
    ready(plane, "eu", node("n1"))
    team = plane.queue("team", nominal=8)
    gang = plane.workload("gang", team, pods=1)
    hour = Wish("burn-in", 3_600)
    cordon_cluster(plane, hour)
    cordon_node(plane, "n1", hour)
    cordon_device(plane, "GPU-n1-0", hour)
    plan(plane)
    assert (expire(plane), plane.state(gang)) == (0, "pending")
    for table in ("cluster", "node", "device"):
        plane.do(f"UPDATE {table} SET cordon_until = now() - interval '1 second' WHERE cordon_until IS NOT NULL")
    plane.do("UPDATE pool SET next_check_at = NULL")
    assert (expire(plane), expire(plane)) == (3, 0)
    assert plane.rows("SELECT next_check_at FROM pool")[0].next_check_at is not None
    plan(plane)
    assert plane.state(gang) == "reserved"


def test_a_warm_planner_sees_each_cordon_and_its_end(plane: Plane) -> None:
    ready(plane, "eu", node("n1"))
    warm, reader = World(plane.pool), plane.tools.reader
    reading = reader.read(plane.pool, None)
    warm.apply(reading.changes)

    def seen() -> tuple[str, str, bool, int]:
        nonlocal reading
        reading = reader.read(plane.pool, reading.horizon)
        warm.apply(reading.changes)
        snapshot = warm.freeze()
        [cluster], [machine] = snapshot.clusters.values(), snapshot.nodes.values()
        return cluster.cordon, machine.cordon, machine.is_schedulable, sum(machine.usable.values())

    assert seen() == ("", "", True, 8)
    cordon_cluster(plane)
    assert seen() == ("fan is loud", "", True, 8)
    cordon_node(plane, "n1")
    assert seen() == ("fan is loud", "fan is loud", False, 8)
    cordon_node(plane, "n1", None)
    cordon_device(plane, "GPU-n1-0")
    assert seen() == ("fan is loud", "fan is loud", True, 7)
    cordon_device(plane, "GPU-n1-0", None)
    cordon_cluster(plane, None)
    assert seen() == ("", "", True, 8)


@pytest.mark.parametrize("what", ["cluster", "node", "device"])
def test_a_commit_and_a_cordon_at_the_same_moment_agree(plane: Plane, what: str) -> None:
    """Once the cordon is answered, nothing is placed any more on what a planner had read before it."""
    ready(plane, "eu", node("n1"))
    team = plane.queue("team", nominal=8)
    planner = plane.planner()
    planner.step()
    changes = {
        "cluster": lambda wish: cordon_cluster(plane, wish),
        "node": lambda wish: cordon_node(plane, "n1", wish),
        "device": lambda wish: cordon_device(plane, "GPU-n1-0", wish),
    }
    for number in range(4):
        gang = plane.workload(f"gang-{number}", team, pods=1)
        with ThreadPoolExecutor(2) as both:
            planned, taken = both.submit(planner.step), both.submit(changes[what], WHY)
            taken.result()
            placed_at = plane.rows("SELECT max(placed_at) AS at FROM attempt")[0].at
            planned.result()
        later = plane.rows("SELECT max(placed_at) AS at FROM attempt")[0].at
        assert later == placed_at, "a commit came behind the answer"
        if plane.state(gang) == "reserved":
            break
        changes[what](None)
        plane.do("DELETE FROM pod_set")
        plane.do("DELETE FROM workload")


def test_a_cordon_said_again_changes_and_notes_nothing(plane: Plane) -> None:
    ready(plane, "eu", node("n1"))
    for _ in range(2):
        cordon_cluster(plane)
        cordon_node(plane, "n1")
        cordon_device(plane, "GPU-n1-0")
    for _ in range(2):
        cordon_cluster(plane, None)
        cordon_node(plane, "n1", None)
        cordon_device(plane, "GPU-n1-0", None)
    rows = plane.rows(
        "SELECT action, actor, request_id, facts ->> 'name' AS name, facts ->> 'cluster' AS cluster,"
        " facts ->> 'why' AS why FROM audit WHERE action LIKE '%cordon' ORDER BY id"
    )
    assert [(row.action, row.name, row.cluster, row.why) for row in rows] == [
        ("cluster.cordon", "eu", None, "fan is loud"),
        ("node.cordon", "n1", "eu", "fan is loud"),
        ("device.cordon", "GPU-n1-0", "eu", "fan is loud"),
        ("cluster.uncordon", "eu", None, None),
        ("node.uncordon", "n1", "eu", None),
        ("device.uncordon", "GPU-n1-0", "eu", None),
    ]
    assert {(row.actor, row.request_id) for row in rows} == {("root", "request-1")}


def test_who_saw_another_state_than_what_stands_changes_nothing(plane: Plane) -> None:
    ready(plane, "eu", node("n1"))
    old = Expected(tags=frozenset({"0"}))
    [device] = plane.rows("SELECT id FROM device LIMIT 1")
    with plane.uow() as uow, pytest.raises(PreconditionFailed):
        cordons.cordon_cluster(uow, "eu", WHY, ROOT, old)
    with plane.uow() as uow, pytest.raises(PreconditionFailed):
        cordons.cordon_node(uow, "eu", "n1", WHY, ROOT, old)
    with plane.uow() as uow, pytest.raises(PreconditionFailed):
        cordons.cordon_device(uow, device.id, WHY, ROOT, old)


def test_what_is_not_there_cannot_be_cordoned(plane: Plane) -> None:
    ready(plane, "eu", node("n1"))
    with plane.uow() as uow, pytest.raises(NotFound):
        cordons.cordon_cluster(uow, "us", WHY, ROOT)
    with plane.uow() as uow, pytest.raises(NotFound):
        cordons.cordon_node(uow, "eu", "n9", WHY, ROOT)
    with plane.uow() as uow, pytest.raises(NotFound):
        cordons.cordon_node(uow, "us", "n1", WHY, ROOT)
    with plane.uow() as uow, pytest.raises(NotFound):
        cordons.cordon_device(uow, 10**9, WHY, ROOT)


def cordoned(plane: Plane, what: str) -> None:
    if what == "cluster":
        cordon_cluster(plane)
    elif what == "node":
        cordon_node(plane, "n1")
    else:
        cordon_device(plane, "GPU-n1-0")


@pytest.mark.parametrize("what", ["cluster", "node", "device"])
def test_what_was_cordoned_since_the_snapshot_is_given_to_nobody(plane: Plane, what: str) -> None:
    ready(plane, "eu", node("n1"))
    gang = plane.workload("gang", plane.queue("team", nominal=8), pods=1)
    planner = plane.planner()
    planned = planner.plan()
    assert planned is not None
    cordoned(plane, what)
    planner.commit(planned)
    assert plane.state(gang) == "pending"


@pytest.mark.parametrize("what", ["cluster", "node"])
def test_nobody_is_stopped_for_a_place_that_was_cordoned_since_the_snapshot(plane: Plane, what: str) -> None:
    ready(plane, "eu", node("n1"))
    plane.queue("org", nominal=0)
    borrower, owner = plane.queue("org/a", nominal=0), plane.queue("org/b", nominal=8)
    first = plane.workload("first", borrower, pods=1)
    planner = plane.planner()
    planner.step()
    assert plane.state(first) == "reserved"
    plane.workload("asker", owner, pods=1)
    planned = planner.plan()
    assert planned is not None
    assert planned.plan.decisions
    cordoned(plane, what)
    planner.commit(planned)
    assert plane.state(first) == "reserved"
    assert plane.rows("SELECT count(*) AS n FROM earmark WHERE ended_at IS NULL")[0].n == 0
