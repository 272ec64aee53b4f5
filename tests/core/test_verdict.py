"""Whose fault a bad end was: an exit code is not a verdict."""

from datetime import datetime, timedelta

import pytest

from controlplane.core.ids import NodeId
from controlplane.core.verdict import DeviceTrouble, Fault, NodeTrouble, PodEnd, judge
from tests.builders.core import NOW

WINDOW = timedelta(minutes=5)


def at(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


def end(rank: int, seconds: int, exit_code: int = 1, *, is_disrupted: bool = False) -> PodEnd:
    return PodEnd(rank, at(seconds), NodeId(rank), exit_code, is_disrupted, "node drain" if is_disrupted else "")


def lost(seconds: int) -> NodeTrouble:
    return NodeTrouble(NodeId(7), "n7", "east", at(seconds))


def device(seconds: int, *, is_fatal: bool) -> DeviceTrouble:
    return DeviceTrouble(NodeId(3), "n3", at(seconds), "Xid 79", is_fatal)


@pytest.mark.parametrize(
    ("ends", "nodes", "devices", "now", "fault", "sentence"),
    [
        ([end(3, 0), end(0, 2)], [], [], 10, Fault.UNDECIDED, None),
        ([end(3, 0), end(0, 2)], [], [], 299, Fault.UNDECIDED, None),
        ([end(3, 0, 137), end(0, 2)], [], [], 300, Fault.PROGRAM, "Rank 3 ended with exit code 137."),
        ([end(3, 0), end(0, 2)], [lost(60)], [], 61, Fault.INFRASTRUCTURE, "Node n7 of east was lost."),
        ([end(3, 0), end(0, 2)], [lost(-30)], [], 10, Fault.INFRASTRUCTURE, "Node n7 of east was lost."),
        ([end(3, 0)], [lost(301)], [], 400, Fault.PROGRAM, "Rank 3 ended with exit code 1."),
        ([end(3, 0)], [lost(-301)], [], 400, Fault.PROGRAM, "Rank 3 ended with exit code 1."),
        ([end(3, 0)], [], [device(-5, is_fatal=True)], 1, Fault.INFRASTRUCTURE, "A device of node n3 failed: Xid 79."),
        ([end(3, 0)], [], [device(-5, is_fatal=False)], 300, Fault.PROGRAM, "Rank 3 ended with exit code 1."),
        (
            [end(3, 0), end(1, 40, is_disrupted=True)],
            [],
            [],
            41,
            Fault.INFRASTRUCTURE,
            "Its cluster took rank 1 away: node drain.",
        ),
        ([], [lost(0)], [], 5, Fault.INFRASTRUCTURE, "Node n7 of east was lost."),
        ([], [], [], 5, Fault.UNDECIDED, None),
    ],
)
def test_the_first_infrastructure_signal_within_the_window_decides(
    ends: list[PodEnd],
    nodes: list[NodeTrouble],
    devices: list[DeviceTrouble],
    now: int,
    fault: Fault,
    sentence: str | None,
) -> None:
    verdict = judge(ends, nodes, devices, WINDOW, at(now))
    assert verdict.fault is fault
    assert (verdict.reason and verdict.reason.sentence()) == sentence


def test_what_is_undecided_says_until_when() -> None:
    assert judge([end(3, 0)], [], [], WINDOW, at(10)).until == at(300)


def test_an_exit_without_a_code_is_named_as_such() -> None:
    verdict = judge([PodEnd(2, NOW, None)], [], [], WINDOW, at(300))
    assert verdict.reason is not None
    assert verdict.reason.sentence() == "Rank 2 ended with exit code unknown."


def test_the_order_of_signals_does_not_matter() -> None:
    ends = [end(0, 2), end(3, 0)]
    nodes = [lost(70), NodeTrouble(NodeId(4), "n4", "east", at(60))]
    assert judge(ends, nodes, [], WINDOW, at(90)) == judge(ends[::-1], nodes[::-1], [], WINDOW, at(90))
