"""Integer amounts that saturate instead of overflowing, and "unlimited" as a value.

Nothing here knows what is counted; which amounts a Queue may use is decided in `quota`.
"""

from collections.abc import Iterable

UNLIMITED = 2**63 - 1  # the largest value of a database column; sums stop here and never wrap
AMOUNT_MAX = 2**53 - 1  # the largest amount anyone may ask for: JSON readers keep it exact


class ImpossibleAmount(ValueError):
    """An amount is negative or larger than anything that could be meant."""


def checked(amount: int) -> int:
    """Return `amount` if somebody may ask for it; raise ImpossibleAmount otherwise."""
    if not 0 <= amount <= AMOUNT_MAX:
        raise ImpossibleAmount(f"{amount} is not between 0 and {AMOUNT_MAX}")
    return amount


def add(left: int, right: int) -> int:
    """Sum that stops at plus or minus UNLIMITED; what is unlimited stays so."""
    if left >= UNLIMITED or right >= UNLIMITED:
        return UNLIMITED
    return max(-UNLIMITED, min(UNLIMITED, left + right))


def subtract(left: int, right: int) -> int:
    """Difference that stops at plus or minus UNLIMITED; what is unlimited stays so."""
    if left >= UNLIMITED:
        return UNLIMITED
    return max(-UNLIMITED, min(UNLIMITED, left - right))


def times(amount: int, count: int) -> int:
    """Product that stops at UNLIMITED."""
    return min(UNLIMITED, amount * count)


def total(amounts: Iterable[int]) -> int:
    """Sum of many amounts that stops at UNLIMITED."""
    result = 0
    for amount in amounts:
        result = add(result, amount)
    return result
