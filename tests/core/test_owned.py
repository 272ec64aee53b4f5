"""What counts of what clusters own: up at once, down along a line."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.cycle import plan_cycle
from controlplane.core.facts.planning import Change, Table
from controlplane.core.ids import ClusterId
from controlplane.core.owned import Counted, settled
from controlplane.core.policy import Policy
from controlplane.core.records import World
from controlplane.core.scenario import Scenario, tree_of
from tests.builders.core import H100, NOW, AWorld, a_workload, a_world
from tests.laws.worlds import LAW

HOUR = timedelta(hours=1)


def test_what_is_told_first_counts_and_more_counts_at_once() -> None:
    first = settled(None, 64, 100, NOW)
    assert first == Counted(64, 64)
    assert settled(first, 96, 100, NOW) == Counted(96, 96)


@pytest.mark.parametrize(
    ("minutes", "counts"),
    [(0, 100), (6, 99), (60, 90), (5 * 60, 50), (6 * 60, 40), (7 * 60, 40)],
)
def test_less_is_met_along_a_line_of_a_tenth_of_what_it_was_per_hour(minutes: int, counts: int) -> None:
    falls = settled(Counted(100, 100), 40, 100, NOW)
    assert falls.units == 100, "nothing goes in the moment in which it is told"
    assert settled(falls, 40, 100, NOW + timedelta(minutes=minutes)).units == counts


def test_a_mad_probe_that_is_over_soon_costs_next_to_nothing() -> None:
    falls = settled(settled(None, 1_000, 100, NOW), 0, 100, NOW)
    later = settled(falls, 0, 100, NOW + timedelta(minutes=3))
    assert later.units == 995
    assert settled(later, 1_000, 100, NOW + timedelta(minutes=4)) == Counted(1_000, 1_000)


def test_a_fall_that_ended_begins_anew_and_not_where_it_stood() -> None:
    falls = settled(Counted(100, 100), 90, 100, NOW)
    ended = settled(falls, 90, 100, NOW + 2 * HOUR)
    assert ended == Counted(90, 90)
    again = settled(ended, 0, 100, NOW + 9 * HOUR)
    assert again.units == 90
    assert settled(again, 0, 100, NOW + 10 * HOUR).units == 81


@LAW
@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 10_000)), min_size=1, max_size=20),
    st.integers(1, 5_000),
)
def test_it_is_never_less_than_told_and_never_falls_faster_than_it_may(
    steps: list[tuple[int, int]], permille: int
) -> None:
    now = NOW
    at: Counted | None = None
    for told, seconds in steps:
        now += timedelta(seconds=seconds)
        before, at = at, settled(at, told, permille, now)
        assert at.units >= told
        assert settled(at, told, permille, now) == at, "asked twice in a moment, it says the same"
        if before is not None:
            allowed = before.peak * permille * seconds // 3_600_000 + 1
            assert at.units >= min(before.units, max(told, before.units - allowed))


@LAW
@given(st.lists(st.integers(1, 4_000), max_size=10), st.integers(0, 100))
def test_how_often_it_is_looked_at_changes_nothing(looks: list[int], told: int) -> None:
    start = settled(Counted(100, 100), told, 200, NOW) if told < 100 else Counted(told, told)
    end = NOW + timedelta(seconds=40_000)
    at = start
    for seconds in sorted(looks):
        at = settled(at, told, 200, NOW + timedelta(seconds=seconds))
    assert settled(at, told, 200, end) == settled(start, told, 200, end)


def owning(told: int, counted: int) -> tuple[AWorld, dict[tuple[ClusterId, str], int]]:
    """A root that has what clusters own; a cluster of nodes of 8, and what counts of it."""
    world = a_world().cluster("east").racks(1, told // 8).queue("org", None).queue("org/a", 0)
    return world, {(max(world.clusters), H100): counted}


def root_of(world: AWorld, counted: dict[tuple[ClusterId, str], int]) -> int:
    """What the root has; the same by the index and without it."""
    snapshot = replace(world.build(), owned_counted=counted)
    org = world.queues["org"].id
    by_index = Scenario(snapshot, NOW).tree.account(org, H100).s
    assert tree_of(snapshot).account(org, H100).s == by_index
    return by_index


def test_a_root_has_what_counts_and_nothing_is_placed_on_what_is_not_there() -> None:
    world, counted = owning(16, 64)
    assert root_of(world, counted) == 64
    world.waits(*(a_workload(f"a{number}").in_queue("org/a").at(number) for number in range(3)))
    plan = plan_cycle(replace(world.build(), owned_counted=counted), Policy(), NOW)
    assert len(plan.decisions) == 2
    (why,) = plan.reasons.values()
    assert why[0].code == "not-enough-free"


def test_more_than_counts_counts_at_once() -> None:
    assert root_of(*owning(64, 16)) == 64


def test_what_is_not_told_any_more_at_all_counts_too() -> None:
    assert root_of(*owning(0, 64)) == 64


def test_what_a_cluster_that_is_not_there_counted_is_not_ours() -> None:
    world, counted = owning(16, 16)
    assert root_of(world, {**counted, (ClusterId(max(world.clusters) + 1), H100): 64}) == 16


def test_the_warm_tree_follows_what_counts() -> None:
    world, counted = owning(16, 64)
    snapshot, org = world.build(), world.queues["org"].id
    warm = World(snapshot.pool)
    warm.apply(Change(Table.CLUSTERS, key, row) for key, row in snapshot.clusters.items())
    warm.apply(Change(Table.NODES, key, row) for key, row in snapshot.nodes.items())
    warm.apply(Change(Table.QUEUES, key, row) for key, row in snapshot.queues.items())
    for units in (64, 40, None):
        warm.apply(Change(Table.OWNED_COUNTED, (int(cluster), flavor), units) for cluster, flavor in counted)
        frozen = warm.freeze()
        assert warm.warm_tree(frozen, warm.warm_index(frozen)).account(org, H100).s == (units or 16)
