"""What Queues are entitled to, by examples that can be done by hand."""

from fractions import Fraction

import pytest

from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.quota import QuotaTree
from controlplane.core.shares import fair_shares, level
from tests.builders.core import A100, H100, AWorld, a_world


def shares(world: AWorld, wanted: dict[str, int], flavor: FlavorName = H100) -> dict[str, Fraction]:
    tree = QuotaTree(world.queues.values(), {}, {H100: 64})
    found = fair_shares(tree, {(world.queues[path].id, flavor): units for path, units in wanted.items()})
    paths = {queue.id: path for path, queue in world.queues.items()}
    return {paths[queue]: share for (queue, _), share in found.items()}


def test_each_gets_its_nominal_first_and_what_is_lent_goes_by_weight() -> None:
    world = a_world().queue("org", 40).queue("org/a", 8, weight=3).queue("org/b", 8, weight=1).queue("org/c", 8)
    assert shares(world, {"org/a": 100, "org/b": 100}) == {"org/a": 8 + 36, "org/b": 8 + 12, "org": 64}
    assert shares(world, {"org/a": 100, "org/b": 100, "org/c": 4})["org/c"] == 4


def test_who_wants_little_leaves_the_rest_to_the_others() -> None:
    world = a_world().queue("org", 30).queue("org/a").queue("org/b").queue("org/c")
    assert shares(world, {"org/a": 4, "org/b": 50, "org/c": 50}) == {"org/a": 4, "org/b": 13, "org/c": 13, "org": 30}


def test_a_third_of_a_card_is_a_third() -> None:
    world = a_world().queue("org", 1).queue("org/a").queue("org/b").queue("org/c")
    assert shares(world, {"org/a": 1, "org/b": 1, "org/c": 1})["org/b"] == Fraction(1, 3)


def test_a_weight_of_0_gets_only_what_nobody_with_a_weight_wants() -> None:
    world = a_world().queue("org", 30).queue("org/a", weight=1).queue("org/x", weight=0).queue("org/y", weight=0)
    assert shares(world, {"org/a": 100, "org/x": 100}) == {"org/a": 30, "org/x": 0, "org": 30}
    assert shares(world, {"org/a": 10, "org/x": 100, "org/y": 100})["org/y"] == 10
    assert shares(world, {"org/x": 100, "org/y": 100})["org/x"] == 15, "never a division by nothing"


def test_a_borrowing_limit_stops_it_and_a_lending_limit_keeps_for_its_owner() -> None:
    world = a_world().queue("org", 0).queue("org/a", 8, borrow=4).queue("org/b", 32, lend=10).queue("org/c", 0)
    assert shares(world, {"org/a": 100, "org/c": 100}) == {"org/a": 8 + 4, "org/c": 6, "org": 18}
    assert shares(world, {"org/a": 100, "org/b": 25})["org/a"] == 8 + 4
    assert shares(world, {"org/b": 100, "org/c": 100})["org/b"] == 32 + 4, "its own, and half of what a owns"


def test_departments_are_even_whatever_the_number_of_their_teams() -> None:
    world = a_world().queue("org", 12).queue("org/x").queue("org/y")
    for path in ("org/x/1", "org/x/2", "org/x/3", "org/y/1"):
        world.queue(path)
    found = shares(world, {"org/x/1": 9, "org/x/2": 9, "org/x/3": 9, "org/y/1": 9})
    assert [found["org/x"], found["org/x/2"], found["org/y/1"]] == [6, 2, 6]


def test_work_that_waits_in_an_inner_queue_comes_before_what_its_children_borrow() -> None:
    world = a_world().queue("org", 10).queue("org/a", 4).queue("org/b")
    assert shares(world, {"org": 6, "org/a": 9, "org/b": 9}) == {"org/a": 6, "org/b": 2, "org": 14}


def test_a_root_without_a_nominal_shares_what_clusters_own() -> None:
    world = a_world().queue("org", None).queue("org/a").queue("org/b", 10)
    assert shares(world, {"org/a": 100, "org/b": 100}) == {"org/a": 27, "org/b": 37, "org": 64}


def test_flavors_are_divided_apart_and_what_nobody_has_is_nothing() -> None:
    world = a_world().queue("org", 10).queue("org/a")
    assert shares(world, {"org/a": 5}, A100) == {"org/a": 0, "org": 0}


def test_whoever_is_not_in_the_tree_gets_nothing() -> None:
    tree = QuotaTree(a_world().queue("org", 8).queues.values())
    assert fair_shares(tree, {(QueueId(99), H100): 4, (QueueId(1), H100): 0}) == {}


@pytest.mark.parametrize(
    ("wants", "room", "expected"),
    [
        ([(5, 1), (5, 1)], 10, None),
        ([(5, 1), (5, 1)], 9, Fraction(9, 2)),
        ([(1, 1), (9, 2)], 7, Fraction(3)),
        ([(1, 1)], 0, Fraction(0)),
        ([], 7, None),
    ],
)
def test_the_level_at_which_the_room_is_used_up(
    wants: list[tuple[int, int]], room: int, expected: Fraction | None
) -> None:
    assert level(wants, Fraction(room)) == expected
