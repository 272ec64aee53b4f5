"""What turns remember: weights, entry penalties, owners."""

from dataclasses import replace
from datetime import timedelta

from controlplane.core.decay import window
from controlplane.core.history import WHOLE
from controlplane.core.ids import AttemptNumber, WorkloadId
from controlplane.core.memory import Memory
from controlplane.core.policy import Policy
from controlplane.core.quota import QuotaTree
from controlplane.core.scenario import tree_of
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Standing
from tests.builders.core import H100, NOW, AWorld, a_workload, a_world

JUST_NOW = NOW - timedelta(minutes=10)
POLICY = Policy()


def two_teams() -> AWorld:
    """16 cards in two nodes; b waits, so both take part as soon as a has a past."""
    world = a_world().cluster("c").racks(1, 2).queue("org", 16).queue("org/a", weight=3).queue("org/b")
    return world.waits(a_workload("b1").in_queue("org/b"), a_workload("a2").in_queue("org/a"))


def memory(world: AWorld, snapshot: Snapshot, policy: Policy = POLICY) -> tuple[Memory, QuotaTree]:
    tree = tree_of(snapshot)
    return Memory(tree, snapshot, policy, NOW, {H100: 16}), tree


def entered(world: AWorld, snapshot: Snapshot, policy: Policy = POLICY) -> int:
    """What org/a's weight lacks, in millionths of a whole part."""
    return 3 * WHOLE - memory(world, snapshot, policy)[0].weight(world.queues["org/a"].id)


def placed_just_now(world: AWorld) -> Snapshot:
    world.runs("a1", "org/a", {"b0-r0-n0": 8})
    snapshot = world.build()
    running = {name: replace(each, placed_at=JUST_NOW) for name, each in snapshot.running.items()}
    return replace(snapshot, running=running)


PENALTY = 3 * (WHOLE * 1_000 * (8 * 3_600 * 10**6) // (2_000 * (16 * window(604_800 * 10**6) * 3 // 4)))


def test_without_a_past_plain_weights_count_and_a_standing_lessens_them() -> None:
    world = two_teams()
    snapshot = replace(world.build(), standings={world.queues["org/a"].id: Standing(weight=WHOLE // 2)})
    found, _ = memory(world, snapshot)
    assert found.weight(world.queues["org/a"].id) == 3 * WHOLE // 2
    assert found.weight(world.queues["org/b"].id) == WHOLE


def test_an_attempt_since_the_last_reckoning_counts_as_if_it_ran_until_the_next() -> None:
    world = two_teams()
    assert entered(world, placed_just_now(world)) == PENALTY > 0


def test_every_attempt_has_one_penalty_that_goes_with_it() -> None:
    """T18: penalties are those of live attempts, whatever happened to earlier attempts of the same workload."""
    world = two_teams()
    snapshot = placed_just_now(world)
    again = replace(snapshot.running[WorkloadId("a1")], attempt=AttemptNumber(2))
    assert entered(world, replace(snapshot, running={again.workload: again})) == PENALTY
    assert entered(world, replace(snapshot, running={})) == 0


def test_a_reckoning_settles_the_penalty() -> None:
    world = two_teams()
    snapshot = placed_just_now(world)
    reckoned = Standing(weight=WHOLE, reckoned_at=NOW - timedelta(minutes=5))
    assert entered(world, replace(snapshot, standings={world.queues["org/b"].id: reckoned})) == 0
    earlier = replace(reckoned, reckoned_at=NOW - timedelta(minutes=15))
    assert entered(world, replace(snapshot, standings={world.queues["org/b"].id: earlier})) == PENALTY


def test_a_penalty_lasts_no_longer_than_the_time_between_two_reckonings_however_late_the_next_one_is() -> None:
    world = two_teams()
    snapshot = placed_just_now(world)
    long_ago = replace(snapshot.running[WorkloadId("a1")], placed_at=NOW - timedelta(hours=3))
    late = {world.queues["org/b"].id: Standing(weight=WHOLE, reckoned_at=NOW - timedelta(hours=5))}
    assert entered(world, replace(snapshot, standings=late)) == PENALTY
    assert entered(world, replace(snapshot, standings=late, running={long_ago.workload: long_ago})) == 0


def test_an_admission_counts_at_once_as_it_will_in_the_next_cycle() -> None:
    world = two_teams()
    snapshot = world.build()
    found, tree = memory(world, snapshot)
    queue, before = world.queues["org/a"].id, found.weight(world.queues["org/a"].id)
    tree.charge(queue, H100, 8)
    found.admitted(snapshot.waiting[WorkloadId("a2")], [(H100, 8)])
    assert before - found.weight(queue) == PENALTY == entered(world, placed_just_now(two_teams()))


def test_what_a_queue_keeps_for_itself_costs_nothing() -> None:
    world = a_world().cluster("c").racks(1, 2).queue("org", 8).queue("org/a", 8, lend=0, weight=3).queue("org/b")
    assert entered(world, placed_just_now(world.waits(a_workload("b1").in_queue("org/b")))) == 0


def test_history_that_is_turned_off_changes_nothing() -> None:
    world = two_teams()
    snapshot = replace(
        placed_just_now(world),
        standings={world.queues["org/a"].id: Standing(weight=1)},
        owners={(world.queues["org/a"].id, "ann"): 99},
    )
    off = Policy(history_strength_permille=0)
    assert entered(world, snapshot, off) == 0
    assert memory(world, snapshot, off)[0].used(world.queues["org/a"].id, "ann") == 0


def test_a_penalty_never_takes_all_of_a_weight() -> None:
    world = two_teams()
    assert entered(world, placed_just_now(world), Policy(history_half_life_seconds=60)) == 3 * (WHOLE - WHOLE // 100)


def test_an_owner_has_used_what_was_reckoned_and_what_entered_since() -> None:
    world = two_teams()
    leaf = world.queues["org/a"].id
    found, _ = memory(world, replace(placed_just_now(world), owners={(leaf, "ann"): 100, (leaf, ""): 7}))
    assert found.used(leaf, "ann") == 100 * WHOLE
    assert found.used(leaf, "") == (7 + 8 * 3_600) * WHOLE
    assert found.used(leaf, "nobody") == 0
