"""What counts of what clusters own, where a root's quota is what they own: it rises at once and falls damped.

An agent or a probe that says from one moment to the next that devices are not there must not cut everybody's quota at
once: what counts of one Flavor in one Cluster falls along a line, by Policy's part of what it was, per hour, until it
meets what is told. What is placed rests on what is there, so nobody is given devices that only count. A Cluster that
somebody removes and a node that is told to be gone count no more at once; what is silent owns what it owned.
"""

from dataclasses import dataclass
from datetime import datetime

from controlplane.core.decay import microseconds

_HOUR = 3_600 * 1_000_000
_WHOLE = 1_000


@dataclass(frozen=True, slots=True)
class Counted:
    """Units of one Flavor in one Cluster that count. Where fewer are told: falling from `peak` since then."""

    units: int
    peak: int
    since: datetime | None = None  # None: it does not fall


def settled(before: Counted | None, told: int, permille_per_hour: int, now: datetime) -> Counted:
    """What counts now that `told` is what the Cluster is said to own; the same however often it is asked."""
    if before is None or told >= before.units:
        return Counted(told, told)
    if before.since is None:
        return Counted(before.units, before.units, now)
    gone = before.peak * permille_per_hour * max(0, microseconds(now - before.since)) // (_WHOLE * _HOUR)
    line = before.peak - gone
    return Counted(told, told) if line <= told else Counted(min(before.units, line), before.peak, before.since)
