"""Laws of what is advised to those who wait: doing it starts them, and whatever was looked at stays as it was."""

import pytest
from hypothesis import given

from controlplane.core.advising import Bounds, Question, advise
from controlplane.core.cycle import explain, plan_cycle
from controlplane.core.ids import WorkloadId
from controlplane.core.index import FleetIndex
from controlplane.core.plan import Admit, Plan
from controlplane.core.policy import Policy
from controlplane.core.records import plan_hash
from controlplane.core.scenario import tree_of
from controlplane.core.snapshot import Snapshot
from tests.builders.core import NOW, AWorld
from tests.laws.worlds import LAW, crowded, worlds
from tests.support.doing import done
from tests.support.waiting_worlds import waiting_world


def starts(plan: Plan, workload: WorkloadId) -> bool:
    return any(isinstance(each, Admit) and each.workload == workload for each in plan.decisions)


def _doing_it_starts_it(snapshot: Snapshot) -> None:
    for workload in sorted(snapshot.waiting):
        for advice in advise(Question(snapshot, Policy(), NOW, workload)).advice:
            changed, asker = done(snapshot, workload, advice, NOW)
            plan = plan_cycle(changed, Policy(), NOW)
            assert starts(plan, asker), (workload, advice.sentence(), advice, plan.reasons.get(asker))


@LAW
@given(world=worlds())
def test_doing_what_is_advised_starts_it(world: AWorld) -> None:
    _doing_it_starts_it(world.build())


@LAW
@given(world=crowded())
def test_doing_what_is_advised_starts_it_where_everything_is_borrowed(world: AWorld) -> None:
    _doing_it_starts_it(world.build())


@pytest.mark.parametrize("seed", range(12))
def test_doing_what_is_advised_starts_it_in_fleets_of_racks(seed: int) -> None:
    _doing_it_starts_it(waiting_world(seed))


@LAW
@given(world=worlds())
def test_advice_is_for_those_who_wait_and_its_trials_leave_no_trace(world: AWorld) -> None:
    snapshot = world.build()
    index, tree = FleetIndex(snapshot.clusters, snapshot.nodes), tree_of(snapshot)
    plan = plan_cycle(snapshot, Policy(), NOW)
    for workload in sorted(snapshot.waiting):
        told = advise(Question(snapshot, Policy(), NOW, workload, index, tree))
        assert isinstance(told.outcome, Admit) is starts(plan, workload)
        if isinstance(told.outcome, Admit):
            assert told.advice == ()
        else:
            assert told.outcome == explain(snapshot, Policy(), NOW, workload)
        assert told.advice == advise(Question(snapshot, Policy(), NOW, workload)).advice, "warm or cold is all one"
    assert plan_hash(plan_cycle(snapshot, Policy(), NOW, index, tree)) == plan_hash(plan)


@LAW
@given(world=worlds())
def test_with_fewer_trials_less_is_told_and_nothing_else(world: AWorld) -> None:
    snapshot = world.build()
    for workload in sorted(snapshot.waiting):
        everything = advise(Question(snapshot, Policy(), NOW, workload))
        little = advise(Question(snapshot, Policy(), NOW, workload), Bounds(trials_max=3))
        assert everything.advice[: len(little.advice)] == little.advice
        assert little.is_all <= everything.is_all
