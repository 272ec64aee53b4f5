"""Inventories, counters, silence: what clusters tell of themselves, and what it means when they do not."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from controlplane.core.ids import NodeId
from controlplane.core.records import World
from controlplane.services import cordons, fleet
from controlplane.services.attempt_batch import By
from controlplane.services.cordons import Wish
from controlplane.services.errors import NotFound
from tests.services.agents import Agent, node, placed, plan, ready, tell_time
from tests.services.planes import H100, Plane


def counter(plane: Plane, name: str) -> tuple[int, int, int, int]:
    [row] = plane.rows(
        "SELECT owned, capacity, held, overdraft FROM node_flavor f JOIN node n ON n.id = f.node_id"
        " WHERE n.name = :name AND n.removed_at IS NULL AND f.flavor = :flavor",
        name=name, flavor=H100,
    )  # fmt: skip
    return row.owned, row.capacity, row.held, row.overdraft


def state(plane: Plane) -> str:
    return str(plane.rows("SELECT state FROM cluster")[0].state)


def check(plane: Plane) -> None:
    with plane.uow() as uow:
        fleet.check_clusters(uow, 100)


def listen(plane: Plane, *, since_seconds: int = 86_400) -> None:
    """The listener has heard without a gap for so long."""
    with plane.uow() as uow:
        fleet.note_listening(uow)
    plane.do(f"UPDATE plane SET listening_since = now() - interval '{since_seconds} seconds'")


def test_an_inventory_becomes_nodes_devices_and_counters_by_flavor(plane: Plane) -> None:
    ready(plane, "eu", node("n1"), node("n2", devices=4, rack="r2"))
    assert (counter(plane, "n1"), counter(plane, "n2")) == ((8, 8, 0, 0), (4, 4, 0, 0))
    rows = plane.rows("SELECT n.name, n.domains, f.resource FROM node n JOIN node_flavor f ON f.node_id = n.id"
                      " ORDER BY n.name")  # fmt: skip
    assert [(r.name, r.domains, r.resource) for r in rows] == [
        ("n1", {"rack": "r1"}, "nvidia.com/gpu"),
        ("n2", {"rack": "r2"}, "nvidia.com/gpu"),
    ]
    assert plane.rows("SELECT count(*) AS n FROM device WHERE flavor = :f", f=H100)[0].n == 12
    assert plane.rows("SELECT levels FROM cluster")[0].levels == ["rack", "host"]


def test_unhealthy_cards_and_foreign_pods_are_taken_off_once(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1", ill=2, foreign=3))
    assert counter(plane, "n1") == (8, 3, 0, 0)
    agent.report(node("n1"))
    assert counter(plane, "n1") == (8, 8, 0, 0)


def test_what_is_owned_counts_for_the_quota_of_a_root_without_a_number(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"))
    team = plane.queue("team")
    plane.do("INSERT INTO quota (queue_id, flavor, nominal) VALUES (:queue, :flavor, NULL)", queue=team, flavor=H100)
    agent.report(node("n2"))
    assert plane.rows("SELECT subtree FROM account")[0].subtree == 16
    agent.report(removed=["uid-n1"])
    assert plane.rows("SELECT subtree FROM account")[0].subtree == 8


def test_capacity_that_falls_under_what_is_held_is_overdraft_and_heals_by_itself(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"))
    _, name = placed(plane, agent, plane.queue("team", nominal=8), pods=1)
    agent.run(name)
    agent.report(node("n1", ill=3))
    assert counter(plane, "n1") == (8, 5, 8, 3)
    agent.finish(name)
    agent.bury(name)
    assert counter(plane, "n1") == (8, 5, 0, 0)


def test_a_whole_list_removes_what_it_does_not_name_and_a_delta_does_not(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"), node("n2"))
    agent.report(node("n1"))
    assert plane.rows("SELECT count(*) AS n FROM node WHERE removed_at IS NULL")[0].n == 2
    agent.report(node("n1"), whole=True)
    assert [r.name for r in plane.rows("SELECT name FROM node WHERE removed_at IS NULL")] == ["n1"]
    assert (
        plane.rows("SELECT DISTINCT state FROM device d JOIN node n ON n.id = d.node_id WHERE n.name = 'n2'")[0].state
        == "removed"
    )


def test_a_name_that_is_used_again_is_another_node(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"))
    agent.report(node("n1", uid="second-n1"))
    rows = plane.rows("SELECT uid, removed_at IS NULL AS there FROM node ORDER BY id")
    assert [(r.uid, r.there) for r in rows] == [("uid-n1", False), ("second-n1", True)]


def test_a_picture_that_differs_is_asked_for_whole(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"))
    assert not agent.report(node("n2")).want_whole_inventory
    plane.do("UPDATE node SET digest = 'spoiled' WHERE name = 'n2'")
    assert agent.report(node("n3")).want_whole_inventory


def test_spot_machines_are_a_flavor_of_their_own(plane: Plane) -> None:
    spot = node("n1").model_copy(update={"labels": {"karpenter.sh/capacity-type": "spot"}})
    ready(plane, "eu", spot)
    assert plane.rows("SELECT flavor FROM node_flavor")[0].flavor == f"{H100}-spot"


def test_a_blip_is_nothing_and_grace_is_counted_from_the_last_word(plane: Plane) -> None:
    """T07, T46, T69: a link that drops for less than the grace, under work hours old, moves nothing."""
    agent = ready(plane, "eu", node("n1"), node("n2"))
    gang, name = placed(plane, agent, plane.queue("team", nominal=16))
    agent.run(name)
    plane.do("UPDATE attempt SET running_at = now() - interval '2 hours'")
    listen(plane)
    tell_time(plane, 29)
    check(plane)
    assert state(plane) == "ready"
    tell_time(plane, 31)
    check(plane)
    assert (state(plane), plane.state(gang)) == ("suspect", "running")
    lost_at = plane.rows("SELECT lost_at, last_heard_at FROM cluster")[0]
    assert lost_at.lost_at == lost_at.last_heard_at, "the loss counts from the last word"
    agent.sync()
    assert (state(plane), plane.rows("SELECT lost_at FROM cluster")[0].lost_at) == ("ready", None)
    agent.finish(name)
    plane.workload("next", plane.rows("SELECT id FROM queue")[0].id, pods=2)
    plan(plane)
    assert plane.rows("SELECT count(*) AS n FROM attempt")[0].n == 2, "its machines are used again"


def test_a_cluster_whose_api_server_stays_away_counts_as_silent(plane: Plane) -> None:
    """T46: the same grace for every cause; its agent's voice alone says nothing of it."""
    agent = ready(plane, "eu", node("n1"), node("n2"))
    gang, name = placed(plane, agent, plane.queue("team", nominal=16))
    agent.run(name)
    listen(plane)
    agent.sync(kube_reachable=False)
    assert state(plane) == "ready"
    tell_time(plane, 31)
    agent.sync(kube_reachable=False)
    check(plane)
    assert (state(plane), plane.state(gang)) == ("suspect", "running")
    agent.sync()
    assert (state(plane), plane.state(gang)) == ("ready", "running")


