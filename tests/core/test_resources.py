"""Amounts saturate; "unlimited" is a value."""

import pytest

from controlplane.core.resources import AMOUNT_MAX, UNLIMITED, ImpossibleAmount, add, checked, subtract, times, total


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (1, 2, 3),
        (UNLIMITED, 1, UNLIMITED),
        (UNLIMITED, -UNLIMITED, UNLIMITED),
        (UNLIMITED - 1, 2, UNLIMITED),
        (-UNLIMITED, -1, -UNLIMITED),
    ],
)
def test_a_sum_stops_at_unlimited(left: int, right: int, result: int) -> None:
    assert add(left, right) == result


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [(3, 1, 2), (UNLIMITED, UNLIMITED, UNLIMITED), (0, UNLIMITED, -UNLIMITED), (-5, UNLIMITED, -UNLIMITED)],
)
def test_a_difference_stops_at_unlimited(left: int, right: int, result: int) -> None:
    assert subtract(left, right) == result


def test_device_counts_near_the_largest_number_never_turn_negative() -> None:
    """T03: a device count near 2^63, or two summands past it, is refused; totals saturate."""
    assert times(2**62, 4) == UNLIMITED
    assert total([2**62, 2**62, 2**62]) == UNLIMITED
    assert checked(AMOUNT_MAX) == AMOUNT_MAX
    for amount in (2**63 - 1, AMOUNT_MAX + 1, -1):
        with pytest.raises(ImpossibleAmount, match="is not between"):
            checked(amount)
