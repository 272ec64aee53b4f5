"""Work units end a cycle; what it did not reach is first in the next one."""

from controlplane.core.cycle import plan_cycle
from controlplane.core.facts.planning import Change, Table
from controlplane.core.plan import Admit, Plan, goes_on, left_over
from controlplane.core.policy import Policy
from controlplane.core.records import World, change_from_record, change_to_record, plan_hash
from tests.builders.core import NOW, AWorld, a_workload, a_world

FEW = Policy(work_units_max=4, reclaim=False)


def starving() -> AWorld:
    """Twenty urgent gangs that are too large, each in another way, and one small job behind them all."""
    world = a_world().cluster("c").racks(1, 2).queue("team", 10_000)
    world.waits(*[a_workload(f"large-{pods}").with_priority(9).asking(pods) for pods in range(30, 50)])
    return world.waits(a_workload("small"))


def warm(world: AWorld) -> World:
    snapshot = world.build()
    result = World(snapshot.pool)
    result.apply(Change(Table.CLUSTERS, key, each) for key, each in snapshot.clusters.items())
    result.apply(Change(Table.NODES, key, each) for key, each in snapshot.nodes.items())
    result.apply(Change(Table.QUEUES, key, each) for key, each in snapshot.queues.items())
    result.apply(Change(Table.WAITING, key, each) for key, each in snapshot.waiting.items())
    return result


def cycle(world: World) -> Plan:
    """One as a planner runs it."""
    snapshot = world.freeze()
    plan = plan_cycle(snapshot, FEW, NOW)
    world.apply(world.of_left_over(left_over(plan, FEW.work_units_max, snapshot.left_over)))
    return plan


def test_a_small_job_behind_many_that_use_the_work_units_up_has_its_turn() -> None:
    world = warm(starving())
    plans = [cycle(world) for _ in range(21)]
    assert plans[0].decisions == ()
    assert plans[0].left_over > 10
    assert "small" in [each.workload for plan in plans for each in plan.decisions], "each cycle looks at one at least"
    assert plan_cycle(starving().build(), FEW, NOW).decisions == (), "without a memory it never has its turn"


def test_what_a_cycle_did_not_reach_is_looked_at_first_in_the_next() -> None:
    world = warm(starving())
    first = cycle(world)
    left = set(world.freeze().left_over)
    assert len(left) == first.left_over
    second = cycle(world)
    reached = {name for name in second.reasons if name not in left_over(second, FEW.work_units_max)}
    assert reached <= left


def test_cycles_follow_each_other_until_each_was_looked_at_once_and_no_longer() -> None:
    world, rounds, has_more = warm(starving()), 0, True
    while has_more:
        before = world.freeze().left_over
        has_more = goes_on(cycle(world), FEW.work_units_max, before)
        rounds += 1
        assert rounds < 30, "whoever was looked at in vain is looked at again when something changes, or after a while"
    assert rounds >= 5
    assert not goes_on(plan_cycle(starving().build(), Policy(reclaim=False), NOW), Policy().work_units_max)


def test_a_cycle_that_reaches_everybody_leaves_nothing_over() -> None:
    plan = plan_cycle(starving().build(), Policy(reclaim=False), NOW)
    assert left_over(plan, Policy().work_units_max) == frozenset()
    assert [each.workload for each in plan.decisions if isinstance(each, Admit)] == ["small"]


def test_a_cycle_that_only_admitted_as_many_as_it_may_leaves_none_over_for_the_next() -> None:
    """Who comes next is who is next by rank: newcomers with a higher priority are not held up."""
    world = a_world().cluster("c").racks(1, 4).queue("team", 32)
    world.waits(*[a_workload(f"job-{number}") for number in range(4)])
    plan = plan_cycle(world.build(), Policy(admissions_max=2), NOW)
    assert plan.left_over == 2
    assert left_over(plan, Policy().work_units_max) == frozenset()


def test_what_is_left_over_is_part_of_the_world_so_that_replay_agrees() -> None:
    world = warm(starving())
    cycle(world)
    again = World(world.pool)
    again.apply(change_from_record(change_to_record(change)) for change in world.changes())
    assert again.freeze().left_over == world.freeze().left_over != ()
    assert plan_hash(plan_cycle(again.freeze(), FEW, NOW)) == plan_hash(plan_cycle(world.freeze(), FEW, NOW))
    world.apply(world.of_left_over(()))
    assert world.freeze().left_over == ()
