"""Whose turn it is, by example."""

from dataclasses import replace

import pytest

from controlplane.core.fairshare import Contest, Share
from controlplane.core.ids import FlavorName, WorkloadId
from controlplane.core.memory import Memory
from controlplane.core.policy import Policy
from controlplane.core.quota import QuotaTree
from controlplane.core.tenancy import Quota, Standing
from tests.builders.core import A100, H100, NOW, AWorkload, AWorld, a_workload, a_world


def turns(world: AWorld, used: dict[tuple[str, FlavorName], int] | None = None, *, charging: bool = True) -> list[str]:
    """The order of turns if every Workload is admitted when it has its turn."""
    usage = {(world.queues[path].id, flavor): amount for (path, flavor), amount in (used or {}).items()}
    tree = QuotaTree(world.queues.values(), usage)
    contest = Contest(tree, world.waiting.values())
    order = []
    while (workload := contest.next()) is not None:
        order.append(workload.name)
        for pod_set in workload.pod_sets if charging else ():
            tree.charge(workload.queue, pod_set.flavors[0], pod_set.devices * pod_set.replicas)
    return order


def job(name: str, queue: str, minutes: int = 0, devices: int = 8) -> AWorkload:
    return a_workload(name).in_queue(queue).at(minutes).asking(1, devices)


def two_teams(weight: int = 1) -> AWorld:
    return a_world().queue("org", 64).queue("org/a", 8, weight=weight).queue("org/b", 8)


def test_within_a_leaf_repairs_go_first_then_priority_then_age_then_id() -> None:
    world = a_world().queue("team", 64)
    world.waits(
        a_workload("young").at(9),
        a_workload("b-old").at(1),
        a_workload("a-old").at(1),
        a_workload("urgent").at(20).with_priority(10),
        a_workload("repair").at(30).having(is_repair=True),
    )
    assert turns(world) == ["repair", "urgent", "a-old", "b-old", "young"]


def test_who_does_not_borrow_goes_before_who_does() -> None:
    world = two_teams().waits(job("a1", "org/a").with_priority(100), job("b1", "org/b", 5))
    assert turns(world, {("org/a", H100): 8}) == ["b1", "a1"]


def test_the_lower_share_goes_first_and_turns_alternate() -> None:
    world = two_teams()
    world.waits(*[job(f"a{number}", "org/a", number) for number in range(3)])
    world.waits(*[job(f"b{number}", "org/b", 10 + number) for number in range(3)])
    assert turns(world) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_weight_of_three_borrows_three_times_as_much() -> None:
    world = two_teams(weight=3)
    world.waits(*[job(f"a{number}", "org/a", number) for number in range(7)])
    world.waits(*[job(f"b{number}", "org/b", 10 + number) for number in range(3)])
    assert turns(world)[2:] == ["a1", "a2", "a3", "b1", "a4", "a5", "a6", "b2"]


def test_a_queue_without_weight_borrows_last() -> None:
    """A weight of 0 that borrows counts as infinite, never as 0/0."""
    world = two_teams(weight=0).waits(job("a1", "org/a"), job("b1", "org/b", 5))
    assert turns(world, {("org/a", H100): 8, ("org/b", H100): 40}) == ["b1", "a1"]
    assert turns(world) == ["a1", "b1"], "within its nominal it needs no weight"


def test_borrowing_is_judged_by_the_flavor_that_is_asked_for() -> None:
    """T89: a queue within its own on X may have X, however much of Y it has borrowed."""
    quotas = Quota(H100, 8), Quota(A100, 8)
    world = a_world().queue_of("org", Quota(H100, 64), Quota(A100, 64)).queue_of("org/a", *quotas)
    world.queue_of("org/b", *quotas).waits(job("a1", "org/a", 9), job("b1", "org/b"))
    assert turns(world, {("org/a", A100): 40, ("org/b", H100): 8}) == ["a1", "b1"]


def test_the_tournament_is_per_level() -> None:
    """Two departments are even, whatever the number of their teams."""
    world = a_world().queue("org", 64).queue("org/x", 0).queue("org/y", 0)
    for path in ("org/x/1", "org/x/2", "org/x/3", "org/y/1"):
        world.queue(path)
    for number, path in enumerate(["org/x/1", "org/x/2", "org/x/3"]):
        world.waits(job(f"x{number}", path, number))
    world.waits(*[job(f"y{number}", "org/y/1", 10 + number) for number in range(3)])
    assert turns(world) == ["x0", "y0", "x1", "y1", "x2", "y2"]


def test_equal_shares_are_decided_by_priority_then_age_then_id() -> None:
    """T15: never by chance."""
    world = a_world().queue("org", 64)
    for path in ("org/a", "org/b", "org/c", "org/d"):
        world.queue(path)
    world.waits(job("z", "org/a", 5), job("y", "org/b", 5), job("x", "org/c", 1), job("w", "org/d", 9).with_priority(1))
    assert turns(world, charging=False) == ["w", "x", "y", "z"]


