"""The quota tree by example: each table is a tree, its usage, and what follows."""

from collections.abc import Mapping

import pytest

from controlplane.core.entitlement import never_satisfiable, quota_reason
from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.quota import DEPTH_MAX, ImpossibleTree, Leg, QuotaTree
from controlplane.core.reasons import ReasonCode
from controlplane.core.resources import UNLIMITED
from controlplane.core.tenancy import Queue, Quota
from tests.builders.core import A100, H100, AWorld, a_workload, a_world


def tree(world: AWorld, used: Mapping[str, int] | None = None, owned: int = 0) -> QuotaTree:
    usage = {(world.queues[path].id, H100): amount for path, amount in (used or {}).items()}
    return QuotaTree(world.queues.values(), usage, {H100: owned})


def numbers(world: AWorld, used: Mapping[str, int], path: str) -> tuple[int, int]:
    made = tree(world, used)
    return made.available(world.queues[path].id, H100), made.potential(world.queues[path].id, H100)


def three_teams(borrow: int | None = None, lend: int | None = None) -> AWorld:
    return a_world().queue("org").queue("org/a", 8, borrow, lend).queue("org/b", 8).queue("org/c", 8)


@pytest.mark.parametrize(
    ("used", "available"),
    [
        ({}, 24),
        ({"org/a": 24}, 0),
        ({"org/b": 20}, 4),
        ({"org/a": 8, "org/b": 8}, 8),
    ],
)
def test_without_limits_a_queue_may_use_all_that_the_tree_has(used: dict[str, int], available: int) -> None:
    assert numbers(three_teams(), used, "org/a")[0] == available


@pytest.mark.parametrize(
    ("borrow", "used", "available", "potential"),
    [(0, {}, 8, 8), (4, {}, 12, 12), (4, {"org/a": 10}, 2, 12), (4, {"org/b": 20}, 4, 12), (100, {}, 24, 24)],
)
def test_a_borrowing_limit_caps_what_a_queue_uses_beyond_its_own(
    borrow: int, used: dict[str, int], available: int, potential: int
) -> None:
    assert numbers(three_teams(borrow=borrow), used, "org/a") == (available, potential)


@pytest.mark.parametrize(
    ("used", "who", "available"),
    [
        ({}, "org/b", 20),  # 4 of a's 8 are kept
        ({"org/b": 12, "org/c": 8}, "org/a", 4),
        ({"org/b": 12, "org/c": 8}, "org/b", 0),
        ({"org/a": 4, "org/b": 12, "org/c": 8}, "org/a", 0),
    ],
)
def test_a_lending_limit_keeps_the_rest_for_its_queue(used: dict[str, int], who: str, available: int) -> None:
    assert numbers(three_teams(lend=4), used, who)[0] == available


def test_usage_of_an_inner_queue_is_no_subtree_sum() -> None:
    """0/12/12 oversells and 4/12/8 does not, though both sum to 24."""
    world = three_teams(lend=4)
    org = world.queues["org"].id
    oversold = tree(world, {"org/b": 12, "org/c": 12})
    fitting = tree(world, {"org/a": 4, "org/b": 12, "org/c": 8})
    assert oversold.available(org, H100) == -4
    assert fitting.available(org, H100) == 0


def test_every_ancestor_is_asked() -> None:
    """T53: a leaf with room under a parent that is full gets nothing."""
    world = a_world().queue("org", 0).queue("org/dept", 6, borrow=0).queue("org/dept/team", 100)
    world.queue("org/other", 100)
    full = tree(world, {"org/dept/team": 106})
    assert full.available(world.queues["org/dept/team"].id, H100) == 0
    limit = full.limit(world.queues["org/dept/team"].id, H100)
    assert (limit.queue, limit.used, limit.limit) == (world.queues["org/dept"].id, 106, 106)


def test_a_flavor_that_a_queue_does_not_list_lives_off_its_ancestors() -> None:
    """T54: an unlisted dimension is ignored: it is neither a limit nor a claim."""
    world = a_world().queue_of("org", Quota(H100, 8), Quota(A100, 16)).queue("org/team", 8)
    made = tree(world)
    team = world.queues["org/team"].id
    assert made.available(team, A100) == 16
    assert made.available(team, FlavorName("never-heard-of")) == 0


def test_an_inner_nominal_is_extra_pool_and_no_cap() -> None:
    world = a_world().queue("org", 4).queue("org/team", 8)
    assert numbers(world, {}, "org/team") == (12, 12)


def test_a_root_without_nominal_owns_what_clusters_own_less_what_others_claim() -> None:
    world = a_world().queue("org", None).queue("org/team", 8, lend=2).queue("lab", 5)
    made = tree(world, owned=100)
    org = world.queues["org"].id
    assert made.account(org, H100).s == 95  # 2 of the team's 8 are lent; the lab claims 5
    assert tree(world, owned=7).account(org, H100).s == 2, "what the team lends, and nothing of its own"
    assert tree(world, owned=3).account(org, H100).s == 0, "the lab's claim stands, and never is it below 0"


