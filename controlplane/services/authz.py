"""Who may do what: one table of actions and roles, one question.

A role holds in a Queue's subtree or in the whole plane. Who may not even see a thing is told that there is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controlplane.core.facts.tenancy import Principal, Role
from controlplane.services.errors import Forbidden, NotFound


class Action(StrEnum):
    """Everything that somebody may or may not do."""

    WORKLOAD_READ = "workload.read"
    WORKLOAD_SUBMIT = "workload.submit"
    WORKLOAD_CANCEL = "workload.cancel"
    QUEUE_READ = "queue.read"
    QUEUE_WRITE = "queue.write"
    POLICY_WRITE = "policy.write"
    CLUSTER_READ = "cluster.read"
    CLUSTER_WRITE = "cluster.write"
    PLANE_READ = "plane.read"
    AUDIT_READ = "audit.read"
    TOKEN_CREATE = "token.create"  # noqa: S105 - the name of an action


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and the request that the audit log names."""

    principal: Principal
    request_id: str = ""


_EVERYONE = frozenset(Role)
_ADMIN = frozenset({Role.PLATFORM_ADMIN})
MAY: Mapping[Action, frozenset[Role]] = {
    Action.WORKLOAD_READ: _EVERYONE,
    Action.WORKLOAD_SUBMIT: frozenset({Role.PLATFORM_ADMIN, Role.TEAM_LEAD, Role.MEMBER}),
    Action.WORKLOAD_CANCEL: frozenset({Role.PLATFORM_ADMIN, Role.TEAM_LEAD}),  # and whoever owns it
    Action.QUEUE_READ: _EVERYONE,
    Action.QUEUE_WRITE: _ADMIN,
    Action.POLICY_WRITE: _ADMIN,
    Action.CLUSTER_READ: _EVERYONE,
    Action.CLUSTER_WRITE: _ADMIN,
    Action.PLANE_READ: frozenset({Role.PLATFORM_ADMIN, Role.AUDITOR}),
    Action.AUDIT_READ: frozenset({Role.PLATFORM_ADMIN, Role.AUDITOR}),
    Action.TOKEN_CREATE: _ADMIN,
}
_ANYWHERE = frozenset({Action.CLUSTER_READ})  # what is no tenant's: any binding anywhere will do
_HIDES = {Action.WORKLOAD_SUBMIT: "queue", Action.WORKLOAD_READ: "workload", Action.QUEUE_READ: "queue"}


def may(principal: Principal, action: Action, path: str | None = None) -> bool:
    """Whether the Principal may do it in the Queue at `path`; None: in the whole plane."""
    return any(
        binding.role in MAY[action] and (action in _ANYWHERE or binding.covers(path)) for binding in principal.bindings
    )


def require(principal: Principal, action: Action, path: str | None = None) -> None:
    """Raise Forbidden, or NotFound where the caller may not know that it exists."""
    if may(principal, action, path):
        return
    if path is not None and not sees(principal, path):
        raise NotFound(f"there is no such {_HIDES.get(action, 'thing')}")
    where = "" if path is None else f" in {path}"
    raise Forbidden(f"{principal.name} may not do {action}{where}")


def sees(principal: Principal, path: str) -> bool:
    """Whether the Principal has any role where the Queue at `path` is."""
    return any(binding.covers(path) for binding in principal.bindings)


def visible_paths(principal: Principal) -> tuple[str, ...] | None:
    """The subtrees that it may see; None: everything."""
    if any(binding.queue_path is None for binding in principal.bindings):
        return None
    return tuple(sorted({binding.queue_path for binding in principal.bindings if binding.queue_path is not None}))
