"""Laws of the quota tree, on generated trees and any order of charges."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.quota import QuotaTree
from tests.builders.core import H100, AWorld
from tests.laws.worlds import FLAVORS, LAW, LEAVES, trees

charges = st.lists(st.tuples(st.sampled_from(LEAVES), st.sampled_from(FLAVORS), st.integers(0, 20)), max_size=12)
OWNED: Mapping[FlavorName, int] = dict.fromkeys(FLAVORS, 64)


def tree_of(world: AWorld, usage: Mapping[tuple[QueueId, FlavorName], int] | None = None) -> QuotaTree:
    return QuotaTree(world.queues.values(), usage, OWNED)


def numbers(tree: QuotaTree) -> dict[tuple[QueueId, FlavorName], int]:
    return {(row.queue, row.flavor): row.u for row in tree.account_rows() if row.u}


@LAW
@given(trees(), charges, charges)
def test_charge_then_refund_is_nothing(
    world: AWorld, before: list[tuple[str, FlavorName, int]], then: list[tuple[str, FlavorName, int]]
) -> None:
    tree = tree_of(world)
    for path, flavor, amount in before:
        tree.charge(world.queues[path].id, flavor, amount)
    was = numbers(tree)
    given_out = [tree.charge(world.queues[path].id, flavor, amount) for path, flavor, amount in then]
    taken_back = [tree.refund(world.queues[path].id, flavor, amount) for path, flavor, amount in reversed(then)]
    assert numbers(tree) == was
    assert taken_back == given_out[::-1], "in reverse, each refund has the legs of its charge"


@LAW
@given(trees(), charges, st.randoms())
def test_usage_equals_its_recomputation_in_whatever_order_it_came(
    world: AWorld, steps: list[tuple[str, FlavorName, int]], chance: object
) -> None:
    tree = tree_of(world)
    leaf: dict[tuple[QueueId, FlavorName], int] = {}
    for path, flavor, amount in steps:
        key = world.queues[path].id, flavor
        back = min(leaf.get(key, 0), amount // 2)
        tree.charge(*key, amount)
        tree.refund(*key, back)
        leaf[key] = leaf.get(key, 0) + amount - back
    assert numbers(tree) == numbers(tree_of(world, leaf))
    for row in tree.account_rows():
        children = [each for each in tree.account_rows() if each.parent == row.queue and each.flavor == row.flavor]
        if children:
            own = leaf.get((row.queue, row.flavor), 0)
            assert row.u == own + sum(max(0, child.u - child.k) for child in children)


@LAW
@given(trees(), st.lists(st.integers(0, 200), min_size=1, max_size=3))
def test_a_root_without_nominal_has_what_is_left_and_its_subtree_adds_up_to_it(world: AWorld, owned: list[int]) -> None:
    """Whatever was owned before: nothing that was taken off stays away, and nothing is taken off twice."""
    tree = QuotaTree(world.queues.values(), {}, OWNED)
    for units in owned:
        tree.own(dict.fromkeys(FLAVORS, units))
    fresh = QuotaTree(world.queues.values(), {}, dict.fromkeys(FLAVORS, owned[-1]))
    assert tree.account_rows() == fresh.account_rows()
    rows = {(row.queue, row.flavor): row for row in fresh.account_rows()}
    for queue in world.queues.values():
        for quota in queue.quotas:
            row = rows[queue.id, quota.flavor]
            lent = sum(
                each.s - each.k for each in rows.values() if (each.parent, each.flavor) == (queue.id, row.flavor)
            )
            assert all(each.s >= each.k >= 0 for each in rows.values())
            if quota.nominal is None:
                others = sum(
                    each.s for each in rows.values()
                    if each.parent is None and each.flavor == row.flavor and each.queue != queue.id
                )  # fmt: skip
                assert row.s == max(0, owned[-1] - others)
            else:
                assert 0 <= row.s - lent <= quota.nominal


@LAW
@given(trees(), charges)
def test_who_takes_only_what_is_available_never_passes_a_limit(
    world: AWorld, wishes: list[tuple[str, FlavorName, int]]
) -> None:
    tree = tree_of(world)
    for path, flavor, amount in wishes:
        queue = world.queues[path].id
        assert tree.available(queue, flavor) <= tree.potential(queue, flavor)
        if amount <= tree.available(queue, flavor):
            tree.charge(queue, flavor, amount)
    for row in tree.account_rows():
        assert row.u >= 0
        assert row.overdraft == 0
        assert row.parent is not None or row.u <= row.s
        assert row.b is None or row.u <= row.s + row.b


@LAW
@given(trees(), charges)
def test_available_is_exact(world: AWorld, wishes: list[tuple[str, FlavorName, int]]) -> None:
    """One unit more than available would pass a limit somewhere; what is available passes none."""
    tree = tree_of(world)
    for path, flavor, amount in wishes:
        queue = world.queues[path].id
        room = tree.available(queue, flavor)
        tree.charge(queue, flavor, min(amount, room))
        mark = tree.checkpoint()
        tree.charge(queue, flavor, tree.available(queue, flavor) + 1)
        assert any(row.overdraft for row in tree.account_rows())
        tree.rollback(mark)
        assert not any(row.overdraft for row in tree.account_rows())


@LAW
@given(trees(), charges)
def test_rows_are_the_whole_tree(world: AWorld, steps: list[tuple[str, FlavorName, int]]) -> None:
    tree = tree_of(world)
    for path, flavor, amount in steps:
        tree.charge(world.queues[path].id, flavor, amount)
    again = QuotaTree.from_rows(tree.account_rows())
    for path, flavor, amount in steps:
        queue = world.queues[path].id
        assert again.available(queue, flavor) == tree.available(queue, flavor)
        assert again.refund(queue, flavor, amount) == tree.refund(queue, flavor, amount)


@LAW
@given(trees())
def test_the_order_of_queues_does_not_matter(world: AWorld) -> None:
    backwards = QuotaTree(reversed(list(world.queues.values())), {}, OWNED)
    assert backwards.account_rows() == tree_of(world).account_rows()
    assert H100 in FLAVORS
