"""The stream of events: what of the log a caller may see, from where it left off.

The log is the audit log in the order of its seals (`AuditStore.seal`): what a deed rests on stands before it, and no
place is given behind one that was told. So a stream that goes on after the last place misses and repeats nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from controlplane.contract.rest.common import Json
from controlplane.contract.rest.events import EventView
from controlplane.core.facts.events import EventFact, EventFilter
from controlplane.core.facts.tenancy import Principal
from controlplane.core.ids import WorkloadId
from controlplane.services import authz, queries
from controlplane.services.authz import Action
from controlplane.services.errors import Malformed
from controlplane.services.ports.unit_of_work import UnitOfWork, UnitOfWorkFactory

SEAL_ROWS_MAX = 2_000
SEALS_MAX = 50  # of one call; what is left then is the next one's
READ_ROWS_MAX = 500


@dataclass(frozen=True, slots=True)
class EventsAsked:
    """What a caller wants to hear of; `after`: the last place that it knows, None: from now on."""

    workload: str | None = None
    queue: str | None = None
    kinds: tuple[str, ...] = ()
    after: int | None = None


def opened(uow: UnitOfWork, principal: Principal, asked: EventsAsked) -> tuple[EventFilter, int]:
    """What goes to the stream, and the place after which it begins.

    Raises Forbidden, NotFound for a Workload or Queue that the caller cannot see, Malformed for a place yet to come.
    """
    head = uow.audit.head()
    if asked.after is not None and asked.after > head:
        words = f"the log ends at {head}, so nothing was told of {asked.after}; begin without a place"
        raise Malformed(words, slug="invalid-cursor")
    wanted = seen_by(principal, EventFilter(queue=asked.queue, kinds=asked.kinds))
    if wanted.paths == () and not wanted.sees_plane:
        authz.require(principal, Action.EVENT_READ)
    if asked.queue is not None:
        queries.require_queue(uow, principal, asked.queue)
    if asked.workload is not None:
        workload = queries.workload(uow, principal, asked.workload)
        wanted = EventFilter(wanted.paths, wanted.sees_plane, workload.id, wanted.queue, wanted.kinds)
    return wanted, head if asked.after is None else asked.after


def seen_by(principal: Principal, asked: EventFilter) -> EventFilter:
    """The same question, with what the caller may see now; what belongs to no Queue is for who may read the audit."""
    paths = authz.paths_where(principal, Action.EVENT_READ)
    sees_plane = authz.may(principal, Action.AUDIT_READ)
    return EventFilter(paths, sees_plane, asked.workload, asked.queue, asked.kinds)


def settle(factory: UnitOfWorkFactory) -> int:
    """Give places to what has happened until now, a bounded number; returns how many."""
    total = 0
    for _ in range(SEALS_MAX):
        with factory() as uow:
            sealed = uow.audit.seal(SEAL_ROWS_MAX)
        total += sealed
        if sealed < SEAL_ROWS_MAX:
            break
    return total


def advance(factory: UnitOfWorkFactory, after: int) -> Sequence[EventFact]:
    """Give places to what has happened, and read what follows `after`."""
    settle(factory)
    with factory() as uow:
        return uow.events.after(after, READ_ROWS_MAX)


def caught_up(factory: UnitOfWorkFactory, wanted: EventFilter, after: int) -> tuple[list[EventFact], int]:
    """The next events of a stream that is behind, and the place up to which the log was looked through."""
    with factory() as uow:
        head = uow.audit.head()
        if wanted.workload is not None:
            found = uow.events.of_workload(WorkloadId(wanted.workload), after, READ_ROWS_MAX)
            reached = found[-1].position if len(found) == READ_ROWS_MAX else max(after, head)
        else:
            found = uow.events.after(after, READ_ROWS_MAX)
            reached = found[-1].position if found else after
    # What was given a place since the head was read comes with the next look, once.
    return [event for event in found if event.position <= reached and wanted.takes(event)], reached


def view(event: EventFact) -> EventView:
    """As it is told."""
    return EventView(
        position=event.position,
        at=event.at,
        kind=event.kind,
        object=event.object_id,
        action=event.action,
        actor=event.actor,
        state_from=event.state_from,
        state_to=event.state_to,
        workload=event.workload,
        name=event.name,
        queue=event.path,
        attempt=event.attempt,
        facts=cast("dict[str, Json]", dict(event.facts)),
    )
