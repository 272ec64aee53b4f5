"""Every state of a Workload, an Attempt and a Cluster, and every event that moves it, on one page.

Whoever changes such a state calls `advance`; nothing else may write it, and the database holds the
same tables (`state_transition`, kept by a trigger), so that a stray UPDATE is refused too. The lapse
of an agent's lease is no event of an Attempt: under `hold` it changes the Cluster's state alone.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

S = TypeVar("S")
E = TypeVar("E")


class WorkloadState(StrEnum):
    """Where a Workload stands; the last three are final."""

    PENDING = "pending"  # waits for quota and room; keeps its queue age over attempts
    RESERVED = "reserved"  # quota and devices are held for its live Attempt
    RUNNING = "running"
    STOPPING = "stopping"  # its Attempt goes; what follows is not decided yet
    CANCELLING = "cancelling"  # its Attempt goes; the Workload will not come back
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class WorkloadEvent(StrEnum):
    """What can happen to a Workload."""

    ADMITTED = "admitted"
    STARTED = "started"
    COMPLETED = "completed"
    STOP_ORDERED = "stop_ordered"
    REQUEUED = "requeued"
    GIVEN_UP = "given_up"  # the program failed and no attempt is left
    CANCEL_ASKED = "cancel_asked"
    CANCEL_DONE = "cancel_done"


class AttemptState(StrEnum):
    """Where one try at running a Workload stands."""

    PLACED = "placed"  # quota and devices are held; the agent has not answered yet
    PREPARED = "prepared"  # every object exists, gated, admitted by the cluster itself
    STARTING = "starting"  # start is ordered; some gates may be off
    RUNNING = "running"
    STOPPING = "stopping"  # devices stay held until the agent confirms the stop
    ENDED = "ended"  # final; the outcome says how


class AttemptEvent(StrEnum):
    """What can happen to an Attempt."""

    PREPARED = "prepared"
    REJECTED = "rejected"  # by the local policy, a webhook, a quota of the cluster, a name that is taken
    START_ORDERED = "start_ordered"
    ALL_RUNNING = "all_running"
    STOP_ORDERED = "stop_ordered"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"  # one pod has failed for good; the others must go too
    LOST = "lost"  # fenced, or declared lost by an admin


class Outcome(StrEnum):
    """How an Attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"
    PREEMPTED = "preempted"
    MOVED = "moved"
    LOST = "lost"
    CANCELLED = "cancelled"
    VOIDED = "voided"


class ClusterState(StrEnum):
    """Where a Cluster stands."""

    CREATED = "created"  # known by name; no agent has enrolled
    ENROLLED = "enrolled"  # an agent proved its key; an admin has not accepted it yet
    ACCEPTED = "accepted"  # accepted, not heard of since
    READY = "ready"
    SUSPECT = "suspect"  # silent for a while: no new placements, nothing else
    UNREACHABLE = "unreachable"  # silent for longer; under `hold` its pods run on and stay charged
    DRAINING = "draining"
    REMOVED = "removed"


class ClusterEvent(StrEnum):
    """What can happen to a Cluster."""

    ENROLLED = "enrolled"
    ACCEPTED = "accepted"
    HEARD = "heard"
    SILENT = "silent"
    LAPSED = "lapsed"
    DRAIN_ASKED = "drain_asked"
    DRAIN_ENDED = "drain_ended"
    REMOVED = "removed"


class ImpossibleTransition(Exception):
    """An event reached something in a state where it has no meaning; nothing was changed."""


_W, _WE = WorkloadState, WorkloadEvent
WORKLOAD: Mapping[tuple[WorkloadState, WorkloadEvent], WorkloadState] = {
    (_W.PENDING, _WE.ADMITTED): _W.RESERVED,
    (_W.RESERVED, _WE.STARTED): _W.RUNNING,
    (_W.RESERVED, _WE.COMPLETED): _W.SUCCEEDED,  # too short to be seen running
    (_W.RUNNING, _WE.COMPLETED): _W.SUCCEEDED,
    (_W.STOPPING, _WE.COMPLETED): _W.SUCCEEDED,  # it ended before the stop reached it
    (_W.RESERVED, _WE.STOP_ORDERED): _W.STOPPING,
    (_W.RUNNING, _WE.STOP_ORDERED): _W.STOPPING,
    (_W.STOPPING, _WE.REQUEUED): _W.PENDING,
    (_W.STOPPING, _WE.GIVEN_UP): _W.FAILED,
    **{(state, _WE.CANCEL_ASKED): _W.CANCELLING for state in (_W.PENDING, _W.RESERVED, _W.RUNNING, _W.STOPPING)},
    (_W.CANCELLING, _WE.CANCEL_DONE): _W.CANCELLED,
    (_W.CANCELLING, _WE.COMPLETED): _W.CANCELLED,  # the user's word stands, also against a late success
}

