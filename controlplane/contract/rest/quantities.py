"""Durations ("12h", "1h30m") and Kubernetes quantities ("500m", "2Ti") as whole seconds, millicores and bytes.

Integers only: an amount that is no whole number of the unit is rounded up, never down.
"""

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from controlplane.contract.rest.common import refusal

SECONDS_MAX = 366 * 86_400
AMOUNT_MAX = 2**62

_DURATION = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?")
_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_FACTORS = {
    "": Decimal(1), "m": Decimal("0.001"),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50),
}  # fmt: skip


def seconds(value: object) -> int:
    """Whole seconds of "1h30m", or of a plain number of seconds."""
    if isinstance(value, int) and not isinstance(value, bool):
        total = value
    else:
        match = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
        if match is None:
            raise refusal("invalid-quantity", "a duration is written like 90s, 5m, 12h, 1h30m or 2d")
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
        total = days * 86_400 + hours * 3_600 + minutes * 60 + rest
    if not 1 <= total <= SECONDS_MAX:
        raise refusal("invalid-quantity", "a duration is between 1 s and 366 days")
    return total


def as_duration(total: int) -> str:
    """How a document writes it."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if total % size == 0:
            return f"{total // size}{unit}"
    return f"{total}s"


def amount(value: object, per_unit: int) -> int:
    """A Kubernetes quantity in parts of which one unit has `per_unit`; rounded up."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise refusal("invalid-quantity", "a quantity is written like 4, 500m, 16Gi or 2Ti")
    exact = Decimal(match[1]) * _FACTORS[match[2] or ""] * per_unit
    rounded = int(exact) + (exact != int(exact))
    if rounded > AMOUNT_MAX:
        raise refusal("invalid-quantity", "the quantity is too large")
    return rounded


def cpu_milli(value: object) -> int:
    """Millicores of a CPU quantity."""
    return amount(value, 1_000)


def memory_bytes(value: object) -> int:
    """Bytes of a memory quantity."""
    return amount(value, 1)


def whole_units(value: object) -> int:
    """Units of a device resource; a fraction or a negative number is refused."""
    units = amount(value, 1_000)
    if units % 1_000:
        raise refusal("invalid-quantity", "devices are counted in whole units")
    return units // 1_000


def _written(pattern: str, **bounds: int) -> WithJsonSchema:
    """How people write it, for readers of the JSON Schema."""
    number: dict[str, object] = {"type": "integer", **bounds}
    return WithJsonSchema({"anyOf": [{"type": "string", "pattern": f"^{pattern}$"}, number]}, mode="validation")


_AMOUNT = _written(_QUANTITY.pattern.replace("?:", "").replace(r"\d", "[0-9]"), minimum=0)
Duration = Annotated[
    int,
    BeforeValidator(seconds),
    PlainSerializer(as_duration, return_type=str, when_used="json"),
    _written("([0-9]{1,6}d)?([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,9}s)?", minimum=1, maximum=SECONDS_MAX),
]
CpuMilli = Annotated[int, BeforeValidator(cpu_milli), _AMOUNT]
MemoryBytes = Annotated[int, BeforeValidator(memory_bytes), _AMOUNT]
