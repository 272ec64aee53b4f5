"""Why an Attempt ended badly: the infrastructure's fault, the program's, or not to be said yet.

An exit code is not a verdict. When one node dies, the other ranks abort seconds later and the node's
condition follows a minute after that; so a bad end stays undecided until a first infrastructure signal or
until the evidence window has passed. What follows from a verdict (requeue, or one attempt less) is
`services.attempts`'.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from controlplane.core.ids import NodeId
from controlplane.core.reasons import Fact, Reason, ReasonCode, reason


class Fault(StrEnum):
    """Whose fault a bad end was."""

    INFRASTRUCTURE = "infrastructure"  # requeued in its old place, no attempt is counted
    PROGRAM = "program"  # counts against maxAttempts
    UNDECIDED = "undecided"  # ask again at `until`


@dataclass(frozen=True, slots=True)
class PodEnd:
    """One pod that ended badly. `is_disrupted`: it carries the condition DisruptionTarget."""

    rank: int
    at: datetime
    node: NodeId | None
    exit_code: int | None = None
    is_disrupted: bool = False
    words: str = ""  # the condition's own message


@dataclass(frozen=True, slots=True)
class NodeTrouble:
    """A node of the Attempt that turned not ready, went away or was taken out, and when that was seen."""

    node: NodeId
    name: str
    cluster: str
    at: datetime


@dataclass(frozen=True, slots=True)
class DeviceTrouble:
    """A device's signal. `is_fatal`: the device is at fault; a program can cause the others itself."""

    node: NodeId
    name: str
    at: datetime
    words: str
    is_fatal: bool


@dataclass(frozen=True, slots=True)
class EndVerdict:
    """Whose fault, and why. Undecided ones have no Reason and say until when."""

    fault: Fault
    reason: Reason | None = None
    until: datetime | None = None


def judge(
    ends: Sequence[PodEnd],
    nodes: Iterable[NodeTrouble],
    devices: Iterable[DeviceTrouble],
    window: timedelta,
    now: datetime,
) -> EndVerdict:
    """Judge an Attempt by its pods' ends and by what is known of its own nodes and devices."""
    if not ends:
        return _by_signal(nodes, devices, now - window, now) or EndVerdict(Fault.UNDECIDED, until=now + window)
    ordered = sorted(ends, key=lambda end: (end.at, end.rank))
    first = ordered[0]
    since, until = first.at - window, first.at + window
    found = _by_signal(nodes, devices, since, until) or _by_disruption([end for end in ordered if end.at <= until])
    if found is not None:
        return found
    if now < first.at + window:
        return EndVerdict(Fault.UNDECIDED, until=first.at + window)
    facts: dict[str, Fact] = {"rank": first.rank, "exit_code": "unknown"}
    if first.exit_code is not None:
        facts["exit_code"] = first.exit_code
    return EndVerdict(Fault.PROGRAM, reason(ReasonCode.PROGRAM_FAILED, **facts))


def _by_signal(
    nodes: Iterable[NodeTrouble], devices: Iterable[DeviceTrouble], since: datetime, until: datetime
) -> EndVerdict | None:
    """The first signal within the window decides; a node's goes before its devices'."""
    for trouble in sorted(nodes, key=lambda each: (each.at, each.node)):
        if since <= trouble.at <= until:
            lost = reason(ReasonCode.NODE_LOST, node=trouble.name, cluster=trouble.cluster)
            return EndVerdict(Fault.INFRASTRUCTURE, lost)
    for signal in sorted(devices, key=lambda each: (each.at, each.node, each.words)):
        if signal.is_fatal and since <= signal.at <= until:
            failed = reason(ReasonCode.DEVICE_FAILED, node=signal.name, words=signal.words)
            return EndVerdict(Fault.INFRASTRUCTURE, failed)
    return None


def _by_disruption(ordered: Sequence[PodEnd]) -> EndVerdict | None:
    """A pod that its cluster took away decides, also after others: they fail when a peer falls silent."""
    taken = next((end for end in ordered if end.is_disrupted), None)
    if taken is None:
        return None
    words = taken.words or "it was disrupted"
    return EndVerdict(Fault.INFRASTRUCTURE, reason(ReasonCode.DISRUPTED, rank=taken.rank, words=words))