def test_a_cluster_that_is_dark_for_long_keeps_its_gangs_and_their_quota(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"), node("n2"))
    gang, name = placed(plane, agent, plane.queue("team", nominal=16))
    agent.run(name)
    listen(plane)
    tell_time(plane, 40)
    check(plane)
    tell_time(plane, 299)
    check(plane)
    assert state(plane) == "unreachable"
    assert plane.rows("SELECT pending + posted AS used FROM account")[0].used == 16
    assert plane.state(gang) == "running"
    agent.sync()
    agent.finish(name)
    assert (state(plane), plane.state(gang)) == ("ready", "succeeded")


def test_time_outs_are_the_clusters_own(plane: Plane) -> None:
    ready(plane, "eu", node("n1"), suspectSeconds=1, unreachableSeconds=60)
    listen(plane)
    tell_time(plane, 2)
    check(plane)
    assert state(plane) == "suspect"


def test_an_outage_of_the_plane_starts_every_clock_again(plane: Plane) -> None:
    """T34: after an hour down, nobody was silent who could not be heard."""
    agent = ready(plane, "eu", node("n1"), node("n2"))
    gang, name = placed(plane, agent, plane.queue("team", nominal=16))
    agent.run(name)
    agent.report(node("n1", ready=False))
    tell_time(plane, 3_600)
    plane.do("UPDATE plane SET listened_at = now() - interval '1 hour', listening_since = now() - interval '1 day'")
    check(plane)
    assert state(plane) == "ready", "while nobody listens nobody is judged"
    with plane.uow() as uow:
        fleet.note_listening(uow)
    plane.do("UPDATE cluster SET next_check_at = now()")
    check(plane)
    with plane.uow() as uow:
        fleet.check_nodes(uow, 10)
    assert (state(plane), plane.state(gang)) == ("ready", "running")
    listen(plane, since_seconds=31)
    plane.do("UPDATE cluster SET next_check_at = now()")
    check(plane)
    assert state(plane) == "suspect"


def test_nodes_of_a_silent_cluster_are_not_judged(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"), node("n2"))
    gang, name = placed(plane, agent, plane.queue("team", nominal=16))
    agent.run(name)
    agent.report(node("n1", ready=False))
    listen(plane)
    tell_time(plane, 100)
    check(plane)
    with plane.uow() as uow:
        fleet.check_nodes(uow, 10)
    assert (state(plane), plane.state(gang)) == ("suspect", "running")


def test_a_node_that_does_not_say_since_when_it_is_not_ready_is_lost_all_the_same(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"), node("n2"))
    gang, name = placed(plane, agent, plane.queue("team", nominal=16))
    agent.run(name)
    untold = node("n1", ready=False).model_copy(update={"ready_changed_at": None})
    agent.report(untold)
    agent.report(untold.model_copy(update={"labels": {"zone": "a"}}))
    assert plane.rows("SELECT ready_changed_at FROM node WHERE name = 'n1'")[0].ready_changed_at is not None
    plane.do("UPDATE node SET ready_changed_at = now() - interval '1 hour', next_check_at = now() WHERE name = 'n1'")
    agent.report(untold)
    with plane.uow() as uow:
        fleet.check_nodes(uow, 10)
    assert plane.rows("SELECT lost_at FROM node WHERE name = 'n1'")[0].lost_at is not None
    assert plane.state(gang) == "stopping"


def test_room_that_comes_without_a_device_wakes_the_planner(plane: Plane) -> None:
    closed = node("n1").model_copy(update={"cordoned": True, "cpu_milli": 1_000})
    agent = ready(plane, "eu", closed)
    settled = "UPDATE pool SET next_check_at = NULL"
    tainted: dict[str, object] = {"taints": [{"key": "team", "effect": "NoSchedule"}]}
    told: tuple[dict[str, object], ...] = (
        {"cordoned": False, "cpu_milli": 1_000}, {"cpu_milli": 2_000}, {"domains": {"rack": "r2"}}, {"pods": 250},
        {"rdma": 4}, {"local_storage_bytes": 2**40}, {"labels": {"zone": "a"}}, tainted, {"taints": []},
    )  # fmt: skip
    for better in told:
        plane.do(settled)
        agent.report(node("n1").model_copy(update=better))
        assert plane.rows("SELECT next_check_at FROM pool")[0].next_check_at is not None, better
    plane.do(settled)
    agent.report(node("n1").model_copy(update={"cpu_milli": 5, "instance_type": "p5"}))
    assert plane.rows("SELECT next_check_at FROM pool")[0].next_check_at is None


def test_a_warm_planner_reads_nodes_again_when_their_cluster_gets_another_level(plane: Plane) -> None:
    agent = ready(plane, "eu", node("n1"), node("n2"))
    warm, reader = World(plane.pool), plane.tools.reader
    reading = reader.read(plane.pool, None)
    warm.apply(reading.changes)
    labelled = node("n1").model_copy(update={"domains": {"block": "b1", "rack": "r1"}})
    delta = agent.delta(labelled).model_copy(update={"levels": ["block", "rack", "host"]})
    agent.sync(inventory=delta)
    warm.apply(reader.read(plane.pool, reading.horizon).changes)
    assert {each.name: each.domains for each in warm.freeze().nodes.values()} == {
        "n1": ("b1", "r1", "n1"),
        "n2": ("", "r1", "n2"),
    }


def test_two_writers_of_one_node_lose_nothing_of_each_other(plane: Plane) -> None:
    """T47: taints that the cluster tells and a cordon that an admin asks for stand side by side."""
    agent = ready(plane, "eu", node("n1"))
    row = plane.rows("SELECT id FROM node")[0].id

    def cordon() -> None:
        with plane.uow() as uow:
            cordons.cordon_node_numbered(uow, NodeId(row), Wish("burn-in"), By("root"))

    tainted = node("n1").model_copy(update={"cordoned": True, "taints": [{"key": "maintenance"}]})
    with ThreadPoolExecutor(2) as both:
        told, asked = both.submit(agent.report, tainted), both.submit(cordon)
        told.result()
        asked.result()
    [kept] = plane.rows("SELECT cordoned, cordoned_by_us, taints FROM node")
    assert (kept.cordoned, kept.cordoned_by_us, kept.taints) == (True, "burn-in", [{"key": "maintenance"}])


def test_hearing_a_cluster_and_judging_its_silence_at_once_leaves_it_ready(plane: Plane) -> None:
    """T47: whoever comes second sees what the first has written."""
    agent = ready(plane, "eu", node("n1"))
    listen(plane)
    for _ in range(5):
        tell_time(plane, 31)
        with ThreadPoolExecutor(2) as both:
            heard, judged = both.submit(agent.sync), both.submit(check, plane)
            heard.result()
            judged.result()
        assert state(plane) == "ready"


def test_a_cordoned_node_takes_nothing_new(plane: Plane) -> None:
    ready(plane, "eu", node("n1"))
    row = plane.rows("SELECT id FROM node")[0].id
    with plane.uow() as uow:
        cordons.cordon_node_numbered(uow, NodeId(row), Wish("burn-in"), By("root"))
    gang = plane.workload("gang", plane.queue("team", nominal=8), pods=1)
    plan(plane)
    assert plane.state(gang) == "pending"
    with plane.uow() as uow:
        cordons.cordon_node_numbered(uow, NodeId(row), None, By("root"))
    plan(plane)
    assert plane.state(gang) == "reserved"
    with plane.uow() as uow, pytest.raises(NotFound):
        cordons.cordon_node_numbered(uow, NodeId(10**9), Wish("x"), By("root"))


def test_many_agents_report_and_finish_at_once_and_every_balance_is_right(plane: Plane) -> None:
    agents: list[Agent] = [
        ready(plane, f"c{number}", node(f"c{number}-n1"), node(f"c{number}-n2")) for number in range(3)
    ]
    team = plane.queue("team", nominal=48)
    for number in range(6):
        plane.workload(f"gang-{number}", team, pods=1)
    plan(plane)

    def live(agent: Agent) -> None:
        agent.sync()
        for name in list(agent.wanted):
            agent.run(name)
            agent.report(*[report.model_copy(update={"cordoned": False}) for report in agent.nodes.values()])
            agent.finish(name)
            agent.bury(name)

    with ThreadPoolExecutor(3) as many:
        list(many.map(live, agents))
    assert {row.state for row in plane.rows("SELECT state FROM workload")} == {"succeeded"}
    assert plane.rows("SELECT sum(pending + posted) AS used FROM account")[0].used == 0
    assert plane.rows("SELECT sum(held) AS held FROM node_flavor")[0].held == 0
