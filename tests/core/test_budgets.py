"""Device-hours per period, and how many Workloads may be under way at once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from controlplane.core.budgets import Allowances, next_periods, period_of, used_of
from controlplane.core.cycle import explain, plan_cycle
from controlplane.core.ids import WorkloadId
from controlplane.core.plan import Admit, Plan
from controlplane.core.policy import Policy
from controlplane.core.reasons import Reason, ReasonCode
from controlplane.core.scenario import tree_of
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Budget, Period, Spent
from tests.builders.core import A100, H100, NOW, AWorld, a_workload, a_world

HOUR = 3_600
MARCH, _ = period_of(Period.MONTH, NOW)


def two_teams() -> AWorld:
    """48 cards, two teams that own half of them each."""
    world = a_world().cluster("east").racks(3, 2)
    return world.queue("org").queue("org/a", 24).queue("org/b", 24)


def having(world: AWorld, path: str, *budgets: Budget, most_running: int | None = None) -> AWorld:
    world.queues[path] = replace(world.queues[path], budgets=budgets, most_running=most_running)
    return world


def monthly(hours: int, flavor: str = H100, *, is_hard: bool = True) -> Budget:
    return Budget(flavor, hours, Period.MONTH, is_hard)


def used(world: AWorld, path: str, hours: int, flavor: str = H100, **live: int) -> Spent:
    return Spent(world.queues[path].id, flavor, Period.MONTH, hours * HOUR, MARCH, **live)


def snapshot(world: AWorld, *spent: Spent) -> Snapshot:
    return replace(world.build(), spent=spent)


def started(plan: Plan) -> list[str]:
    return [each.workload for each in plan.decisions if isinstance(each, Admit)]


@pytest.mark.parametrize(
    ("per", "began", "ends"),
    [
        (Period.DAY, (2026, 3, 1), (2026, 3, 2)),
        (Period.WEEK, (2026, 2, 23), (2026, 3, 2)),  # the first of March 2026 is a Sunday
        (Period.MONTH, (2026, 3, 1), (2026, 4, 1)),
        (Period.QUARTER, (2026, 1, 1), (2026, 4, 1)),
        (Period.YEAR, (2026, 1, 1), (2027, 1, 1)),
    ],
)
def test_periods_are_stretches_of_the_calendar_in_utc(
    per: Period, began: tuple[int, int, int], ends: tuple[int, int, int]
) -> None:
    assert period_of(per, NOW) == (datetime(*began, tzinfo=UTC), datetime(*ends, tzinfo=UTC))
    elsewhere = NOW.astimezone(timezone(timedelta(hours=13)))
    assert period_of(per, elsewhere) == period_of(per, NOW), "whatever zone the clock speaks in"


def test_the_last_month_ends_with_its_year() -> None:
    december = datetime(2027, 12, 31, 23, 59, 59, tzinfo=UTC)
    for per in (Period.DAY, Period.MONTH, Period.QUARTER, Period.YEAR):
        assert period_of(per, december)[1] == datetime(2028, 1, 1, tzinfo=UTC)


def test_what_runs_counts_up_to_now() -> None:
    """8 cards since an hour after the period began: 11 of the 12 hours so far, beside what has ended."""
    world = two_teams()
    row = used(world, "org/a", 5, units=8, late=8 * HOUR)
    assert used_of(row, Period.MONTH, NOW) == (5 + 8 * 11) * HOUR
    assert used_of(row, Period.MONTH, NOW + timedelta(minutes=30)) == (5 + 8 * 11 + 4) * HOUR
    assert used_of(None, Period.MONTH, NOW) == 0


def test_a_new_period_begins_with_what_still_runs() -> None:
    row = used(two_teams(), "org/a", 5, units=8, late=8 * HOUR)
    assert used_of(row, Period.MONTH, datetime(2026, 4, 1, 2, tzinfo=UTC)) == 8 * 2 * HOUR


def test_a_hard_budget_stops_admission_when_it_is_used_up_and_says_until_when() -> None:
    world = having(two_teams(), "org/a", monthly(100))
    world.waits(a_workload("a1").in_queue("org/a"), a_workload("b1").in_queue("org/b"))
    assert started(plan_cycle(snapshot(world, used(world, "org/a", 99)), Policy(), NOW)) == ["a1", "b1"]
    plan = plan_cycle(snapshot(world, used(world, "org/a", 100)), Policy(), NOW)
    assert started(plan) == ["b1"]
    (why,) = plan.reasons[WorkloadId("a1")]
    assert why.code is ReasonCode.BUDGET_SPENT
    assert why.sentence() == (
        "org/a has used 100 of 100 device-hours of nvidia-h100-80gb this month;"
        " it begins anew at 2026-04-01T00:00:00+00:00."
    )


def test_what_live_attempts_have_used_since_uses_it_up_too() -> None:
    world = having(two_teams(), "org/a", monthly(100)).waits(a_workload("a1").in_queue("org/a"))
    early = used(world, "org/a", 10, units=8, late=0)  # 12 hours of 8 cards are 96
    assert started(plan_cycle(snapshot(world, early), Policy(), NOW)) == []
    assert started(plan_cycle(snapshot(world, early), Policy(), NOW - timedelta(hours=1))) == ["a1"]


def test_a_period_that_begins_anew_lets_work_start_again() -> None:
    world = having(two_teams(), "org/a", monthly(100)).waits(a_workload("a1").in_queue("org/a"))
    then = datetime(2026, 4, 1, tzinfo=UTC)
    full = snapshot(world, used(world, "org/a", 100))
    clusters = {key: replace(each, inventory_at=then) for key, each in full.clusters.items()}
    assert started(plan_cycle(replace(full, clusters=clusters), Policy(), then)) == ["a1"]


def test_the_budget_of_any_ancestor_counts_and_its_numbers_are_told() -> None:
    world = having(two_teams(), "org", monthly(500)).waits(a_workload("b1").in_queue("org/b"))
    (why,) = explain(snapshot(world, used(world, "org", 501)), Policy(), NOW, WorkloadId("b1"))
    assert (why.facts["queue"], why.facts["used"], why.facts["limit"]) == ("org", 501, 500)


def test_a_budget_of_all_flavors_stops_whatever_uses_devices_and_nothing_else() -> None:
    world = having(two_teams(), "org/a", monthly(10, "*"))
    world.waits(a_workload("a1").in_queue("org/a"), a_workload("cpu").in_queue("org/a").asking(1, 0))
    plan = plan_cycle(snapshot(world, used(world, "org/a", 10, "*")), Policy(), NOW)
    assert started(plan) == ["cpu"]
    assert plan.reasons[WorkloadId("a1")][0].facts["flavor"] == "all flavors"


def test_who_may_choose_goes_on_with_what_is_left() -> None:
    world = having(two_teams(), "org/a", monthly(10)).racks(1, 1, flavor=A100, block="b1")
    world.queue_of("lab")
    for path in ("org", "org/a"):
        queue = world.queues[path]
        world.queues[path] = replace(queue, quotas=(*queue.quotas, replace(queue.quotas[0], flavor=A100, nominal=8)))
    world.waits(a_workload("either").in_queue("org/a").asking(1, 8, H100, A100))
    plan = plan_cycle(snapshot(world, used(world, "org/a", 10)), Policy(), NOW)
    (admit,) = [each for each in plan.decisions if isinstance(each, Admit)]
    assert admit.charges == ((A100, 8),)


def test_nobody_is_stopped_so_that_work_without_budget_may_run() -> None:
    world = having(two_teams(), "org/a", monthly(10))
    for number in range(6):
        world.runs(f"b{number}", "org/b", {f"b0-r{number // 2}-n{number % 2}": 8}, minutes=number)
    world.waits(a_workload("a1").in_queue("org/a"))
    assert plan_cycle(snapshot(world, used(world, "org/a", 9)), Policy(), NOW).decisions, "it may ask while it has some"
    assert not plan_cycle(snapshot(world, used(world, "org/a", 10)), Policy(), NOW).decisions


def test_a_soft_budget_stops_nothing_and_puts_its_queue_behind_its_siblings() -> None:
    world = having(two_teams(), "org/a", monthly(10, is_hard=False))
    world.waits(a_workload("a1").in_queue("org/a").with_priority(9), a_workload("b1").in_queue("org/b").at(5))
    assert started(plan_cycle(snapshot(world, used(world, "org/a", 9)), Policy(), NOW)) == ["a1", "b1"]
    assert started(plan_cycle(snapshot(world, used(world, "org/a", 10)), Policy(), NOW)) == ["b1", "a1"]


def test_no_more_workloads_are_under_way_than_a_queue_may_have() -> None:
    world = having(two_teams(), "org/a", most_running=2).runs("a0", "org/a", {"b0-r0-n0": 4})
    world.waits(*(a_workload(name).in_queue("org/a").asking(1, 1) for name in ("a1", "a2")))
    plan = plan_cycle(world.build(), Policy(), NOW)
    assert started(plan) == ["a1"]
    (why,) = plan.reasons[WorkloadId("a2")]
    assert why.code is ReasonCode.MOST_RUNNING
    assert why.sentence() == "org/a may have 2 workloads under way at once, and 2 are."


def test_what_is_being_stopped_is_under_way_until_it_has_gone() -> None:
    world = having(two_teams(), "org/a", most_running=1).runs("a0", "org/a", {"b0-r0-n0": 4}).stops("a0")
    world.waits(a_workload("a1").in_queue("org/a"))
    assert started(plan_cycle(world.build(), Policy(), NOW)) == []
    assert started(plan_cycle(world.ends("a0").build(), Policy(), NOW)) == ["a1"]


def test_those_below_an_inner_queue_count_together_also_in_other_pools() -> None:
    world = having(two_teams(), "org", most_running=3).runs("a0", "org/a", {"b0-r0-n0": 4})
    world.waits(a_workload("a1").in_queue("org/a"), a_workload("b1").in_queue("org/b").at(1))
    assert started(plan_cycle(world.build(), Policy(), NOW)) == ["a1", "b1"]
    elsewhere = replace(world.build(), running_elsewhere={world.queues["org/b"].id: 1})
    assert started(plan_cycle(elsewhere, Policy(), NOW)) == ["a1"]


def test_nobody_is_stopped_for_who_has_too_many_under_way() -> None:
    world = having(two_teams(), "org/a", most_running=1).runs("a0", "org/a", {"b0-r0-n0": 1})
    for number in range(1, 6):
        world.runs(f"b{number}", "org/b", {f"b0-r{number // 2}-n{number % 2}": 8}, minutes=number)
    world.waits(a_workload("a1").in_queue("org/a"))
    assert not plan_cycle(world.build(), Policy(), NOW).decisions


def test_a_queue_without_budgets_and_numbers_is_refused_nothing() -> None:
    world = two_teams().waits(a_workload("a1").in_queue("org/a"))
    (waiting,) = world.waiting.values()
    free = Allowances(world.build(), tree_of(world.build()), NOW)
    said: list[Reason | None] = [free.refuses(waiting), free.crowded(waiting)]
    assert said == [None, None]
    assert free.narrowed(waiting) is waiting
    assert not free.is_over(waiting.queue)


def test_the_next_periods_are_told_each_once() -> None:
    world = two_teams()
    rows = [used(world, "org/a", 1), used(world, "org/b", 1), replace(used(world, "org", 1), per=Period.DAY)]
    assert next_periods(rows, NOW) == [datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)]
    assert next_periods([], NOW) == []