def test_what_was_refused_does_not_hold_up_the_rest() -> None:
    world = two_teams().waits(job("a1", "org/a"), job("a2", "org/a", 1), job("b1", "org/b", 2))
    assert turns(world, charging=False) == ["a1", "a2", "b1"]


def test_roots_share_nothing_and_go_by_priority_and_age() -> None:
    world = a_world().queue("org", 8).queue("lab", 8)
    world.waits(job("lab1", "lab", 1), job("org1", "org", 2), job("org2", "org", 3).with_priority(5))
    assert turns(world) == ["org2", "lab1", "org1"]


def test_a_queue_that_got_children_still_serves_what_waits_in_it() -> None:
    world = a_world().queue("org", 64).waits(job("old", "org")).queue("org/a").waits(job("new", "org/a"))
    assert turns(world) == ["old", "new"]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Share(0, 8, 1), Share(1, 10**18, 1)),
        (Share(1, 3, 1), Share(2, 3, 1)),
        (Share(10**18, 3 * 10**18 + 1, 1), Share(1, 3, 1)),  # a float could not tell them apart
        (Share(5, 8, 1), Share(1, 8, 0)),
        (Share(1, 8, 0), Share(2, 8, 0)),
        (Share(7, 8, 1), Share(1, 0, 1)),
    ],
)
def test_shares_compare_exactly(left: Share, right: Share) -> None:
    assert left < right
    assert not right < left
    assert left != right


def test_equal_fractions_are_equal() -> None:
    assert Share(1, 2, 3) == Share(2, 12, 1)
    assert not Share(1, 2, 3) < Share(2, 12, 1)
    assert Share(1, 2, 1) != "half"


def test_the_order_of_input_does_not_matter() -> None:
    world = two_teams()
    world.waits(
        *[job(f"a{number}", "org/a", number) for number in range(5)], *[job(f"b{n}", "org/b", n) for n in range(5)]
    )
    before = turns(world)
    world.waiting = dict(reversed(world.waiting.items()))
    world.queues = {path: replace(queue) for path, queue in reversed(world.queues.items())}
    assert turns(world) == before


def remembered(world: AWorld, standings: dict[str, Standing]) -> list[str]:
    """The order of turns if every Workload is admitted, with what history says of weights."""
    snapshot = replace(
        world.build(), standings={world.queues[path].id: standing for path, standing in standings.items()}
    )
    tree = QuotaTree(world.queues.values())
    memory = Memory(tree, snapshot, Policy(), NOW, {H100: 64})
    contest = Contest(tree, world.waiting.values(), memory)
    order = []
    while (workload := contest.next()) is not None:
        order.append(workload.name)
        tree.charge(workload.queue, H100, 8)
        memory.admitted(workload, [(H100, 8)])
    return order


def test_who_used_more_than_its_share_lately_goes_behind_until_the_credit_is_spent() -> None:
    """A quarter of a's weight is left: b borrows four times as much."""
    world = a_world().queue("org", 64).queue("org/a").queue("org/b")
    world.waits(*[job(f"a{number}", "org/a", number) for number in range(2)])
    world.waits(*[job(f"b{number}", "org/b", 10 + number) for number in range(5)])
    assert remembered(world, {}) == ["a0", "b0", "a1", "b1", "b2", "b3", "b4"]
    behind = remembered(world, {"org/a": Standing(weight=250_000)})
    assert behind == ["b0", "b1", "b2", "a0", "b3", "b4", "a1"]


def test_history_gives_no_weight_to_who_has_none() -> None:
    world = two_teams(weight=0).waits(job("a1", "org/a"), job("a2", "org/a"), job("b1", "org/b", 5))
    assert remembered(world, {"org/b": Standing(weight=10_000)})[0] == "a1", "within its nominal"
    assert remembered(world, {"org/b": Standing(weight=10_000)})[1:] == ["b1", "a2"]


def test_what_the_last_cycle_left_over_is_first_save_for_repairs() -> None:
    world = two_teams().waits(
        job("a1", "org/a").with_priority(9), job("b1", "org/b", 5), job("b2", "org/b", 6).having(is_repair=True)
    )
    contest = Contest(QuotaTree(world.queues.values()), world.waiting.values(), left_over=[WorkloadId("b1")])
    assert [one.name for one in iter(contest.next, None)] == ["b2", "b1", "a1"]


def test_who_is_beyond_a_soft_budget_goes_behind_its_siblings() -> None:
    world = two_teams().waits(job("a1", "org/a").with_priority(9), job("b1", "org/b", 5))
    over = world.queues["org/a"].id
    contest = Contest(QuotaTree(world.queues.values()), world.waiting.values(), is_over=lambda queue: queue == over)
    assert [one.name for one in iter(contest.next, None)] == ["b1", "a1"]