@pytest.mark.parametrize(
    ("given", "owned", "left"),
    [
        ({"a": (8, None), "b": (8, None), "c": (8, None)}, 24, {"a": 8, "b": 8, "c": 8}),
        ({"a": (8, None), "b": (8, None), "c": (8, None)}, 20, {"a": 6, "b": 7, "c": 7}),  # ties by path
        ({"a": (8, None), "b": (16, None)}, 12, {"a": 4, "b": 8}),
        ({"a": (7, None), "b": (5, None), "c": (1, None)}, 10, {"a": 5, "b": 4, "c": 1}),  # 1.6, 1.2 and 0.2 go
        ({"a": (8, 2), "b": (8, None)}, 5, {"a": 7, "b": 4}),  # a keeps 6 whatever goes
        ({"a": (8, 0), "b": (8, None)}, 0, {"a": 8, "b": 0}),
        ({"a": (8, None), "b": (0, None)}, 2, {"a": 2, "b": 0}),
    ],
)
def test_what_is_not_there_is_taken_off_children_in_proportion_to_what_they_lend(
    given: dict[str, tuple[int, int | None]], owned: int, left: dict[str, int]
) -> None:
    world = a_world().queue("org", None)
    for name, (nominal, lend) in given.items():
        world.queue(f"org/{name}", nominal, lend=lend)
    made = tree(world, owned=owned)
    assert {name: made.account(world.queues[f"org/{name}"].id, H100).s for name in given} == left
    assert made.account(world.queues["org"].id, H100).s == owned, "the root has what is there"
    as_given = QuotaTree(world.queues.values(), {}, {H100: owned}, is_as_given=True)
    assert {name: as_given.account(world.queues[f"org/{name}"].id, H100).s for name in given} == {
        name: nominal for name, (nominal, _) in given.items()
    }


def test_below_a_child_its_own_nominal_goes_first_and_then_what_is_lent_to_it() -> None:
    world = a_world().queue("org", None).queue("org/dept", 4).queue("org/dept/x", 8).queue("org/dept/y", 4)
    names = ("org/dept", "org/dept/x", "org/dept/y")
    for owned, left in ((16, [16, 8, 4]), (13, [13, 8, 4]), (12, [12, 8, 4]), (6, [6, 4, 2]), (0, [0, 0, 0])):
        made = tree(world, owned=owned)
        assert [made.account(world.queues[name].id, H100).s for name in names] == left


def test_what_comes_back_is_given_back_and_usage_stays_as_it_is() -> None:
    world = a_world().queue("org", None).queue("org/a", 8).queue("org/b", 8)
    made, org, team = tree(world, {"org/a": 8}, owned=16), world.queues["org"].id, world.queues["org/a"].id
    made.own({H100: 8})
    assert (made.account(team, H100).s, made.account(team, H100).u, made.available(team, H100)) == (4, 8, 0)
    made.own({H100: 4})
    assert made.available(team, H100) == -4
    assert made.account(org, H100).overdraft() == 4
    made.own({H100: 20})
    assert [made.account(queue, H100).s for queue in (org, team)] == [20, 8]


def test_who_lacks_only_what_is_not_there_is_not_told_that_it_never_may() -> None:
    world = a_world().queue("org", None).queue("org/a", 16, borrow=0).queue("org/b", 16)
    for owned, code in ((16, ReasonCode.QUOTA_EXCEEDED), (32, ReasonCode.QUOTA_BEYOND_POTENTIAL)):
        made, queue = tree(world, owned=owned), world.queues["org/a"].id
        why = quota_reason(made, queue, H100, (made.available(queue, H100), 24))
        assert why.code is code


def test_where_nobody_knows_what_clusters_own_nothing_is_taken_off() -> None:
    world = a_world().queue("org", None).queue("org/a", 8)
    assert QuotaTree(world.queues.values()).account(world.queues["org/a"].id, H100).s == 8


def test_a_root_with_a_nominal_is_taken_at_its_word() -> None:
    world = a_world().queue("org", 4).queue("org/a", 8)
    assert numbers(world, {}, "org/a") == (12, 12), "whatever clusters own"


def test_two_roots_cannot_both_own_what_is_left() -> None:
    with pytest.raises(ImpossibleTree, match="both own"):
        tree(a_world().queue("org", None).queue("lab", None))


def test_unlimited_is_a_value() -> None:
    world = a_world().queue("org", UNLIMITED).queue("org/team", UNLIMITED)
    made = tree(world, {"org/team": UNLIMITED - 1})
    assert made.available(world.queues["org/team"].id, H100) == UNLIMITED
    assert made.potential(world.queues["org/team"].id, H100) == UNLIMITED


def test_usage_near_the_largest_number_saturates_and_is_never_negative() -> None:
    """T03: two summands past 2^63 leave usage at the largest value, not below 0."""
    world = a_world().queue("org", 8).queue("org/team", 8)
    made, team = tree(world), world.queues["org/team"].id
    made.charge(team, H100, 2**62)
    made.charge(team, H100, 2**62)
    made.charge(team, H100, 2**62)
    assert made.account(team, H100).u == UNLIMITED
    assert made.available(team, H100) < 0


