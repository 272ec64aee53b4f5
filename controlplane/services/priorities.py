"""Where a Workload stands among others of its Queue: who may say so, and how it is changed while it lives.

Everybody who may submit may ask for the class `high` (10,000) at most; what goes before that is a lead's to give.
"""

from controlplane.contract.rest.workloads import PRIORITY_CLASSES
from controlplane.core.ids import WorkloadId
from controlplane.core.lifecycle import FINAL_WORKLOAD
from controlplane.services import authz
from controlplane.services.authz import Action, Caller
from controlplane.services.cancellation import require_right
from controlplane.services.errors import Conflict, Forbidden
from controlplane.services.ports.unit_of_work import UnitOfWork
from controlplane.services.preconditions import Expected

GRANTED_TO_ALL = PRIORITY_CLASSES["high"]


def require_granted(caller: Caller, path: str, priority: int) -> None:
    """Raise Forbidden where this priority is not the caller's to give in this Queue."""
    if priority <= GRANTED_TO_ALL or authz.may(caller.principal, Action.WORKLOAD_PUSH, path):
        return
    words = (
        f"priority {priority} in {path} is given by its lead; {caller.principal.name} may give {GRANTED_TO_ALL} at most"
    )
    raise Forbidden(words, slug="priority-not-granted")


def change(uow: UnitOfWork, caller: Caller, workload: WorkloadId, priority: int, expected: Expected) -> None:
    """Give a live Workload another priority, from the next cycle on.

    Raises NotFound, Forbidden, PreconditionFailed, or Conflict where it has ended.
    """
    path = require_right(uow, caller, workload, Action.WORKLOAD_EDIT).queue_path
    require_granted(caller, path, priority)
    fact = uow.workloads.lock(workload)
    assert fact is not None, "Workloads are never deleted"
    expected.check(str(fact.version), f"workload {fact.name}")
    if fact.state in FINAL_WORKLOAD:
        raise Conflict(f"{fact.name} has {fact.state} already", slug="terminal")
    if fact.priority == priority:
        return
    uow.workloads.set_priority(workload, priority)
    uow.audit.record(
        actor=caller.principal.actor, action=Action.WORKLOAD_EDIT, object_kind="workload", object_id=workload,
        facts={"name": fact.name, "priorityBefore": fact.priority, "priority": priority}, request_id=caller.request_id,
    )  # fmt: skip
    uow.wake_pool(fact.pool)
