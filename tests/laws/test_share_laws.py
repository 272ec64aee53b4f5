"""Laws of fair shares: an oracle that knows nothing of the quota tree agrees, and what is shared out can be used."""

import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.fairshare import Contest
from controlplane.core.ids import QueueId
from tests.builders.core import H100, a_workload
from tests.laws.worlds import LAW
from tests.support.fair_shares import RandomTree

trees = st.integers(0, 10**9).map(lambda seed: RandomTree(seed, H100))


@LAW
@given(trees)
def test_shares_equal_those_of_an_independent_oracle_exactly(world: RandomTree) -> None:
    assert world.shares() == world.expected()


@LAW
@given(trees)
def test_everybody_may_use_their_share_at_once_and_nobody_has_more_than_they_want(world: RandomTree) -> None:
    """Charged for what its own work got, rounded down, no account passes a limit."""
    own = _own_shares(world)
    assert all(0 <= own[path] <= world.demand.get(path, 0) for path in own)
    tree = world.tree({path: math.floor(units) for path, units in own.items()})
    assert not any(row.overdraft for row in tree.account_rows())


@LAW
@given(trees)
def test_nothing_is_left_over_that_somebody_wants_and_may_use(world: RandomTree) -> None:
    """Whoever has less than it wants could not use one unit more: its limits or somebody's share are in the way."""
    own = _own_shares(world)
    rounded = {path: math.ceil(units) for path, units in own.items()}
    tree = world.tree(rounded)
    for path, units in own.items():
        if units < world.demand.get(path, 0):
            assert tree.available(world.queues[path].id, H100) < 1


@LAW
@given(trees, st.randoms(use_true_random=False))
def test_the_order_of_queues_and_wishes_does_not_matter(world: RandomTree, chance: object) -> None:
    before = world.shares()
    world.queues = dict(reversed(world.queues.items()))
    world.demand = dict(reversed(world.demand.items()))
    assert world.shares() == before


@LAW
@given(trees)
def test_a_queue_has_its_own_or_what_it_wants_whatever_others_want(world: RandomTree) -> None:
    """The nominal of every Queue is safe: asking alone, it gets no less up to what it owns."""
    tree, shares = world.tree(), world.shares()
    for path, units in world.demand.items():
        if _below(world, path):
            continue
        account = tree.account(world.queues[path].id, H100)
        most = account.s if account.b is None else account.s + account.b
        assert shares[path] >= min(units, account.s, most)


@LAW
@given(trees)
def test_turns_of_single_devices_end_where_fair_shares_say(world: RandomTree) -> None:
    """The tournament knows nothing of shares: it gives device by device, and each leaf ends within two of its share."""
    leaves = [path for path in world.queues if not _below(world, path)]
    world.demand = {path: units for path, units in world.demand.items() if path in leaves}
    jobs = [
        a_workload(f"{path}-{number}").in_queue(path).asking(1, 1).build(world.queues[path].id)
        for path, units in world.demand.items()
        for number in range(units)
    ]
    tree, used = world.tree(), Counter[QueueId]()
    contest = Contest(tree, jobs)
    while (workload := contest.next()) is not None:
        if tree.available(workload.queue, H100) > 0:
            tree.charge(workload.queue, H100, 1)
            used[workload.queue] += 1
    shares = world.shares()
    assert {path: used[world.queues[path].id] for path in leaves} == {
        path: pytest.approx(shares[path], abs=1.99) for path in leaves
    }


def _own_shares(world: RandomTree) -> dict[str, Fraction]:
    """What each Queue's own work has of its share."""
    shares = world.shares()
    return {path: shares[path] - sum(shares[each] for each in _below(world, path)) for path in shares}


def _below(world: RandomTree, path: str) -> list[str]:
    return [each for each in world.queues if each.rpartition("/")[0] == path]