def test_a_charge_has_one_leg_for_each_account_that_it_changes() -> None:
    world = three_teams(lend=4)
    made, team, org = tree(world), world.queues["org/a"].id, world.queues["org"].id
    assert made.charge(team, H100, 3) == (Leg(team, H100, 3),)
    assert made.charge(team, H100, 3) == (Leg(team, H100, 3), Leg(org, H100, 2))
    assert made.refund(team, H100, 3) == (Leg(team, H100, 3), Leg(org, H100, 2))
    assert made.refund(team, H100, 3) == (Leg(team, H100, 3),)


def test_a_cut_leaves_an_overdraft_that_only_stops_admission() -> None:
    world = a_world().queue("org", 0).queue("org/team", 8, borrow=2)
    made = tree(world, {"org/team": 16})
    rows = {row.queue: row for row in made.account_rows()}
    assert rows[world.queues["org"].id].overdraft == 8
    assert rows[world.queues["org/team"].id].overdraft == 6
    assert made.available(world.queues["org/team"].id, H100) == -8


def test_rows_rebuild_the_tree() -> None:
    world = three_teams(lend=4, borrow=6)
    made = tree(world, {"org/a": 5, "org/b": 9})
    again = QuotaTree.from_rows(made.account_rows())
    assert again.account_rows() == made.account_rows()
    for path in world.queues:
        assert again.available(world.queues[path].id, H100) == made.available(world.queues[path].id, H100)


def test_rollback_takes_charges_back() -> None:
    world = three_teams(lend=4)
    made, before = tree(world), tree(world).account_rows()
    mark = made.checkpoint()
    made.charge(world.queues["org/a"].id, H100, 9)
    made.refund(world.queues["org/a"].id, H100, 2)
    made.rollback(mark)
    assert made.account_rows() == before


def test_a_cycle_of_queues_is_refused() -> None:
    loop = [Queue(QueueId(1), "a", QueueId(2), 1, ()), Queue(QueueId(2), "b", QueueId(1), 1, ())]
    with pytest.raises(ImpossibleTree, match="cycle"):
        QuotaTree(loop)


def test_a_missing_parent_is_refused() -> None:
    with pytest.raises(ImpossibleTree, match="no parent"):
        QuotaTree([Queue(QueueId(1), "a/b", QueueId(2), 1, ())])


def test_depth_has_a_limit() -> None:
    world = a_world()
    for depth in range(1, DEPTH_MAX + 2):
        world.queue("/".join(["q"] * depth))
    with pytest.raises(ImpossibleTree, match="deeper"):
        tree(world)


@pytest.mark.parametrize(
    ("pods", "code"),
    [
        (2, None),
        (3, ReasonCode.NEVER_SATISFIABLE),  # 24 within quota, but the largest cluster owns 16
        (9, ReasonCode.QUOTA_BEYOND_POTENTIAL),
    ],
)
def test_a_gang_larger_than_its_queue_or_any_cluster_is_refused_with_numbers(
    pods: int, code: ReasonCode | None
) -> None:
    """T97: nothing of it runs; it is refused at submit."""
    world = a_world().queue("org", 64).queue("org/team", 0)
    workload = a_workload().asking(pods).build(world.queues["org/team"].id)
    totals: dict[str, dict[str, int]] = {H100: {"west": 16, "east": 8}}
    refusal = never_satisfiable(tree(world), workload.queue, workload.pod_sets, totals)
    assert (refusal and refusal.code) == code
    if refusal is not None:
        assert refusal.facts["wanted"] == pods * 8
        assert str(pods * 8) in refusal.sentence()


def test_a_flavor_that_nobody_carries_yet_is_waited_for() -> None:
    world = a_world().queue("org", None).queue("org/team", 0)
    workload = a_workload().asking(4).build(world.queues["org/team"].id)
    assert never_satisfiable(tree(world), workload.queue, workload.pod_sets, {A100: {"west": 64}}) is None


def test_two_pod_sets_of_one_flavor_are_refused_by_their_sum() -> None:
    world = a_world().queue("org", 12).queue("org/team", 0)
    one = a_workload().asking(1).build(world.queues["org/team"].id).pod_sets[0]
    workload = a_workload().with_sets(one, one).build(world.queues["org/team"].id)
    refusal = never_satisfiable(tree(world), workload.queue, workload.pod_sets, {H100: {"west": 64}})
    assert refusal is not None
    assert refusal.facts == {"queue": "org/team", "potential": 12, "flavor": H100, "wanted": 16}


def test_a_choice_of_flavors_is_refused_only_if_each_of_them_is() -> None:
    world = a_world().queue_of("org", Quota(H100, 8), Quota(A100, 64)).queue("org/team", 0)
    workload = a_workload().asking(4, 8, H100, A100).build(world.queues["org/team"].id)
    asked = tree(world), workload.queue, workload.pod_sets
    assert never_satisfiable(*asked, {H100: {"west": 64}, A100: {"west": 64}}) is None
    refusal = never_satisfiable(*asked, {H100: {"west": 64}, A100: {"west": 16}})
    assert refusal is not None
    assert refusal.sentence() == "org/team can never use more than 8 nvidia-h100-80gb, and 32 are asked for."
