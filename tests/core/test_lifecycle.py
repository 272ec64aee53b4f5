"""The three transition tables: nothing is written that is not in them, and nobody is stuck."""

from enum import StrEnum
from pathlib import Path

import pytest

from controlplane.core.lifecycle import (
    ATTEMPT,
    CLUSTER,
    FINAL_WORKLOAD,
    LIVE_ATTEMPT,
    WORKLOAD,
    AttemptEvent,
    AttemptState,
    ClusterEvent,
    ClusterState,
    ImpossibleTransition,
    WorkloadEvent,
    WorkloadState,
    advance_attempt,
    advance_cluster,
    advance_workload,
)

README = Path(__file__).parents[2] / "controlplane" / "core" / "README.md"


def reachable(table: dict[tuple[StrEnum, StrEnum], StrEnum], start: StrEnum) -> set[StrEnum]:
    found, new = {start}, {start}
    while new:
        new = {after for (state, _), after in table.items() if state in new} - found
        found |= new
    return found


def test_a_final_workload_never_lives_again() -> None:
    assert not [state for state, _ in WORKLOAD if state in FINAL_WORKLOAD]
    for state in FINAL_WORKLOAD:
        with pytest.raises(ImpossibleTransition, match=f"cancel_asked while {state}"):
            advance_workload(state, WorkloadEvent.CANCEL_ASKED)


def test_an_ended_attempt_is_over() -> None:
    assert not [state for state, _ in ATTEMPT if state not in LIVE_ATTEMPT]
    with pytest.raises(ImpossibleTransition):
        advance_attempt(AttemptState.ENDED, AttemptEvent.LOST)


def test_every_live_state_leads_to_an_end() -> None:
    """T94: there is no absorbing state that is not final."""
    for state in set(WorkloadState) - FINAL_WORKLOAD:
        assert reachable(dict(WORKLOAD), state) & FINAL_WORKLOAD  # type: ignore[arg-type]  # enums are invariant
    for attempt in LIVE_ATTEMPT:
        assert AttemptState.ENDED in reachable(dict(ATTEMPT), attempt)  # type: ignore[arg-type]  # enums are invariant
    for cluster in ClusterState:
        assert ClusterState.REMOVED in reachable(dict(CLUSTER), cluster)  # type: ignore[arg-type]  # enums are invariant


def test_the_user_s_word_stands_against_a_late_success() -> None:
    assert advance_workload(WorkloadState.CANCELLING, WorkloadEvent.COMPLETED) is WorkloadState.CANCELLED


def test_a_cluster_that_was_away_is_ready_when_it_is_heard() -> None:
    for state in (ClusterState.ACCEPTED, ClusterState.SUSPECT, ClusterState.UNREACHABLE):
        assert advance_cluster(state, ClusterEvent.HEARD) is ClusterState.READY


def test_the_readme_shows_the_tables_as_they_are() -> None:
    text = README.read_text(encoding="utf-8")
    for table in (WORKLOAD, ATTEMPT, CLUSTER):
        assert drawn(table) in text, f"put this into {README.name}:\n{drawn(table)}"  # type: ignore[arg-type]  # enums are invariant


def drawn(table: dict[tuple[StrEnum, StrEnum], StrEnum]) -> str:
    """One line per state: what can happen, and what follows."""
    states = dict.fromkeys(state for state, _ in table)
    lines = ["| from | event → to |", "|---|---|"]
    for state in states:
        events = [f"{event} → {after}" for (before, event), after in table.items() if before is state]
        lines.append(f"| {state} | {', '.join(events)} |")
    return "\n".join(lines)
