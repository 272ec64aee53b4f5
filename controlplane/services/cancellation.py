"""Cancel a Workload: at once while it waits, by ordering its Attempt to stop where one lives.

The stop itself is the agents' to carry out and to prove (`services.attempts`); tombstones are sent until it is.
"""

from dataclasses import replace

from controlplane.core.facts.attempts import AttemptFact, NewDirective, PlacementChange, PlacementState
from controlplane.core.facts.workloads import WorkloadChange
from controlplane.core.ids import ClusterId, WorkloadId
from controlplane.core.lifecycle import (
    FINAL_WORKLOAD,
    AttemptEvent,
    AttemptState,
    Outcome,
    WorkloadEvent,
    WorkloadState,
    advance_attempt,
    advance_workload,
)
from controlplane.services import authz
from controlplane.services.authz import Action, Caller
from controlplane.services.errors import Conflict, NotFound
from controlplane.services.ports.unit_of_work import UnitOfWork, UnitOfWorkFactory, run

TOMBSTONE = "tombstone"


def cancel(factory: UnitOfWorkFactory, caller: Caller, workload: WorkloadId) -> WorkloadState:
    """Order its end and return where it stands; a second time changes nothing. Raises NotFound, Forbidden, Conflict."""
    state, clusters = run(factory, lambda uow: _cancel(uow, caller, workload))
    if clusters:
        run(factory, lambda uow: _number(uow, clusters))
    return state


def _cancel(uow: UnitOfWork, caller: Caller, workload: WorkloadId) -> tuple[WorkloadState, frozenset[ClusterId]]:
    _require(uow, caller, workload)
    fact = uow.workloads.lock(workload)
    assert fact is not None
    if fact.state in {WorkloadState.CANCELLING, WorkloadState.CANCELLED}:
        return fact.state, frozenset()
    if fact.state in FINAL_WORKLOAD:
        raise Conflict(f"{fact.name} has {fact.state} already", slug="terminal")
    live = uow.attempts.lock(uow.attempts.live_of([workload]))
    clusters = frozenset(cluster for attempt in live for cluster in _stop(uow, caller, attempt))
    events = [WorkloadEvent.CANCEL_ASKED] if live else [WorkloadEvent.CANCEL_ASKED, WorkloadEvent.CANCEL_DONE]
    state: WorkloadState = fact.state
    for event in events:
        before, state = state, advance_workload(state, event)
        uow.workloads.change([WorkloadChange(workload, state=state)])
        uow.audit.record(
            actor=caller.principal.actor, action=Action.WORKLOAD_CANCEL, object_kind="workload", object_id=workload,
            state_from=before, state_to=state, request_id=caller.request_id,
        )  # fmt: skip
    uow.attempts.give_up_earmarks([workload])
    uow.wake_pool(fact.pool)
    return state, clusters


def _require(uow: UnitOfWork, caller: Caller, workload: WorkloadId) -> None:
    """Owners may, as long as they may submit there; others need the role."""
    seen = uow.workloads.get(workload)
    if seen is None or not authz.sees(caller.principal, seen.queue_path):
        raise NotFound("there is no such workload")
    is_owner = seen.owner == caller.principal.name
    if not (is_owner and authz.may(caller.principal, Action.WORKLOAD_SUBMIT, seen.queue_path)):
        authz.require(caller.principal, Action.WORKLOAD_CANCEL, seen.queue_path)


def _stop(uow: UnitOfWork, caller: Caller, attempt: AttemptFact) -> list[ClusterId]:
    """Order every cluster of the Attempt to delete it; one that stops already needs no second order."""
    if attempt.state is AttemptState.STOPPING:
        return []
    state = advance_attempt(attempt.state, AttemptEvent.STOP_ORDERED)
    left = [placement for placement in attempt.placements if placement.state is not PlacementState.GONE]
    uow.attempts.write_attempts(
        [replace(attempt, state=state, outcome_wanted=Outcome.CANCELLED, stop_ordered_at=uow.now)]
    )
    uow.attempts.write_placements(
        [
            PlacementChange(attempt.key, replace(each, state=PlacementState.STOPPING, wanted_gen=each.wanted_gen + 1))
            for each in left
        ]
    )
    uow.attempts.add_directives(
        [NewDirective(each.cluster, attempt.key, each.wanted_gen + 1, TOMBSTONE) for each in left]
    )
    uow.audit.record(
        actor=caller.principal.actor, action="attempt.stop", object_kind="attempt",
        object_id=f"{attempt.key.workload}.{attempt.key.attempt}", state_from=attempt.state, state_to=state,
        facts={"outcome_wanted": Outcome.CANCELLED}, request_id=caller.request_id,
    )  # fmt: skip
    return [each.cluster for each in left]


def _number(uow: UnitOfWork, clusters: frozenset[ClusterId]) -> None:
    """Give the tombstones their place in the clusters' streams; a sweep does it if this never runs."""
    for cluster in uow.agents.number_directives(sorted(clusters)):
        uow.notify_cluster(cluster)
