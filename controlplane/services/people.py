"""Who may do what, given and taken: roles of people and services, in subtrees and in the whole plane.

An administrator gives every role. A lead gives what lies below the lead's own right: members and auditors in the own
subtree, further leads strictly below its root.
"""

from controlplane.contract.rest.people import BindingCreate, BindingView
from controlplane.core.facts.people import PeopleFilter, PeopleScope
from controlplane.core.facts.tenancy import Binding, Principal, Role
from controlplane.services import authz
from controlplane.services.authz import MAY, Action, Caller
from controlplane.services.errors import Conflict, Fault, Forbidden, Invalid, NotFound
from controlplane.services.ports.unit_of_work import UnitOfWork


def scope_of(principal: Principal) -> PeopleScope:
    """Whose tokens and bindings it may see."""
    if authz.may(principal, Action.PLANE_READ):
        return PeopleScope(principal.id, None)
    leads = [each.queue_path for each in principal.bindings if each.role in MAY[Action.BINDING_WRITE]]
    return PeopleScope(principal.id, tuple(sorted({path for path in leads if path is not None})))


def require_giving(uow: UnitOfWork, caller: Caller, action: Action, binding: Binding) -> str | None:
    """The subtree in which the caller has the right to give this role; None: the whole plane.

    Raises Invalid where there is no such Queue for the caller, Forbidden where the role is not the caller's to give.
    """
    principal, path = caller.principal, binding.queue_path
    if path is not None and (uow.tenancy.queue(path) is None or not authz.sees(principal, path)):
        words = f"there is no queue {path}"
        raise Invalid(words, slug="queue-unknown", faults=(Fault("/queue", words, "queue-unknown"),))
    authz.require(principal, action, path)
    if authz.may(principal, action):
        return None
    assert path is not None, "who may do it nowhere but in a subtree was refused for the whole plane"
    leads = [each for each in principal.bindings if each.role in MAY[action] and each.covers(path)]
    root = min((each.queue_path for each in leads if each.queue_path is not None), key=len)
    if binding.role is Role.PLATFORM_ADMIN or (binding.role is Role.TEAM_LEAD and path == root):
        where = "in the whole plane" if binding.role is Role.PLATFORM_ADMIN else f"of {root}"
        raise Forbidden(f"{principal.name} leads {root}, so the role of a {binding.role} {where} is not its to give")
    return root


def bind(uow: UnitOfWork, caller: Caller, wanted: BindingCreate) -> tuple[BindingView, bool]:
    """Give a role, and say whether it is new; raises Invalid, Forbidden. A second time changes nothing."""
    binding = Binding(Role(wanted.role), wanted.queue)
    require_giving(uow, caller, Action.BINDING_WRITE, binding)
    principal = uow.tenancy.put_principal(wanted.kind, wanted.principal)
    number, is_new = uow.people.add_binding(principal, binding)
    if is_new:
        _note(uow, caller, "binding.create", number, f"{wanted.kind}:{wanted.principal}", binding)
    view = uow.people.bindings(PeopleScope(principal), PeopleFilter(), number - 1, 1).items[0]
    return view, is_new


def unbind(uow: UnitOfWork, caller: Caller, number: int) -> None:
    """Take a role away; it counts from the next request on. Raises NotFound, Forbidden, Conflict for the last admin."""
    principal = caller.principal
    found = uow.people.binding(number)
    scope = scope_of(principal)
    sees_all = scope.paths is None
    if found is None or not (
        sees_all
        or found.principal == principal.id
        or any(Binding(Role.TEAM_LEAD, path).covers(found.binding.queue_path) for path in scope.paths or ())
    ):
        raise NotFound(f"there is no binding {number}")
    require_giving(uow, caller, Action.BINDING_WRITE, found.binding)
    is_admin = found.binding == Binding(Role.PLATFORM_ADMIN)
    if is_admin and not uow.people.other_admins(number):
        raise Conflict("this is the last administrator of the plane; make another one first", slug="last-admin")
    uow.people.remove_binding(number)
    _note(uow, caller, "binding.delete", number, f"{found.principal_kind}:{found.principal_name}", found.binding)


def _note(uow: UnitOfWork, caller: Caller, action: str, number: int, whom: str, binding: Binding) -> None:
    uow.audit.record(
        actor=caller.principal.actor, action=action, object_kind="principal", object_id=whom,
        facts={"binding": number, "role": binding.role, "queue": binding.queue_path or ""},
        request_id=caller.request_id,
    )  # fmt: skip