_A, _AE = AttemptState, AttemptEvent
ATTEMPT: Mapping[tuple[AttemptState, AttemptEvent], AttemptState] = {
    (_A.PLACED, _AE.PREPARED): _A.PREPARED,
    (_A.PLACED, _AE.REJECTED): _A.STOPPING,
    (_A.PREPARED, _AE.REJECTED): _A.STOPPING,
    (_A.STARTING, _AE.REJECTED): _A.STOPPING,
    (_A.PLACED, _AE.STOP_ORDERED): _A.STOPPING,
    (_A.PLACED, _AE.FAILED): _A.STOPPING,
    (_A.PREPARED, _AE.START_ORDERED): _A.STARTING,
    (_A.PREPARED, _AE.STOP_ORDERED): _A.STOPPING,
    (_A.PREPARED, _AE.FAILED): _A.STOPPING,
    (_A.STARTING, _AE.ALL_RUNNING): _A.RUNNING,
    (_A.STARTING, _AE.COMPLETED): _A.ENDED,  # too short to be seen running
    (_A.STARTING, _AE.STOP_ORDERED): _A.STOPPING,
    (_A.STARTING, _AE.FAILED): _A.STOPPING,
    (_A.RUNNING, _AE.COMPLETED): _A.ENDED,
    (_A.RUNNING, _AE.STOP_ORDERED): _A.STOPPING,
    (_A.RUNNING, _AE.FAILED): _A.STOPPING,
    (_A.STOPPING, _AE.STOPPED): _A.ENDED,
    (_A.STOPPING, _AE.COMPLETED): _A.ENDED,  # it ended before the stop reached it
    **{(state, _AE.LOST): _A.ENDED for state in AttemptState if state is not AttemptState.ENDED},
}

_C, _CE = ClusterState, ClusterEvent
CLUSTER: Mapping[tuple[ClusterState, ClusterEvent], ClusterState] = {
    (_C.CREATED, _CE.ENROLLED): _C.ENROLLED,
    (_C.ENROLLED, _CE.ACCEPTED): _C.ACCEPTED,
    (_C.ACCEPTED, _CE.HEARD): _C.READY,
    (_C.SUSPECT, _CE.HEARD): _C.READY,
    (_C.UNREACHABLE, _CE.HEARD): _C.READY,
    (_C.READY, _CE.SILENT): _C.SUSPECT,
    (_C.SUSPECT, _CE.LAPSED): _C.UNREACHABLE,
    **{(state, _CE.DRAIN_ASKED): _C.DRAINING for state in (_C.ACCEPTED, _C.READY, _C.SUSPECT, _C.UNREACHABLE)},
    (_C.DRAINING, _CE.DRAIN_ENDED): _C.ACCEPTED,
    **{(state, _CE.REMOVED): _C.REMOVED for state in ClusterState if state is not ClusterState.REMOVED},
}

LIVE_ATTEMPT = frozenset(state for state in AttemptState if state is not AttemptState.ENDED)
FINAL_WORKLOAD = frozenset({WorkloadState.SUCCEEDED, WorkloadState.FAILED, WorkloadState.CANCELLED})


def _follow(table: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    try:
        return table[state, event]
    except KeyError:
        raise ImpossibleTransition(f"{event} while {state}") from None


def advance_workload(state: WorkloadState, event: WorkloadEvent) -> WorkloadState:
    """Return the state that follows; raise ImpossibleTransition when there is none."""
    return _follow(WORKLOAD, state, event)


def advance_attempt(state: AttemptState, event: AttemptEvent) -> AttemptState:
    """Return the state that follows; raise ImpossibleTransition when there is none."""
    return _follow(ATTEMPT, state, event)


def advance_cluster(state: ClusterState, event: ClusterEvent) -> ClusterState:
    """Return the state that follows; raise ImpossibleTransition when there is none."""
    return _follow(CLUSTER, state, event)
