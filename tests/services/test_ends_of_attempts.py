"""Ends that somebody asks for or that time brings: cancel, also in the dark; budgets; refusals that come again."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from controlplane.contract.agent.attempts import Budgets
from controlplane.core.facts.tenancy import Binding, Principal, Role
from controlplane.core.ids import WorkloadId
from controlplane.services import attempts, fleet
from controlplane.services.authz import Caller
from controlplane.services.cancellation import cancel
from controlplane.services.ports.unit_of_work import run
from tests.builders.rows import Rows
from tests.services.agents import Agent, node, placed, plan, ready, tell_time
from tests.services.planes import Plane
from tests.support.databases import Database

ROOT = Caller(Principal(1, "person", "root", (Binding(Role.PLATFORM_ADMIN, None),)))


@pytest.fixture
def agent(plane: Plane) -> Agent:
    return ready(plane, "eu", node("n1"), node("n2"), node("n3"))


@pytest.fixture
def team(plane: Plane, agent: Agent) -> int:
    return plane.queue("team", nominal=24)


def cancelled(plane: Plane, workload: str) -> None:
    run(plane.uow, lambda uow: cancel(uow, ROOT, WorkloadId(workload)))


def darken(plane: Plane, seconds: int) -> None:
    """The cluster has been silent for so long, and the plane has listened."""
    with plane.uow() as uow:
        fleet.note_listening(uow)
    plane.do("UPDATE plane SET listening_since = now() - interval '1 day'")
    tell_time(plane, seconds)
    with plane.uow() as uow:
        fleet.check_clusters(uow, 10)


def used(plane: Plane) -> int:
    return int(plane.rows("SELECT coalesce(sum(pending + posted), 0) AS used FROM account")[0].used)


def attempt(plane: Plane) -> tuple[str, str | None]:
    [row] = plane.rows("SELECT state, outcome FROM attempt ORDER BY attempt DESC LIMIT 1")
    return row.state, row.outcome


def test_a_cancelled_gang_stays_charged_until_its_cluster_has_proven_the_end(
    plane: Plane, agent: Agent, team: int
) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    cancelled(plane, gang)
    assert (plane.state(gang), used(plane)) == ("cancelling", 16)
    agent.sync()
    assert agent.kinds[name][-1] == "tombstone"
    agent.sync(attempts=[agent.told(name, "stopping")])
    assert used(plane) == 16
    agent.bury(name)
    assert (plane.state(gang), attempt(plane), used(plane)) == ("cancelled", ("ended", "cancelled"), 0)


def test_every_audit_row_of_a_cancel_names_its_request(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    run(plane.uow, lambda uow: cancel(uow, replace(ROOT, request_id="r-7"), WorkloadId(gang)))
    rows = plane.rows("SELECT object_kind, state_to FROM audit WHERE request_id = 'r-7' ORDER BY id")
    assert [tuple(row) for row in rows] == [
        ("attempt", "stopping"), ("workload", "stopping"), ("workload", "cancelling"),
    ]  # fmt: skip


def test_a_cancel_while_the_cluster_is_dark_reaches_it_on_reconnect(plane: Plane, agent: Agent, team: int) -> None:
    """T09: nothing is forgotten; the tombstone waits for the agent however long it takes."""
    gang, name = placed(plane, agent, team)
    agent.run(name)
    darken(plane, 400)
    assert plane.rows("SELECT state FROM cluster")[0].state == "unreachable"
    cancelled(plane, gang)
    assert (plane.state(gang), used(plane)) == ("cancelling", 16)
    agent.hello()
    agent.sync()
    assert agent.kinds[name][-1] == "tombstone"
    agent.bury(name)
    assert (plane.state(gang), used(plane)) == ("cancelled", 0)


def test_a_cancel_before_the_agent_ever_heard_of_it_ends_with_its_word(plane: Plane, agent: Agent, team: int) -> None:
    gang = plane.workload("gang", team, pods=1)
    plan(plane)
    cancelled(plane, gang)
    agent.sync()
    name = f"{gang}.1"
    assert agent.kinds[name] == ["tombstone"], "the order to create it is not told any more"
    agent.bury(name)
    assert (plane.state(gang), used(plane)) == ("cancelled", 0)


def test_nothing_of_a_cancelled_gang_goes_on_whoever_missed_its_stop(
    plane: Plane, agent: Agent, team: int, database: Database
) -> None:
    gang, name = placed(plane, agent, team)
    rows = Rows(database)
    rows.move(gang, "cancelling")
    rows.dispose()
    agent.prepare(name)
    assert agent.kinds[name] == ["apply", "tombstone"]
    agent.bury(name)
    assert (plane.state(gang), attempt(plane), used(plane)) == ("cancelled", ("ended", "cancelled"), 0)


def test_success_that_comes_with_a_cancel_leaves_the_users_word(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    cancelled(plane, gang)
    agent.finish(name)
    assert (plane.state(gang), attempt(plane), used(plane)) == ("cancelled", ("ended", "succeeded"), 0)


def test_cancel_and_the_last_report_at_once_end_in_one_of_the_two_ways(plane: Plane, agent: Agent, team: int) -> None:
    for number in range(4):
        gang, name = placed(plane, agent, team, pods=1, name=f"gang-{number}")
        agent.run(name)
        with ThreadPoolExecutor(2) as both:
            told = both.submit(agent.finish, name)
            asked = both.submit(cancelled, plane, gang)
            told.result()
            raised = asked.exception()
        assert raised is None or "succeeded" in str(raised)
        agent.sync()
        agent.bury(name)
        assert plane.state(gang) in {"succeeded", "cancelled"}
        assert used(plane) == 0


def test_an_agent_that_never_answers_an_order_loses_it_while_its_cluster_is_there(
    plane: Plane, agent: Agent, team: int
) -> None:
    gang, name = placed(plane, agent, team)
    plane.do("UPDATE attempt SET placed_at = now() - interval '10 minutes', next_check_at = now()")
    with plane.uow() as uow:
        attempts.check_attempts(uow, 10)
    assert plane.state(gang) == "stopping"
    agent.sync()
    agent.bury(name)
    assert (plane.state(gang), attempt(plane)) == ("pending", ("ended", "voided"))
    [row] = plane.rows("SELECT reasons, not_before > now() AS waits FROM workload")
    assert (row.reasons[0]["code"], row.waits) == ("budget-passed", True)


def test_budgets_of_a_cluster_go_to_its_agent_and_the_plane_waits_as_long(
    plane: Plane, agent: Agent, team: int
) -> None:
    plane.do("""UPDATE cluster SET spec = '{"budgets": {"prepareSeconds": 600, "pullSeconds": 7}}'""")
    gang, name = placed(plane, agent, team)
    order = agent.wanted[name].apply
    assert order is not None
    assert order.budgets == Budgets(prepare_seconds=600, pull_seconds=7)
    for minutes, state in ((10, "reserved"), (14, "stopping")):
        plane.do(
            "UPDATE attempt SET placed_at = now() - make_interval(mins => :minutes), next_check_at = now()",
            minutes=minutes,
        )
        with plane.uow() as uow:
            attempts.check_attempts(uow, 10)
        assert plane.state(gang) == state


def test_a_dark_cluster_keeps_what_it_was_ordered(plane: Plane, agent: Agent, team: int) -> None:
    gang, _ = placed(plane, agent, team)
    darken(plane, 40)
    plane.do("UPDATE attempt SET placed_at = now() - interval '10 minutes', next_check_at = now()")
    with plane.uow() as uow:
        attempts.check_attempts(uow, 10)
    assert (plane.state(gang), attempt(plane)[0]) == ("reserved", "placed")
    assert plane.rows("SELECT next_check_at > now() AS later FROM attempt")[0].later


def test_a_cluster_that_refuses_for_good_is_not_asked_again_at_once(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    rejection = {"code": "name-conflict", "facts": {"kind": "Job", "name": "gang"}}
    agent.sync(attempts=[agent.told(name, "rejected", rejection=rejection)])
    agent.bury(name)
    plan(plane)
    assert plane.state(gang) == "pending"
    [row] = plane.rows("SELECT reasons, not_before > now() AS waits FROM workload")
    assert row.waits


def test_an_attempt_that_can_take_no_step_is_looked_at_again_later_and_stops_no_other(
    plane: Plane, agent: Agent, team: int
) -> None:
    broken, _ = placed(plane, agent, team, pods=1, name="broken")
    agent.prepare(f"{broken}.1")
    other, _ = placed(plane, agent, team, pods=1, name="other")
    plane.do("UPDATE pod SET state = 'running' WHERE workload_id = CAST(:id AS uuid)", id=broken)
    plane.do("UPDATE workload SET state = 'stopping' WHERE id = CAST(:id AS uuid)", id=broken)
    plane.do(
        """INSERT INTO audit (at, actor, action, object_kind, object_id, state_from, state_to)
           VALUES (now(), 'test', 'advance', 'workload', :id, 'reserved', 'stopping')""",
        id=broken,
    )
    plane.do(
        "UPDATE attempt SET placed_at = now() - interval '10 minutes', next_check_at = now() - interval '1 second'"
    )
    with plane.uow() as uow:
        assert attempts.check_attempts(uow, 10) == 2
    assert (
        plane.rows("SELECT state FROM attempt WHERE workload_id = CAST(:id AS uuid)", id=broken)[0].state == "starting"
    )
    assert plane.state(other) == "stopping"
    assert not plane.rows("SELECT FROM attempt WHERE next_check_at <= now()"), "neither is due any more"


def test_checks_of_two_sweeps_at_once_do_the_work_once(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    agent.sync(pods=agent.pods(name, "failed", [1], exit_code=1))
    agent.bury(name)
    tell_time(plane, 301)
    with ThreadPoolExecutor(4) as many:
        list(many.map(lambda _: run(plane.uow, lambda uow: attempts.check_attempts(uow, 10)), range(4)))
    [row] = plane.rows("SELECT program_failures FROM workload")
    assert (plane.state(gang), row.program_failures) == ("failed", 1)


def test_a_cluster_that_falls_silent_after_a_bad_end_is_heard_before_the_program_is_blamed(
    plane: Plane, agent: Agent, team: int
) -> None:
    """A rack that loses power takes its nodes and its uplink: that ranks failed is told, why is told after the heal."""
    gang, name = placed(plane, agent, team)
    agent.run(name)
    agent.sync(pods=agent.pods(name, "failed", [1], exit_code=1))
    agent.bury(name)
    darken(plane, 400)
    with plane.uow() as uow:
        attempts.check_attempts(uow, 10)
    assert (plane.state(gang), plane.rows("SELECT verdict FROM attempt")[0].verdict) == ("stopping", None)
    failed_at = plane.rows("SELECT finished_at FROM pod WHERE state = 'failed'")[0].finished_at
    pinned = agent.wanted[name].apply
    assert pinned is not None
    agent.hello()
    agent.report(node(pinned.pins[1].node, ready=False).model_copy(update={"ready_changed_at": failed_at}))
    assert plane.state(gang) == "pending"
    assert plane.rows("SELECT program_failures, infrastructure_ends FROM workload") == [(0, 1)]


def test_an_outage_of_the_plane_starts_the_clock_of_evidence_again(plane: Plane, agent: Agent, team: int) -> None:
    gang, name = placed(plane, agent, team)
    agent.run(name)
    agent.sync(pods=agent.pods(name, "failed", [1], exit_code=1))
    agent.bury(name)

    def judged(*, listened: str, since: str) -> str:
        plane.do(f"UPDATE plane SET listened_at = now() - interval '{listened}'")
        plane.do(f"UPDATE plane SET listening_since = now() - interval '{since}'")
        plane.do("UPDATE attempt SET next_check_at = now()")
        with plane.uow() as uow:
            attempts.check_attempts(uow, 10)
        return plane.state(gang)

    tell_time(plane, 400)
    assert judged(listened="5 minutes", since="1 day") == "stopping", "nobody could have told us"
    assert judged(listened="1 second", since="20 seconds") == "stopping", "they may tell us now"
    assert judged(listened="1 second", since="301 seconds") == "failed"
