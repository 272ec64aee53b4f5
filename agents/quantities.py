"""Kubernetes quantities as whole numbers: what "8", "1k", "2Ki" and "8000m" say, and that "0.5" cards do not exist.

A text that is not a quantity is None, never zero and never an exception: it comes from clusters that we do not own.
"""

import re
from decimal import Decimal

QUANTITY = re.compile(
    r"\+?(?P<digits>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"
)
DIGITS = re.compile(r"[0-9]{1,18}")
COUNT_MAX = 2**53
CHARACTERS_MAX = 64
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def exact(text: object) -> Decimal | None:
    """The number that a quantity stands for; None for anything else, negative numbers included."""
    if isinstance(text, int) and not isinstance(text, bool):
        return Decimal(text) if text >= 0 else None
    if not isinstance(text, str) or len(text) > CHARACTERS_MAX or not text.isascii():
        return None
    found = QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, suffix = Decimal(found["digits"]), found["suffix"] or ""
    if suffix in _BINARY:
        return number * (1 << _BINARY[suffix])
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:])) if suffix else number


def count(text: object) -> int | None:
    """Of an extended resource: whole or nothing. Rounding half a card up would sell what is not there."""
    number = exact(text)
    if number is None or number != number.to_integral_value() or number > COUNT_MAX:
        return None
    return int(number)


def milli(text: object) -> int:
    """CPU in thousandths, rounded up as the API server does; 0 where it says nothing."""
    return _rounded_up(exact(text), 1000)


def size_bytes(text: object) -> int:
    """Memory in bytes, rounded up; 0 where it says nothing."""
    return _rounded_up(exact(text), 1)


def label_number(text: object) -> int | None:
    """Label values are no quantities: plain decimal digits, or unknown."""
    return int(text) if isinstance(text, str) and DIGITS.fullmatch(text) else None


def _rounded_up(number: Decimal | None, scale: int) -> int:
    if number is None:
        return 0
    return min(int((number * scale).to_integral_value(rounding="ROUND_CEILING")), COUNT_MAX)
