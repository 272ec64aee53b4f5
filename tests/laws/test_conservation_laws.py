"""Work conservation: nothing that fits and may run waits, whatever the strategy and whoever had its turn before."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.cycle import plan_cycle
from controlplane.core.demand import PodSet, StrategyName
from controlplane.core.placement.registry import STRATEGIES
from controlplane.core.plan import Admit
from controlplane.core.policy import Policy
from controlplane.core.tenancy import Quota
from tests.builders.core import NOW, AWorld, a_workload, a_world
from tests.laws.counting import has_room, is_crowded
from tests.laws.worlds import FLAVORS, LAW, worlds


@st.composite
def of_equal_wishes(draw: st.DrawFn, strategy: StrategyName) -> AWorld:
    """Many ask the same, as users do, of little room: what one was refused, its equal need not be."""
    world = a_world().cluster("c")
    for number in range(draw(st.integers(1, 4))):
        world.node(f"n{number}", ("b0", "r0"), {draw(st.sampled_from(FLAVORS)): draw(st.sampled_from((2, 4)))})
    paths = ("one", "two", "three")
    for path in paths:
        world.queue_of(path, *(Quota(flavor, draw(st.sampled_from((0, 2, 8)))) for flavor in FLAVORS))
    flavors = st.sampled_from((FLAVORS[:1], FLAVORS, FLAVORS[::-1]))
    asked = [PodSet("main", draw(st.integers(1, 2)), 2, draw(flavors)) for _ in range(draw(st.integers(1, 2)))]
    for number in range(draw(st.integers(2, 6))):
        job = a_workload(f"job-{number}").with_sets(draw(st.sampled_from(asked))).in_queue(draw(st.sampled_from(paths)))
        world.waits(job.at(number).having(strategy=strategy, shape=draw(st.sampled_from(("", "odd")))))
    for node in draw(st.lists(st.sampled_from(list(world.nodes.values())), unique_by=lambda each: each.id)):
        world.excludes("odd", node.name)
    return world


@pytest.mark.parametrize("strategy", STRATEGIES)
@LAW
@given(data=st.data())
def test_nothing_that_fits_and_may_run_waits(strategy: StrategyName, data: st.DataObject) -> None:
    """Counted by hand in the world as the Plan leaves it, one waiting Workload after the other.

    Nothing is kept for anybody here and nobody is stopped: what is being freed for one is no other's room.
    """
    world = data.draw(st.one_of(worlds(strategy), of_equal_wishes(strategy)))
    world.earmarks.clear()
    for name, workload in list(world.waiting.items()):
        world.waiting[name] = replace(workload, pod_sets=workload.pod_sets[:1])
    plan = plan_cycle(world.build(), Policy(reclaim=False), NOW)
    for decision in plan.decisions:
        assert isinstance(decision, Admit)
        world.admits(decision)
    after = world.build()
    assert after.waiting.keys() == plan.reasons.keys()
    for workload in after.waiting.values():
        assert is_crowded(after, workload) or not has_room(after, workload), plan.reasons[workload.id]
