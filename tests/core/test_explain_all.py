"""All Reasons of all that wait, asked at once: the same as each would be told alone."""

from controlplane.core.cycle import explain, explain_all, plan_cycle
from controlplane.core.ids import WorkloadId
from controlplane.core.policy import Policy
from controlplane.core.refusals import REASONS_MAX
from tests.builders.core import NOW, AWorld, a_workload, a_world


def contended() -> AWorld:
    """Five half full clusters; two Queues, one of which is used up; a gang that starts between two that do not."""
    world = a_world().queue("rich", 1000).queue("poor", 40)
    for number in range(5):
        world.cluster(f"c{number}").racks(1, 2, block=f"b{number}")
        world.runs(f"x{number}", "poor", {f"b{number}-r0-n0": 8})
    for minute, (name, queue, pods) in enumerate(
        [("wide", "rich", 2), ("fits", "rich", 1), ("again", "rich", 2), ("over", "poor", 2)]
    ):
        world.waits(a_workload(name).in_queue(queue).asking(pods).at(minute))
    return world


def test_each_is_told_what_it_would_be_told_alone() -> None:
    snapshot = contended().build()
    found = explain_all(snapshot, Policy(), NOW)
    assert set(found) == set(plan_cycle(snapshot, Policy(), NOW).reasons)
    assert {name: explain(snapshot, Policy(), NOW, name) for name in found} == found
    assert len(found[WorkloadId("wide")]) == 5 > REASONS_MAX, "every cluster has a Reason"
    assert [why.code for why in found[WorkloadId("over")]][:2] == ["quota-exceeded", "not-enough-free"]


def test_the_numbers_are_those_of_its_turn_and_not_of_an_equal_request_before() -> None:
    found = explain_all(contended().build(), Policy(), NOW)
    first, second = (sum(int(why.facts["fits"]) for why in found[WorkloadId(name)]) for name in ("wide", "again"))
    assert first > second, "a gang between the two took room"
