"""What Queues had of what others waited for, and what it makes of their weights, by example."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from controlplane.core.cycle import plan_cycle
from controlplane.core.decay import gathered, window
from controlplane.core.history import (
    WHOLE,
    Account,
    Gathering,
    Held,
    Owner,
    Past,
    Use,
    carried,
    contended,
    contended_by_owner,
    reckoned,
    use_after,
    wanted,
)
from controlplane.core.plan import Plan
from controlplane.core.policy import Policy
from controlplane.core.scenario import tree_of
from controlplane.core.tenancy import Quota
from tests.builders.core import A100, H100, NOW, AWorkload, AWorld, a_workload, a_world

HALF_LIFE = 604_800
WINDOW = window(HALF_LIFE * 10**6)
HOUR = timedelta(hours=1)


def job(name: str, queue: str, devices: int = 8) -> AWorkload:
    return a_workload(name).in_queue(queue).asking(1, devices)


def two_teams(borrow: int | None = None) -> AWorld:
    """16 cards in two nodes; each team owns none."""
    world = a_world().cluster("c").racks(1, 2)
    return world.queue("org", 16).queue("org/a", 0, borrow=borrow).queue("org/b", 0)


def used(world: AWorld, elsewhere: Mapping[Account, int] | None = None) -> dict[str, int]:
    """Contended units by path, of H100."""
    snapshot = world.build()
    tree = tree_of(snapshot)
    found = contended(tree, wanted(tree, snapshot.waiting.values()), elsewhere or {})
    return {tree.queues[queue].path: units for (queue, flavor), units in found.items() if flavor == H100}


def test_what_nobody_waits_for_is_not_contended() -> None:
    world = two_teams().runs("a1", "org/a", {"b0-r0-n0": 8})
    assert used(world) == {}
    assert used(world.waits(job("a2", "org/a"))) == {}, "its own queue's wishes are no contention"


def test_usage_is_contended_while_a_sibling_waits_for_as_many_units() -> None:
    world = two_teams().runs("a1", "org/a", {"b0-r0-n0": 8}).waits(job("b1", "org/b", 8))
    assert used(world) == {"org/a": 8}
    assert used(two_teams().runs("a1", "org/a", {"b0-r0-n0": 8}).waits(job("b1", "org/b", 2))) == {"org/a": 2}


def test_only_the_flavor_that_is_waited_for_is_contended() -> None:
    world = (
        two_teams().runs("a1", "org/a", {"b0-r0-n0": 8}).waits(a_workload("b1").in_queue("org/b").asking(1, 8, A100))
    )
    assert used(world) == {}
    either = two_teams().runs("a1", "org/a", {"b0-r0-n0": 8})
    assert used(either.waits(a_workload("b1").in_queue("org/b").asking(1, 8, A100, H100))) == {"org/a": 8}


def test_who_is_stopped_by_its_own_borrowing_limit_waits_for_nobody() -> None:
    world = two_teams(borrow=0).runs("b1", "org/b", {"b0-r0-n0": 8}).waits(job("a1", "org/a"))
    assert used(world) == {}
    assert used(two_teams(borrow=4).runs("b1", "org/b", {"b0-r0-n0": 8}).waits(job("a1", "org/a"))) == {"org/b": 4}


def test_what_a_queue_keeps_from_its_siblings_is_not_contended() -> None:
    world = a_world().cluster("c").racks(1, 2).queue("org", 8).queue("org/a", 8, lend=2).queue("org/b", 0)
    world.runs("a1", "org/a", {"b0-r0-n0": 8}).waits(job("b1", "org/b"))
    assert used(world) == {"org/a": 2}


def test_departments_contend_where_their_teams_do() -> None:
    world = a_world().cluster("c").racks(1, 2).queue("org", 16).queue("org/x").queue("org/y")
    for path in ("org/x/1", "org/x/2", "org/y/1"):
        world.queue(path)
    world.runs("x1", "org/x/1", {"b0-r0-n0": 8}).waits(job("y1", "org/y/1", 4))
    assert used(world) == {"org/x": 4}
    assert used(world.waits(job("x2", "org/x/2", 1))) == {"org/x": 4, "org/x/1": 1}


def test_what_other_pools_charge_they_gather_themselves() -> None:
    world = two_teams().runs("a1", "org/a", {"b0-r0-n0": 8}).waits(job("b1", "org/b"))
    assert used(world, {(world.queues["org/a"].id, H100): 5}) == {"org/a": 3}


def test_who_is_stopped_by_a_budget_or_by_how_many_may_run_waits_for_nobody() -> None:
    world = two_teams().runs("a1", "org/a", {"b0-r0-n0": 8}).runs("b1", "org/b", {"b0-r0-n1": 8})
    snapshot = world.waits(job("b2", "org/b")).build()
    bounded = {name: replace(queue, most_running=1) for name, queue in snapshot.queues.items() if queue.path == "org/b"}
    stopped = replace(snapshot, queues={**snapshot.queues, **bounded})
    for each, expected in ((snapshot, {"org/a": 8}), (stopped, {})):
        tree = tree_of(each)
        use = use_after(each, plan_cycle(each, Policy(), NOW), tree, NOW)
        assert {tree.queues[queue].path: units for (queue, _), units in use.queues.items()} == expected


def owners(world: AWorld) -> dict[Owner, int]:
    snapshot = world.build()
    held: list[Held] = [(at.queue, at.owner, at.charges) for at in snapshot.running.values()]
    return contended_by_owner(held, snapshot.waiting.values())


def test_owners_of_one_leaf_contend_with_each_other_alone() -> None:
    world = two_teams().runs("one", "org/a", {"b0-r0-n0": 8})
    world.waits(job("two", "org/a", 4).having(owner="ann"))
    assert owners(world) == {(world.queues["org/a"].id, ""): 4}
    other = two_teams().runs("one", "org/a", {"b0-r0-n0": 8}).waits(job("two", "org/b").having(owner="ann"))
    assert owners(other) == {}


def test_a_plan_s_starts_count_from_now_on_and_the_tree_is_handed_back() -> None:
    """Of three gangs two start; the third waits for what the other team has now."""
    world = two_teams().waits(job("a1", "org/a"), job("b1", "org/b"), job("b2", "org/b"))
    snapshot = world.build()
    tree = tree_of(snapshot)
    before = tree.account_rows()
    use = use_after(snapshot, plan_cycle(snapshot, Policy(), NOW), tree, NOW)
    assert {tree.queues[queue].path: units for (queue, _), units in use.queues.items()} == {"org/a": 8}
    assert {tree.queues[queue].path: units for (queue, _), units in use.wants.items()} == {"org/b": 8}
    assert tree.account_rows() == before


def test_who_backs_off_waits_for_nobody() -> None:
    world = two_teams().runs("a1", "org/a", {"b0-r0-n0": 8}).waits(job("b1", "org/b").having(not_before=NOW + HOUR))
    snapshot = world.build()
    assert use_after(snapshot, Plan(), tree_of(snapshot), NOW) == Use()
    assert use_after(snapshot, Plan(), tree_of(snapshot), NOW + HOUR).queues != {}


def test_gathering_in_any_stretches_is_gathering_at_once() -> None:
    at_once, stepwise = Gathering[str](HALF_LIFE), Gathering[str](HALF_LIFE)
    end = NOW + 400 * HOUR  # more than two half-lives
    at_once.add({"a": 3}, NOW, end)
    at = NOW
    for minutes in (1, 7, 600, 9_000, 14_392):
        stepwise.add({"a": 3}, at, at + timedelta(minutes=minutes))
        at += timedelta(minutes=minutes)
    assert at == end
    expected = gathered(3, 400 * 3_600 * 10**6, HALF_LIFE * 10**6)
    assert abs(at_once.amounts(end)["a"] - expected) < 10
    assert abs(stepwise.amounts(end)["a"] - expected) < 100
    assert stepwise.amounts(end + timedelta(hours=168))["a"] == pytest.approx(expected // 2, abs=100)


def test_a_clock_that_goes_back_adds_nothing() -> None:
    gathering = Gathering[str](HALF_LIFE)
    gathering.add({"a": 1}, NOW, NOW - HOUR)
    assert gathering.amounts(NOW) == {}


def standing(contended_windows: tuple[int, int], policy: Policy | None = None) -> dict[str, Past]:
    """a's and b's Past, their contended usage given in percent of all 16 cards for the whole window."""
    world = two_teams()
    tree = tree_of(world.build())
    paths = {"org/a": contended_windows[0], "org/b": contended_windows[1]}
    past = {(world.queues[path].id, H100): Past(16 * WINDOW * part // 100) for path, part in paths.items()}
    found = reckoned(tree, policy or Policy(), {H100: 16}, past, past)
    return {tree.queues[queue].path: each for (queue, _), each in found.items()}


def test_who_had_its_share_has_half_of_its_weight_and_who_had_nothing_all_of_it() -> None:
    """With k = 1, and both divided by 1 + k: w' + k (w' - u') is w' for a and 2 w' for b."""
    found = standing((50, 0))
    assert (found["org/a"].weight, found["org/b"].weight) == (WHOLE // 2, WHOLE)
    assert (found["org/a"].credit, found["org/b"].credit) == (0, 8 * WINDOW)


def test_who_had_all_of_it_keeps_the_floor_and_owes_credit() -> None:
    found = standing((100, 0))
    assert found["org/a"].weight == WHOLE // 100
    assert found["org/a"].credit == -8 * WINDOW


def test_a_strength_of_0_turns_history_off_and_a_stronger_one_counts_more() -> None:
    assert standing((100, 0), Policy(history_strength_permille=0))["org/a"].weight == WHOLE
    assert standing((50, 0), Policy(history_strength_permille=3_000))["org/a"].weight == WHOLE // 4


def test_a_change_within_the_margin_leaves_the_weight_as_it_was() -> None:
    world = two_teams()
    tree, account = tree_of(world.build()), (world.queues["org/a"].id, H100)
    past, waits = {account: Past(16 * WINDOW // 2, WHOLE // 2 + 19_000)}, {(world.queues["org/b"].id, H100)}
    assert reckoned(tree, Policy(), {H100: 16}, past, waits)[account].weight == WHOLE // 2 + 19_000
    past[account] = Past(16 * WINDOW // 2, WHOLE // 2 + 21_000)
    assert reckoned(tree, Policy(), {H100: 16}, past, waits)[account].weight == WHOLE // 2


def test_a_share_is_one_of_those_that_take_part() -> None:
    """Alone it is all of the capacity; a sibling that waits makes it a half."""
    world = two_teams()
    tree = tree_of(world.build())
    a, b = ((world.queues[path].id, H100) for path in ("org/a", "org/b"))
    assert reckoned(tree, Policy(), {H100: 16}, {}, {a})[a].credit == 16 * WINDOW
    assert reckoned(tree, Policy(), {H100: 16}, {}, {a, b})[b].credit == 8 * WINDOW
    much = {b: Past(16 * WINDOW // 100)}
    assert reckoned(tree, Policy(), {H100: 16}, much, {a})[a].credit == 8 * WINDOW


def test_who_used_next_to_nothing_for_long_takes_no_share_and_is_forgotten_in_the_end() -> None:
    """Else every sibling that ever contended would make the shares of those that do smaller."""
    world = two_teams()
    tree = tree_of(world.build())
    a, b = ((world.queues[path].id, H100) for path in ("org/a", "org/b"))
    found = reckoned(tree, Policy(), {H100: 16}, {b: Past(16 * WINDOW // 2_000, 999_000)}, {a})
    assert found[a].credit == 16 * WINDOW
    assert found[b].contended > 0
    assert reckoned(tree, Policy(), {H100: 16}, {b: Past(999_999, 985_000)}, {a})[b] == Past()


def test_a_weight_of_0_has_no_share_and_no_division_by_nothing() -> None:
    world = a_world().queue("org", 16).queue("org/a", 0, weight=0)
    tree, account = tree_of(world.build()), (world.queues["org/a"].id, H100)
    assert reckoned(tree, Policy(), {H100: 16}, {account: Past(7 * WHOLE)}, ())[account] == Past(
        7 * WHOLE, WHOLE, -7 * WHOLE
    )


def test_roots_share_nothing_and_have_no_past() -> None:
    world = a_world().queue("org", 16)
    account = world.queues["org"].id, H100
    assert reckoned(tree_of(world.build()), Policy(), {H100: 16}, {account: Past(7 * WHOLE)}, ()) == {}


def test_what_nobody_owns_in_the_pool_is_no_capacity() -> None:
    world = a_world().queue_of("org", Quota(H100, 1_000)).queue("org/a")
    tree, account = tree_of(world.build()), (world.queues["org/a"].id, H100)
    assert reckoned(tree, Policy(), {}, {account: Past(7 * WHOLE)}, ())[account].credit == -7 * WHOLE
    assert reckoned(tree, Policy(), {H100: 4}, {}, {account})[account].credit == 4 * WINDOW


def test_a_past_fades_by_half_in_a_half_life() -> None:
    assert carried(Past(1_000, 7, 9), HALF_LIFE * 10**6, HALF_LIFE * 10**6, 25) == Past(525, 7, 9)
