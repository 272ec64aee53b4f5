"""Legs of placements, starts and ends, and new limits for old usage."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.core.facts.ledger import AccountKey, LedgerAccount, Side, TransferLeg
from controlplane.core.ids import FlavorName, QueueId
from controlplane.core.ledger import Book, relimited
from controlplane.core.tenancy import Queue, Quota

H100 = FlavorName("nvidia-h100-80gb")
ROOT, TEAM, OTHER = QueueId(1), QueueId(2), QueueId(3)
FREE, PENDING, POSTED = Side.FREE, Side.PENDING, Side.POSTED


def key(queue: QueueId) -> AccountKey:
    return AccountKey(queue, H100)


def leg(queue: QueueId, amount: int, source: Side, target: Side) -> TransferLeg:
    return TransferLeg(key(queue), amount, source, target)


def accounts(team_kept: int = 4) -> list[LedgerAccount]:
    """A root of 16 with two teams of 8; TEAM keeps some of its own."""
    return [
        LedgerAccount(key(ROOT), None, 16 - team_kept, 0, None),
        LedgerAccount(key(TEAM), ROOT, 8, team_kept, None),
        LedgerAccount(key(OTHER), ROOT, 8, 0, 4),
    ]


def test_a_placement_is_pending_where_it_is_charged_and_one_sum_above() -> None:
    assert Book(accounts()).place([(key(TEAM), 6)]) == (leg(TEAM, 6, FREE, PENDING), leg(ROOT, 2, FREE, POSTED))


def test_a_charge_stops_where_a_kept_part_absorbs_it() -> None:
    assert Book(accounts()).place([(key(TEAM), 4)]) == (leg(TEAM, 4, FREE, PENDING),)


def test_a_start_moves_nothing_above() -> None:
    assert Book(accounts()).post([(key(TEAM), 6)]) == (leg(TEAM, 6, PENDING, POSTED),)


def test_what_is_given_back_passes_up_as_far_as_usage_exceeds_the_kept_part() -> None:
    book = Book(accounts())
    book.place([(key(TEAM), 6)])
    assert book.void([(key(TEAM), 3)]) == (leg(TEAM, 3, PENDING, FREE), leg(ROOT, 2, POSTED, FREE))
    assert book.reverse([(key(TEAM), 3)]) == (leg(TEAM, 3, POSTED, FREE),)


def test_giving_back_what_was_never_charged_is_a_broken_invariant() -> None:
    with pytest.raises(AssertionError, match="never charged"):
        Book(accounts()).void([(key(TEAM), 1)])


def test_borrowing_is_limited_by_the_queue_and_by_what_others_use() -> None:
    book = Book(accounts())
    assert book.available(key(OTHER)) == 12
    book.place([(key(TEAM), 8)])
    assert book.available(key(OTHER)) == 8


def queues(nominal: int = 8, lend: int | None = None) -> list[Queue]:
    return [
        Queue(ROOT, "org", None, 1, (Quota(H100, 0),)),
        Queue(TEAM, "org/team", ROOT, 1, (Quota(H100, nominal, None, lend),)),
        Queue(OTHER, "org/other", ROOT, 1, (Quota(H100, 8),)),
    ]


def test_a_cut_raises_overdraft_to_what_is_in_use_and_stops_admission() -> None:
    before = [
        LedgerAccount(key(ROOT), None, 16, 0, None, posted=14),
        LedgerAccount(key(TEAM), ROOT, 8, 0, None, pending=2, posted=4),
        LedgerAccount(key(OTHER), ROOT, 8, 0, None, posted=8),
    ]
    after, legs = relimited(before, queues(nominal=0), {}, {key(TEAM): 6, key(OTHER): 8})
    root = next(account for account in after if account.key == key(ROOT))
    assert (root.subtree, root.overdraft, root.posted) == (8, 6, 14)
    assert legs == ()
    assert Book(after if len(after) == 3 else [*after, before[2]]).available(key(TEAM)) < 0


def test_a_new_kept_part_moves_what_passes_up_with_legs_that_say_so() -> None:
    before = [
        LedgerAccount(key(ROOT), None, 16, 0, None, posted=14),
        LedgerAccount(key(TEAM), ROOT, 8, 0, None, pending=2, posted=4),
        LedgerAccount(key(OTHER), ROOT, 8, 0, None, posted=8),
    ]
    after, legs = relimited(before, queues(lend=3), {}, {key(TEAM): 6, key(OTHER): 8})
    assert legs == (leg(ROOT, 5, POSTED, FREE),)
    assert {account.key: (account.kept, account.pending, account.posted) for account in after} == {
        key(ROOT): (0, 0, 9),
        key(TEAM): (5, 2, 4),
    }
    assert relimited(_merged(before, after), queues(lend=3), {}, {key(TEAM): 6, key(OTHER): 8}) == ((), ())


def _merged(before: list[LedgerAccount], after: tuple[LedgerAccount, ...]) -> list[LedgerAccount]:
    return list(({account.key: account for account in before} | {account.key: account for account in after}).values())


@given(st.lists(st.tuples(st.sampled_from([TEAM, OTHER]), st.integers(1, 9)), max_size=12), st.randoms())
@settings(max_examples=100, deadline=None)
def test_what_is_placed_and_given_back_in_any_order_leaves_every_account_as_it_was(
    charges: list[tuple[QueueId, int]], chance: Random
) -> None:
    book = Book(accounts())
    moved: dict[tuple[AccountKey, Side], int] = {}

    def note(legs: tuple[TransferLeg, ...]) -> None:
        for each in legs:
            for side, sign in ((each.source, -1), (each.target, 1)):
                moved[each.key, side] = moved.get((each.key, side), 0) + sign * each.amount
                assert side is FREE or moved[each.key, side] >= 0

    for queue, amount in charges:
        note(book.place([(key(queue), amount)]))
    chance.shuffle(charges)
    for number, (queue, amount) in enumerate(charges):
        if number % 2:
            note(book.void([(key(queue), amount)]))
        else:
            note(book.post([(key(queue), amount)]))
            note(book.reverse([(key(queue), amount)]))
    assert set(moved.values()) <= {0}
