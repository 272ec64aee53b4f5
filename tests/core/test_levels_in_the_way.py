"""Which Queue stops a waiting Workload, and who holds what it has."""

from controlplane.core.ids import WorkloadId
from controlplane.core.index import FleetIndex
from controlplane.core.levels import HOLDERS_MAX, Level, levels
from controlplane.core.scenario import tree_of
from tests.builders.core import A100, H100, NOW, AWorld, a_workload, a_world


def of(world: AWorld) -> list[Level]:
    snapshot = world.build()
    return list(levels(snapshot, NOW, snapshot.waiting[WorkloadId("job")]))


def full() -> AWorld:
    """An organisation of 32 units, all in use: `org/a` holds 8 of them, `org/b` the rest."""
    world = a_world().queue("org", 32).queue("org/a", 0, borrow=16).queue("org/b").cluster("c0").racks(1, 4)
    world.runs("mine", "org/a", {"b0-r0-n0": 8})
    return world.runs("large", "org/b", {"b0-r0-n1": 8, "b0-r0-n2": 8}).runs(
        "small", "org/b", {"b0-r0-n3": 8}, minutes=5
    )


def test_the_queue_whose_limit_is_reached_is_told_with_who_holds_most_below_it() -> None:
    leaf, root = of(full().waits(a_workload("job").in_queue("org/a")))
    assert (leaf.used, leaf.limit, leaf.available, leaf.stops, leaf.holders) == (8, 16, 0, False, ())
    assert (root.used, root.limit, root.wanted, root.stops) == (32, 32, 8, True)
    assert [(each.workload, each.units) for each in root.holders] == [("large", 16), ("mine", 8), ("small", 8)]


def test_a_borrowing_limit_stops_at_its_own_queue_and_names_who_is_below_that() -> None:
    world = full().ends("small").ends("large")
    leaf, root = of(world.waits(a_workload("job").in_queue("org/a").asking(2)))
    assert (leaf.stops, leaf.limit, [each.workload for each in leaf.holders]) == (True, 16, ["mine"])
    assert (root.stops, root.available) == (False, 24)


def test_nobody_is_told_of_where_nothing_stops_it_and_a_queue_without_a_limit_has_none() -> None:
    world = a_world().queue("org", 32).queue("org/a").cluster("c0").racks(1, 4)
    found = of(world.waits(a_workload("job").in_queue("org/a")))
    assert [(each.limit, each.stops, each.holders) for each in found] == [(None, False, ()), (32, False, ())]


def test_what_is_kept_for_others_is_counted_apart() -> None:
    world = full().ends("small").waits(a_workload("job").in_queue("org/a"), a_workload("other").in_queue("org/b"))
    root = of(world.keeps("other", {"b0-r0-n3": 8}))[-1]
    assert (root.stops, root.used, root.kept) == (True, 32, 8)
    root = of(world.keeps("job", {"b0-r0-n3": 8}))[-1]
    assert root.stops, "its own does not help it to what is kept for the other"


def test_the_tree_that_was_lent_comes_back_as_it_was() -> None:
    snapshot = full().waits(a_workload("job").in_queue("org/a")).keeps("job", {"b0-r0-n3": 8}).build()
    index, tree = FleetIndex(snapshot.clusters, snapshot.nodes), tree_of(snapshot)
    before, free = tree.account_rows(), dict(index.free[H100])
    levels(snapshot, NOW, snapshot.waiting[WorkloadId("job")], index, tree)
    assert (tree.account_rows(), index.free[H100]) == (before, free)


def test_at_most_a_few_are_named_and_every_flavor_has_its_levels() -> None:
    world = a_world().queue("org", 8).queue("org/a").cluster("c0").racks(1, 1)
    for number in range(8):
        world.runs(f"one-{number}", "org/a", {"b0-r0-n0": 1}, minutes=number)
    root = of(world.waits(a_workload("job").in_queue("org/a").asking(1, 1)))[-1]
    assert [each.workload for each in root.holders] == [f"one-{number}" for number in range(HOLDERS_MAX)]
    found = of(world.waits(a_workload("job").in_queue("org/a").asking(1, 1, A100, H100)))
    assert {each.flavor for each in found} == {A100}, "its first choice"
