"""Halves amounts over time, in integers: a step of any length loses nothing, and no step is so small that it is none.

Amounts are in units times microseconds (of a Flavor: device-microseconds). Times are whole microseconds. 2 to the power
of a fraction is a product of entries of one table, one per bit of the fraction, so that every machine gets the same.
"""

from datetime import timedelta
from functools import lru_cache
from math import isqrt

ONE = 1 << 96  # the fixed point
_BITS = 64  # of the fraction of a half-life: a microsecond of ten years is not lost
_PER_LN2 = 1_442_695_040_888_963_407, 10**18  # 1 / ln 2: how many half-lives a use for ever amounts to
_MICROSECOND = timedelta(microseconds=1)


def _table() -> tuple[int, ...]:
    """2 to the power of -1/2, -1/4, -1/8 …"""
    entries, at = list[int](), ONE // 2
    for _ in range(_BITS):
        at = isqrt(at * ONE)
        entries.append(at)
    return tuple(entries)


_TABLE = _table()


def microseconds(span: timedelta) -> int:
    """A span as an integer."""
    return span // _MICROSECOND


@lru_cache(maxsize=4096)
def left_after(elapsed: int, half_life: int) -> int:
    """The part of anything, in ONEs, that is left after `elapsed` microseconds; both above or equal 0."""
    halvings = (elapsed << _BITS) // half_life
    left = ONE >> min(halvings >> _BITS, ONE.bit_length())
    fraction = halvings & ((1 << _BITS) - 1)
    for bit, entry in enumerate(_TABLE):
        if fraction >> (_BITS - 1 - bit) & 1:
            left = left * entry // ONE
    return left


def decayed(amount: int, elapsed: int, half_life: int) -> int:
    """What is left of an amount, rounded to the nearest."""
    return (amount * left_after(elapsed, half_life) + ONE // 2) // ONE


def window(half_life: int) -> int:
    """Microseconds that one unit in use for ever amounts to: a half-life over ln 2."""
    numerator, denominator = _PER_LN2
    return half_life * numerator // denominator


def gathered(units: int, elapsed: int, half_life: int) -> int:
    """What `units` in use for `elapsed` amount to at its end, the beginning decayed already."""
    return (units * window(half_life) * (ONE - left_after(elapsed, half_life)) + ONE // 2) // ONE
