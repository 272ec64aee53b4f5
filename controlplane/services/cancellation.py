"""Cancel a Workload: at once while it waits, by ordering its Attempt to stop where one lives.

The stop itself is the agents' to carry out and to prove (`services.attempts`); tombstones are sent until it is.
"""

from controlplane.core.facts.workloads import WorkloadChange, WorkloadFact
from controlplane.core.ids import WorkloadId
from controlplane.core.lifecycle import FINAL_WORKLOAD, Outcome, WorkloadEvent, WorkloadState, advance_workload
from controlplane.services import attempts, authz
from controlplane.services.attempt_batch import By
from controlplane.services.authz import Action, Caller
from controlplane.services.errors import Conflict, NotFound
from controlplane.services.ports.unit_of_work import UnitOfWork
from controlplane.services.preconditions import UNCONDITIONAL, Expected

_CANCELLED = frozenset({WorkloadState.CANCELLING, WorkloadState.CANCELLED})


def cancel(uow: UnitOfWork, caller: Caller, workload: WorkloadId, expected: Expected = UNCONDITIONAL) -> WorkloadState:
    """Order its end and return where it stands; a second time changes nothing.

    Raises NotFound, Forbidden, Conflict, PreconditionFailed.
    """
    seen: WorkloadFact | None = require_right(uow, caller, workload, Action.WORKLOAD_CANCEL)
    if expected:
        # Out of the order of locks, so that what was seen is what is cancelled; of two who meet, one runs again.
        seen = uow.workloads.lock(workload)
    assert seen is not None, "Workloads are never deleted"
    expected.check(str(seen.version), f"workload {seen.name}")
    if (state := _settled(seen)) is not None:
        return state
    by = By(caller.principal.actor, caller.request_id)
    # Accounts and nodes come before Workloads in the order of locks, so the Attempt is stopped first.
    attempts.stop(uow, uow.attempts.live_of([workload]), Outcome.CANCELLED, None, by)
    uow.workloads.lock(workload)
    # A planner may have placed it since that look; under the lock nobody can any more.
    attempts.stop(uow, uow.attempts.live_of([workload]), Outcome.CANCELLED, None, by)
    fact = uow.workloads.lock(workload)
    assert fact is not None
    if (state := _settled(fact)) is not None:
        return state
    is_live = bool(uow.attempts.live_of([workload]))
    events = [WorkloadEvent.CANCEL_ASKED] if is_live else [WorkloadEvent.CANCEL_ASKED, WorkloadEvent.CANCEL_DONE]
    state = fact.state
    for event in events:
        before, state = state, advance_workload(state, event)
        uow.workloads.change(WorkloadChange(workload, state))
        uow.audit.record(
            actor=caller.principal.actor, action=Action.WORKLOAD_CANCEL, object_kind="workload", object_id=workload,
            state_from=before, state_to=state, request_id=caller.request_id,
        )  # fmt: skip
    uow.attempts.give_up_earmarks([workload])
    uow.wake_pool(fact.pool)
    return state


def _settled(fact: WorkloadFact) -> WorkloadState | None:
    """Its state where nothing is left to do; raises Conflict where it has ended by itself."""
    if fact.state in _CANCELLED:
        return fact.state
    if fact.state in FINAL_WORKLOAD:
        raise Conflict(f"{fact.name} has {fact.state} already", slug="terminal")
    return None


def require_right(uow: UnitOfWork, caller: Caller, workload: WorkloadId, action: Action) -> WorkloadFact:
    """The Workload, where the caller may do this to it; raises NotFound, Forbidden.

    Owners may, as long as they may submit there; others need the role.
    """
    seen = uow.workloads.get(workload)
    if seen is None or not authz.sees(caller.principal, seen.queue_path):
        raise NotFound("there is no such workload")
    is_owner = seen.owner == caller.principal.name
    if not (is_owner and authz.may(caller.principal, Action.WORKLOAD_SUBMIT, seen.queue_path)):
        authz.require(caller.principal, action, seen.queue_path)
    return seen
