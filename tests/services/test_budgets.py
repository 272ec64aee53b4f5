"""Budgets and numbers of Workloads under way on the real path: document, ledger, planner, view."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from controlplane.contract.rest.tenancy import QueueView
from controlplane.core.budgets import HOUR, balances, period_of
from controlplane.core.facts.ledger import AccountKey, AttemptKey, Proof, Usage
from controlplane.core.facts.planning import Horizon, Reading, Table
from controlplane.core.ids import AttemptNumber, FlavorName, PoolId, QueueId, WorkloadId
from controlplane.core.records import World
from controlplane.core.tenancy import Budget, Period, Spent
from controlplane.db.snapshot_reader import SqlSnapshotReader
from controlplane.services import accounting, applying, queries, tokens
from controlplane.services.applying import Sent
from controlplane.services.authz import Caller
from controlplane.services.documents import document_from
from controlplane.services.ports.unit_of_work import run
from controlplane.services.scheduling import next_moment
from tests.services.planes import H100, Plane
from tests.support.databases import Database


@pytest.fixture
def plane(database: Database) -> Iterator[Plane]:
    """A cluster of 64 devices, a root that owns them, and an admin."""
    made = Plane(database)
    made.cluster("eu-west", nodes=8)
    run(made.uow, tokens.first_admin)
    yield made
    made.close()


def apply(plane: Plane, path: str, **spec: object) -> int:
    """A Queue that owns 32 cards; returns its id."""
    quotas = [{"flavor": H100, **({"nominal": 32} if "/" in path else {})}]
    document: dict[str, Any] = {
        "apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": path},
        "spec": {"namespace": "team", "quotas": quotas, **spec},
    }  # fmt: skip
    with plane.uow() as uow:
        admin = uow.tenancy.principal("person", tokens.FIRST_ADMIN)
    assert admin is not None
    run(plane.uow, lambda uow: applying.apply(uow, Caller(admin), [Sent(*document_from(document))], str))
    return int(plane.rows("SELECT id FROM queue WHERE path = :path", path=path)[0].id)


def monthly(hours: int, *, flavor: str = H100, hard: bool = True, per: str = "month") -> dict[str, object]:
    return {"flavor": flavor, "deviceHours": hours, "per": per, "hard": hard}


def view(plane: Plane, path: str) -> QueueView:
    with plane.uow() as uow:
        admin = uow.tenancy.principal("person", tokens.FIRST_ADMIN)
        assert admin is not None
        return queries.queue(uow, admin, path)


def why(plane: Plane, workload: str) -> list[dict[str, Any]]:
    row = plane.rows("SELECT reasons FROM workload WHERE id = CAST(:id AS uuid)", id=workload)[0]
    return list(row.reasons)


def now(plane: Plane) -> datetime:
    moment = plane.rows("SELECT now() AS now")[0].now
    assert isinstance(moment, datetime)
    return moment


def used_before(plane: Plane, queue: int, hours: int, *, flavor: str = H100) -> None:
    """So many device-hours ended in the hour that runs, and were rolled up."""
    plane.do(
        """INSERT INTO usage_hour (queue_id, flavor, hour, device_seconds)
           VALUES (:queue, :flavor, date_trunc('hour', now(), 'UTC'), :seconds)""",
        queue=queue, flavor=flavor, seconds=hours * HOUR,
    )  # fmt: skip


def run_since(plane: Plane, workload: str, began: datetime) -> None:
    """Its pods run, and its Attempt was placed, since then."""
    plane.do("UPDATE attempt SET placed_at = :at WHERE workload_id = CAST(:id AS uuid)", at=began, id=workload)
    plane.do("UPDATE pod SET started_at = :at WHERE workload_id = CAST(:id AS uuid)", at=began, id=workload)


def read(plane: Plane, since: Horizon | None = None) -> Reading:
    return SqlSnapshotReader(plane.engine).read(plane.pool, since)


def spent_of(reading: Reading) -> tuple[Spent, ...]:
    world = World(reading.pool, reading.pool_name)
    world.apply(reading.changes)
    return world.freeze().spent


def test_a_hard_budget_that_is_used_up_makes_work_wait_with_its_numbers(plane: Plane) -> None:
    apply(plane, "lab")
    leaf = apply(plane, "lab/a", budgets=[monthly(100)])
    used_before(plane, leaf, 99)
    planner = plane.planner()
    first = plane.workload("first", leaf, pods=1)
    planner.step()
    assert plane.state(first) == "reserved"

    used_before_more = "UPDATE usage_hour SET device_seconds = :seconds WHERE queue_id = :queue"
    plane.do(used_before_more, seconds=100 * HOUR, queue=leaf)
    second = plane.workload("second", leaf, pods=1)
    planner.forget()  # else it may go on for some seconds with what it has read
    planner.step()
    assert plane.state(second) == "pending"
    (told,) = why(plane, second)
    assert told["code"] == "budget-spent"
    assert (told["facts"]["queue"], told["facts"]["used"], told["facts"]["limit"]) == ("lab/a", 100, 100)


def test_a_budget_above_counts_everything_below_whatever_the_flavor(plane: Plane) -> None:
    apply(plane, "lab", budgets=[monthly(50, flavor="*"), monthly(1_000, per="year", hard=False)])
    leaves = [apply(plane, f"lab/{name}") for name in "ab"]
    used_before(plane, leaves[0], 20)
    used_before(plane, leaves[1], 30, flavor="nvidia-a100-80gb")
    waiting = plane.workload("waits", leaves[0], pods=1)
    plane.planner().step()
    assert [each["code"] for each in why(plane, waiting)] == ["budget-spent"]
    all_flavors, yearly = view(plane, "lab").budgets
    assert (all_flavors.flavor, all_flavors.used, all_flavors.limit, all_flavors.is_spent) == ("*", 50, 50, True)
    assert (yearly.flavor, yearly.used, yearly.per, yearly.hard, yearly.is_spent) == (H100, 20, "year", False, False)
    assert all_flavors.ends_at == period_of(Period.MONTH, now(plane))[1]
    assert view(plane, "lab/a").budgets == []


@pytest.mark.planted_violation  # the reservation is ended by hand, so that only its usage is looked at
def test_what_is_used_is_the_same_whether_it_runs_has_ended_or_was_rolled_up(plane: Plane) -> None:
    """Two pods of 8 for three hours, as far as the year has them: no part is lost or counted twice on its way."""
    apply(plane, "lab")
    leaf = apply(plane, "lab/a", budgets=[monthly(1_000, per="year")])
    workload = plane.workload("job", leaf, pods=2)
    plane.planner().step()
    began = now(plane) - timedelta(hours=3)
    run_since(plane, workload, began)
    end = max(began, period_of(Period.YEAR, now(plane))[0])
    at = end + timedelta(seconds=7_200)

    (running,) = spent_of(read(plane))
    assert (running.device_seconds, running.units) == (0, 16)
    assert used(running, at) == 16 * 7_200

    plane.do("UPDATE pod SET finished_at = :at WHERE workload_id = CAST(:id AS uuid)", at=at, id=workload)
    (finished,) = spent_of(read(plane))
    assert (finished.device_seconds, finished.units) == (16 * 7_200, 0)

    key = AttemptKey(WorkloadId(workload), AttemptNumber(1))
    pods = plane.rows("SELECT id, amount FROM pod WHERE workload_id = CAST(:id AS uuid)", id=workload)
    usages = [Usage(pod.id, key, AccountKey(QueueId(leaf), FlavorName(H100)), pod.amount, began, at) for pod in pods]

    def settle(uow: Any) -> None:  # noqa: ANN401 - as `run` gives it
        accounting.record_usage(uow, usages)
        uow.ledger.release_reservations([key], Proof.AGENT_REPORT)

    run(plane.uow, settle)
    (settled,) = spent_of(read(plane))
    assert (settled.device_seconds, settled.units) == (16 * 7_200, 0)
    run(plane.uow, accounting.roll_up_usage)
    by_hour, by_day = (
        plane.rows(f"SELECT sum(device_seconds) AS s FROM {table}")[0].s for table in ("usage_hour", "usage_day")
    )
    assert by_hour == by_day, "days are the sums of their hours"
    assert by_hour >= settled.device_seconds > 0, "it was rolled up"
    assert spent_of(read(plane)) == (settled,)


def used(row: Spent, at: datetime) -> int:
    budget = Budget(row.flavor, 1, row.per)
    (balance,) = balances(row.queue, (budget,), {(row.queue, row.flavor, row.per): row}, at)
    return balance.used


def test_a_warm_reader_forgets_what_no_budget_asks_for_any_more_and_reads_new_ones_at_once(plane: Plane) -> None:
    apply(plane, "lab")
    leaf = apply(plane, "lab/a", budgets=[monthly(10)])
    used_before(plane, leaf, 3)
    reader, world = SqlSnapshotReader(plane.engine), World(plane.pool)
    first = reader.read(plane.pool, None)
    world.apply(first.changes)
    assert [each.device_seconds for each in world.freeze().spent] == [3 * HOUR]

    apply(plane, "lab/a", budgets=[monthly(10, per="year")])
    second = reader.read(plane.pool, first.horizon)
    world.apply(second.changes)
    assert [each.per for each in world.freeze().spent] == [Period.YEAR]
    assert world.freeze().queues[QueueId(leaf)].budgets == (Budget(H100, 10, Period.YEAR, is_hard=True),)

    apply(plane, "lab/a")
    world.apply(reader.read(plane.pool, second.horizon).changes)
    assert world.freeze().spent == ()
    assert world.freeze().queues[QueueId(leaf)].budgets == ()


def test_no_more_workloads_are_under_way_than_the_document_says(plane: Plane) -> None:
    apply(plane, "lab", mostRunning=3)
    leaf = apply(plane, "lab/a", mostRunning=1)
    planner = plane.planner()
    first, second = (plane.workload(name, leaf, pods=1) for name in ("first", "second"))
    planner.step()
    assert [plane.state(each) for each in (first, second)] == ["reserved", "pending"]
    (told,) = why(plane, second)
    assert (told["code"], told["facts"]) == ("most-running", {"queue": "lab/a", "limit": 1, "running": 1})
    assert view(plane, "lab/a").most_running == 1

    apply(plane, "lab/a", mostRunning=2)
    planner.step()
    assert plane.state(second) == "reserved"


def test_those_of_other_pools_count_and_are_forgotten_when_nobody_asks(plane: Plane) -> None:
    other = PoolId(plane.do("INSERT INTO pool (name) VALUES ('other') RETURNING id"))
    apply(plane, "lab")
    leaf = apply(plane, "lab/a", mostRunning=1)
    plane.workload("first", leaf, pods=1)
    plane.planner().step()
    reader, world = SqlSnapshotReader(plane.engine), World(other)
    reading = reader.read(other, None)
    world.apply(reading.changes)
    assert world.freeze().running_elsewhere == {QueueId(leaf): 1}
    assert not [each for each in read(plane).changes if each.table is Table.RUNNING_ELSEWHERE], "they are its own"

    apply(plane, "lab/a")
    world.apply(reader.read(other, reading.horizon).changes)
    assert world.freeze().running_elsewhere == {}


def test_the_planner_looks_again_when_a_period_begins_anew(plane: Plane) -> None:
    apply(plane, "lab")
    leaf = apply(plane, "lab/a", budgets=[monthly(1, per="day")])
    used_before(plane, leaf, 1)
    plane.workload("waits", leaf, pods=1)
    planner = plane.planner()
    planned = planner.plan()
    assert planned is not None
    _, midnight = period_of(Period.DAY, planned.reading.now)
    assert next_moment(planned.snapshot, planned.plan, midnight - timedelta(seconds=2)) == midnight


def test_whoever_reads_beside_a_planner_takes_no_news_of_budgets_from_it(plane: Plane) -> None:
    reader = SqlSnapshotReader(plane.engine)
    apply(plane, "org")
    since = reader.read(plane.pool, None).horizon
    apply(plane, "org/team", budgets=[monthly(1)])
    reader.read(plane.pool, since)  # what came of it was thrown away, or was for another
    told = [change.value for change in reader.read(plane.pool, since).changes if change.table is Table.SPENT]
    assert [each.flavor for each in told if isinstance(each, Spent)] == [H100]
