"""Emptying a cluster, and removing one: what becomes of the work there, and what races with it."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from controlplane.contract.rest.cordons import WorkChoice
from controlplane.core.facts.attempts import PodState
from controlplane.services import accounting, attempts, drains, enrolment, fleet, removal
from controlplane.services.attempt_batch import By
from controlplane.services.cordons import Wish
from controlplane.services.errors import Conflict, Forbidden, NotFound, Unauthenticated
from controlplane.services.ports.unit_of_work import run
from tests.services.agents import Agent, create, node, placed, plan, ready, token_for
from tests.services.planes import H100, Plane

ROOT = By("root", "request-1")


def drain(plane: Plane, name: str, seconds: int = 3_600) -> None:
    run(plane.uow, lambda uow: drains.drain(uow, name, Wish("new firmware", seconds), ROOT))


def undrain(plane: Plane, name: str) -> None:
    run(plane.uow, lambda uow: drains.undrain(uow, name, ROOT))


def remove(plane: Plane, name: str, work: WorkChoice) -> bool:
    return run(plane.uow, lambda uow: removal.remove(uow, name, work, ROOT))


def sweep(plane: Plane) -> int:
    return removal.check(plane.uow, 100)


def let_the_deadline_pass(plane: Plane) -> None:
    plane.do("UPDATE cluster SET drain_deadline_at = now() - interval '1 second' WHERE drain_reason <> ''")
    sweep(plane)


def attempts_of(plane: Plane, workload: str) -> list[tuple[str, str | None, str | None]]:
    rows = plane.rows(
        "SELECT state, outcome, reason ->> 'code' AS why FROM attempt WHERE workload_id = CAST(:id AS uuid)"
        " ORDER BY attempt",
        id=workload,
    )
    return [(row.state, row.outcome, row.why) for row in rows]


def used(plane: Plane) -> int:
    return int(plane.rows("SELECT coalesce(sum(pending + posted), 0) AS used FROM account")[0].used)


def held_in(plane: Plane, name: str) -> int:
    rows = plane.rows(
        "SELECT coalesce(sum(amount), 0) AS held FROM hold JOIN cluster ON cluster.id = hold.cluster_id"
        " WHERE cluster.name = :name AND released_at IS NULL",
        name=name,
    )
    return int(rows[0].held)


def unreachable(plane: Plane, name: str) -> None:
    """It has been silent for long."""
    for state in ("suspect", "unreachable"):
        plane.do("UPDATE cluster SET state = :state WHERE name = :name AND removed_at IS NULL", state=state, name=name)
    plane.do(
        "INSERT INTO audit (at, actor, action, object_kind, object_id, state_from, state_to)"
        " SELECT now(), 'test', 'advance', 'cluster', CAST(id AS text), step.before, step.after FROM cluster,"
        " (VALUES ('ready', 'suspect'), ('suspect', 'unreachable')) AS step(before, after)"
        " WHERE name = :name AND removed_at IS NULL",
        name=name,
    )


def test_a_gang_that_would_not_end_is_moved_whole_to_the_other_cluster(plane: Plane) -> None:
    eu, us = ready(plane, "eu", node("e1"), node("e2")), ready(plane, "us")
    gang, name = placed(plane, eu, plane.queue("team", nominal=16))
    eu.run(name)
    us.report(node("u1"), node("u2"), whole=True)
    drain(plane, "eu")
    sweep(plane)
    assert plane.state(gang) == "running", "until the deadline it may end by itself"
    let_the_deadline_pass(plane)
    assert (plane.state(gang), used(plane)) == ("stopping", 16), "quota stays charged until the end is proven"
    plan(plane)
    eu.sync()
    assert eu.kinds[name][-1] == "tombstone"
    eu.bury(name)
    assert (plane.state(gang), used(plane), held_in(plane, "eu")) == ("pending", 0, 0)
    plan(plane)
    us.sync()
    us.run(us.only())
    assert plane.state(gang) == "running"
    assert attempts_of(plane, gang) == [("ended", "moved", "cluster-drained"), ("running", None, None)]
    assert (used(plane), held_in(plane, "us")) == (16, 16)
    row = plane.rows("SELECT program_failures, not_before FROM workload")[0]
    assert (row.program_failures, row.not_before) == (0, None), "nothing is counted, and it need not wait"


def test_what_was_placed_and_has_not_started_is_given_back_at_once(plane: Plane) -> None:
    eu, us = ready(plane, "eu", node("e1")), ready(plane, "us")
    gang, name = placed(plane, eu, plane.queue("team", nominal=8), pods=1)
    us.report(node("u1"), whole=True)
    drain(plane, "eu")
    assert attempts_of(plane, gang) == [("stopping", None, "cluster-drained")]
    eu.sync()
    eu.bury(name)
    plan(plane)
    us.sync()
    us.run(us.only())
    assert attempts_of(plane, gang) == [("ended", "voided", "cluster-drained"), ("running", None, None)]


def test_a_start_and_a_drain_at_the_same_moment_leave_it_running_or_give_it_back_whole(plane: Plane) -> None:
    eu = ready(plane, "eu", *(node(f"e{number}") for number in range(6)))
    team = plane.queue("team", nominal=48)
    for number in range(6):
        gang, name = placed(plane, eu, team, pods=1, name=f"gang-{number}")
        with ThreadPoolExecutor(2) as both:
            told, drained = both.submit(eu.prepare, name), both.submit(drain, plane, "eu")
            told.result()
            drained.result()
        sweep(plane)
        [(state, _, why)] = attempts_of(plane, gang)
        assert (state, why) in {("starting", None), ("stopping", "cluster-drained")}
        undrain(plane, "eu")


def test_a_commit_and_a_drain_at_the_same_moment_leave_nothing_there_that_has_not_started(plane: Plane) -> None:
    ready(plane, "eu", *(node(f"e{number}") for number in range(6)))
    team = plane.queue("team", nominal=48)
    planner = plane.planner()
    for number in range(6):
        gang = plane.workload(f"gang-{number}", team, pods=1)
        with ThreadPoolExecutor(2) as both:
            planned, drained = both.submit(planner.step), both.submit(drain, plane, "eu")
            planned.result()
            drained.result()
        assert plane.state(gang) in {"pending", "stopping"}
        undrain(plane, "eu")


def test_a_drained_cluster_takes_nothing_and_explains_why_and_takes_work_again_when_it_may(plane: Plane) -> None:
    ready(plane, "eu", node("e1"))
    drain(plane, "eu")
    gang = plane.workload("gang", plane.queue("team", nominal=8), pods=1)
    plan(plane)
    [row] = plane.rows("SELECT state, reasons FROM workload")
    assert (row.state, row.reasons[0]["code"]) == ("pending", "cluster-drained")
    assert row.reasons[0]["sentence"] == "eu is drained: new firmware"
    undrain(plane, "eu")
    plan(plane)
    assert plane.state(gang) == "reserved"


def test_a_silent_cluster_keeps_what_it_was_told_to_stop_until_it_proves_the_end(plane: Plane) -> None:
    eu = ready(plane, "eu", node("e1"))
    gang, name = placed(plane, eu, plane.queue("team", nominal=8), pods=1)
    eu.run(name)
    unreachable(plane, "eu")
    drain(plane, "eu", 0)
    assert (plane.state(gang), used(plane)) == ("stopping", 8)
    sweep(plane)
    eu.sync()
    eu.bury(name)
    assert (plane.state(gang), used(plane)) == ("pending", 0)


def test_another_deadline_takes_the_place_of_the_one_before(plane: Plane) -> None:
    ready(plane, "eu", node("e1"))
    drain(plane, "eu", 60)
    before = plane.rows("SELECT drain_deadline_at AS at FROM cluster")[0].at
    drain(plane, "eu", 7_200)
    assert (plane.rows("SELECT drain_deadline_at AS at FROM cluster")[0].at - before).total_seconds() > 3_600


def test_a_sweep_that_comes_twice_orders_nothing_twice(plane: Plane) -> None:
    eu = ready(plane, "eu", node("e1"))
    _, name = placed(plane, eu, plane.queue("team", nominal=8), pods=1)
    eu.run(name)
    drain(plane, "eu")
    let_the_deadline_pass(plane)
    assert sweep(plane) == 0
    assert plane.rows("SELECT count(*) AS n FROM directive WHERE kind = 'tombstone'")[0].n == 1


def test_a_cluster_in_use_is_not_removed_unless_somebody_says_what_becomes_of_the_work(plane: Plane) -> None:
    eu = ready(plane, "eu", node("e1"), node("e2"))
    placed(plane, eu, plane.queue("team", nominal=16))
    with pytest.raises(Conflict) as refused:
        remove(plane, "eu", "refuse")
    assert (refused.value.slug, refused.value.faults[0].detail) == (
        "cluster-in-use", "team: attempts: 1, devices held: 16",
    )  # fmt: skip
    with plane.uow() as uow:
        told = removal.consequences(uow, "eu")
    assert (told.attempts, told.devices) == (1, 16)
    assert {choice.work: choice.allowed for choice in told.choices} == {"refuse": False, "stop": True, "lost": False}
    with pytest.raises(Conflict) as reachable:
        remove(plane, "eu", "lost")
    assert reachable.value.slug == "cluster-not-lost"
    with pytest.raises(NotFound):
        remove(plane, "nowhere", "refuse")


def test_a_cluster_is_emptied_and_then_removed_and_its_name_is_free_again(plane: Plane) -> None:
    eu, us = ready(plane, "eu", node("e1")), ready(plane, "us")
    team = plane.queue("team")
    plane.do("INSERT INTO quota (queue_id, flavor, nominal) VALUES (:queue, :flavor, NULL)", queue=team, flavor=H100)
    with plane.uow() as uow:
        accounting.sync_accounts(uow)
    gang, name = placed(plane, eu, team, pods=1)
    eu.run(name)
    us.report(node("u1"), whole=True)
    assert plane.rows("SELECT subtree FROM account")[0].subtree == 16
    assert not remove(plane, "eu", "stop")
    assert not remove(plane, "eu", "stop"), "twice is once"
    sweep(plane)
    assert plane.rows("SELECT state FROM cluster WHERE name = 'eu'")[0].state == "ready"
    eu.sync()
    eu.bury(name)
    sweep(plane)
    [row] = plane.rows("SELECT state, removed_at FROM cluster WHERE name = 'eu'")
    assert (row.state, row.removed_at is None) == ("removed", False)
    assert plane.rows("SELECT subtree FROM account")[0].subtree == 8, "what it owned counts no more"
    with pytest.raises(Forbidden):
        eu.sync()
    plan(plane)
    us.sync()
    us.run(us.only())
    assert plane.state(gang) == "running"
    again = ready(plane, "eu", node("e1"))
    assert again.cluster != eu.cluster


def test_undrain_calls_a_removal_off(plane: Plane) -> None:
    eu = ready(plane, "eu", node("e1"))
    _, name = placed(plane, eu, plane.queue("team", nominal=8), pods=1)
    eu.run(name)
    remove(plane, "eu", "stop")
    undrain(plane, "eu")
    eu.sync()
    eu.bury(name)
    sweep(plane)
    assert plane.rows("SELECT state FROM cluster")[0].state == "ready"


def test_a_cluster_that_is_gone_for_good_is_declared_lost_and_its_work_starts_elsewhere(plane: Plane) -> None:
    eu, us = ready(plane, "eu", node("e1"), node("e2")), ready(plane, "us")
    team = plane.queue("team", nominal=32)
    running, name = placed(plane, eu, team, pods=1, name="running")
    eu.run(name)
    stopping, name = placed(plane, eu, team, pods=1, name="stopping")
    eu.run(name)
    us.report(node("u1"), node("u2"), whole=True)
    unreachable(plane, "eu")
    drain(plane, "eu", 0)
    placed_late = plane.workload("placed", team, pods=1)
    assert remove(plane, "eu", "lost")
    assert {plane.state(one) for one in (running, stopping, placed_late)} == {"pending"}
    assert (used(plane), held_in(plane, "eu")) == (0, 0)
    assert {row.proof for row in plane.rows("SELECT DISTINCT proof FROM reservation")} == {"declared-lost"}
    plan(plane)
    us.sync()
    for name in list(us.wanted):
        us.run(name)
    assert plane.rows("SELECT count(*) AS n FROM workload WHERE state = 'running'")[0].n == 2


def test_attempts_of_a_lost_cluster_end_as_lost_by_the_infrastructure(plane: Plane) -> None:
    eu = ready(plane, "eu", node("e1"), node("e2"))
    gang, name = placed(plane, eu, plane.queue("team", nominal=16))
    eu.run(name)
    unreachable(plane, "eu")
    remove(plane, "eu", "lost")
    assert attempts_of(plane, gang) == [("ended", "lost", "cluster-lost")]
    [row] = plane.rows("SELECT program_failures, infrastructure_ends, old_place FROM workload")
    assert (row.program_failures, row.infrastructure_ends, len(row.old_place)) == (0, 1, 2)
    assert {row.state for row in plane.rows("SELECT state FROM pod")} == {PodState.LOST}


def test_what_a_lost_cluster_still_runs_is_stopped_when_its_machines_enrol_anew(plane: Plane) -> None:
    eu = ready(plane, "eu", node("e1"))
    gang, name = placed(plane, eu, plane.queue("team", nominal=8), pods=1)
    eu.run(name)
    unreachable(plane, "eu")
    remove(plane, "eu", "lost")
    again, other = ready(plane, "eu", node("e1")), ready(plane, "us")
    assert again.fingerprint == eu.fingerprint
    for agent in (again, other):
        agent.wanted[name], agent.gens[name] = eu.wanted[name], 2  # as its cluster remembers it
        agent.sync(attempts=[agent.told(name, "started")], pods=agent.pods(name, "running"))
    assert again.kinds[name] == ["tombstone"]
    assert name not in other.kinds, "of another cluster's work nobody takes orders"
    again.bury(name)
    rows = plane.rows(
        "SELECT p.state, c.removed_at IS NULL AS there FROM placement p JOIN cluster c ON c.id = p.cluster_id"
        " WHERE p.workload_id = CAST(:id AS uuid) ORDER BY c.id",
        id=gang,
    )
    assert [(row.state, row.there) for row in rows] == [("gone", False), ("gone", True)]
    assert (plane.state(gang), attempts_of(plane, gang)) == ("pending", [("ended", "lost", "cluster-lost")])


def test_a_cancelled_workload_of_a_lost_cluster_is_cancelled(plane: Plane) -> None:
    eu = ready(plane, "eu", node("e1"))
    gang, name = placed(plane, eu, plane.queue("team", nominal=8), pods=1)
    eu.run(name)
    plane.do("UPDATE workload SET state = 'cancelling'")
    plane.do(
        "INSERT INTO audit (at, actor, action, object_kind, object_id, state_from, state_to)"
        " VALUES (now(), 'test', 'cancel', 'workload', :id, 'running', 'cancelling')",
        id=gang,
    )
    unreachable(plane, "eu")
    remove(plane, "eu", "lost")
    assert (plane.state(gang), used(plane)) == ("cancelled", 0)


def test_an_agent_that_was_banned_leaves_a_cluster_that_may_be_declared_lost(plane: Plane) -> None:
    eu = ready(plane, "eu", node("e1"))
    gang, name = placed(plane, eu, plane.queue("team", nominal=8), pods=1)
    eu.run(name)
    with plane.uow() as uow:
        enrolment.revoke(uow, eu.cluster, "root")
    assert remove(plane, "eu", "lost")
    assert (plane.state(gang), used(plane)) == ("pending", 0)


def test_a_hold_on_a_lost_node_keeps_its_cluster_until_it_is_declared_lost(plane: Plane) -> None:
    eu = ready(plane, "eu", node("e1"))
    gang, name = placed(plane, eu, plane.queue("team", nominal=8), pods=1)
    eu.run(name)
    eu.report(node("e1", ready=False))
    plane.do("UPDATE node SET ready_changed_at = now() - interval '1 hour', next_check_at = now()")
    with plane.uow() as uow:
        fleet.check_nodes(uow, 10)
    eu.sync(attempts=[eu.told(name, "stopping")])
    eu.sync()
    eu.sync(attempts=[eu.told(name, "stopping")])
    assert (plane.state(gang), held_in(plane, "eu")) == ("pending", 8)
    with pytest.raises(Conflict):
        remove(plane, "eu", "refuse")
    unreachable(plane, "eu")
    assert remove(plane, "eu", "lost")
    assert held_in(plane, "eu") == 0


def test_a_verdict_that_waited_for_a_removed_cluster_is_given(plane: Plane) -> None:
    eu = ready(plane, "eu", node("e1"))
    gang, name = placed(plane, eu, plane.queue("team", nominal=8), pods=1)
    eu.run(name)
    eu.sync(pods=eu.pods(name, "failed", exit_code=1))
    eu.bury(name)
    assert plane.state(gang) == "stopping", "whose fault it was may yet be told"
    assert remove(plane, "eu", "refuse")
    plane.do("UPDATE pod SET finished_at = finished_at - interval '1 hour', changed_at = now() - interval '1 hour'")
    plane.do("UPDATE attempt SET next_check_at = now(), evidence_until = now()")
    with plane.uow() as uow:
        attempts.check_attempts(uow, 10)
    assert plane.state(gang) == "failed"


def test_who_drained_and_removed_stands_in_the_audit_by_name(plane: Plane) -> None:
    ready(plane, "eu", node("e1"))
    drain(plane, "eu")
    undrain(plane, "eu")
    remove(plane, "eu", "refuse")
    rows = plane.rows(
        "SELECT action, actor, request_id, facts ->> 'name' AS name FROM audit"
        " WHERE action IN ('cluster.drain', 'cluster.undrain', 'cluster.removed') ORDER BY id"
    )
    assert [(row.action, row.actor, row.request_id, row.name) for row in rows] == [
        ("cluster.drain", "root", "request-1", "eu"),
        ("cluster.undrain", "root", "request-1", "eu"),
        ("cluster.removed", "root", "request-1", "eu"),
    ]


def test_a_cluster_that_nobody_enrolled_for_is_simply_removed(plane: Plane) -> None:
    cluster = create(plane, "eu")
    token = token_for(plane, cluster)
    assert remove(plane, "eu", "refuse")
    with pytest.raises(Unauthenticated):
        Agent(plane, cluster, "eu").enrol(token)
