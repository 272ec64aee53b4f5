"""Who may do what: one table of actions and roles, one of routes and actions, one question.

A role holds in a Queue's subtree or in the whole plane; scopes of a token narrow what its bearer's roles may. Who may
not even see a thing is told that there is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controlplane.core.facts.tenancy import Binding, Principal, Role, TokenScope
from controlplane.services.errors import Forbidden, NotFound


class Action(StrEnum):
    """Everything that somebody may or may not do."""

    WORKLOAD_READ = "workload.read"
    WORKLOAD_SUBMIT = "workload.submit"
    WORKLOAD_CANCEL = "workload.cancel"
    WORKLOAD_EDIT = "workload.edit"
    WORKLOAD_PUSH = "workload.push"  # above the priority that everybody may give
    EVENT_READ = "event.read"
    QUEUE_READ = "queue.read"
    QUEUE_WRITE = "queue.write"
    POLICY_WRITE = "policy.write"
    DOCUMENT_READ = "document.read"
    DOCUMENT_APPLY = "document.apply"
    DOCUMENT_WRITE = "document.write"
    CLUSTER_READ = "cluster.read"
    CLUSTER_WRITE = "cluster.write"
    PLANE_READ = "plane.read"
    LEDGER_READ = "ledger.read"
    AUDIT_READ = "audit.read"
    TOKEN_READ = "token.read"  # noqa: S105 - the name of an action
    TOKEN_CREATE = "token.create"  # noqa: S105 - the name of an action
    TOKEN_REVOKE = "token.revoke"  # noqa: S105 - the name of an action
    BINDING_READ = "binding.read"
    BINDING_WRITE = "binding.write"


class By(StrEnum):
    """What decides whether a route's action is allowed."""

    NOBODY = "nobody"  # open, no token needed
    CALLER = "caller"  # any valid token: it is about the caller, or the same for everybody
    PLANE = "plane"  # a role in the whole plane
    ANYWHERE = "anywhere"  # a role somewhere; the body or the list then says where
    QUEUE = "queue"  # what the path names: where it is, decides
    WORKLOAD = "workload"
    DOCUMENT = "document"
    TOKEN = "token"  # noqa: S105 - the name of a thing
    BINDING = "binding"


@dataclass(frozen=True, slots=True)
class Rule:
    """A route's line in the table."""

    by: By
    action: Action | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and the request that the audit log names."""

    principal: Principal
    request_id: str = ""


_EVERYONE = frozenset(Role)
_ADMIN = frozenset({Role.PLATFORM_ADMIN})
_LEADS = frozenset({Role.PLATFORM_ADMIN, Role.TEAM_LEAD})
_WORKERS = _LEADS | {Role.MEMBER}
_WATCHERS = frozenset({Role.PLATFORM_ADMIN, Role.AUDITOR})
MAY: Mapping[Action, frozenset[Role]] = {
    Action.WORKLOAD_READ: _EVERYONE,
    Action.WORKLOAD_SUBMIT: _WORKERS,
    Action.WORKLOAD_CANCEL: _LEADS,  # and whoever owns it
    Action.WORKLOAD_EDIT: _LEADS,  # and whoever owns it
    Action.WORKLOAD_PUSH: _LEADS,
    Action.EVENT_READ: _EVERYONE,
    Action.QUEUE_READ: _EVERYONE,
    Action.QUEUE_WRITE: _LEADS,  # leads only strictly below the root of their subtree, and only to divide it
    Action.POLICY_WRITE: _ADMIN,
    Action.DOCUMENT_READ: _EVERYONE,
    Action.DOCUMENT_WRITE: _LEADS,  # its kind's own action decides besides
    Action.DOCUMENT_APPLY: _WORKERS,  # each document in it asks for its own action besides
    Action.CLUSTER_READ: _EVERYONE,
    Action.CLUSTER_WRITE: _ADMIN,
    Action.PLANE_READ: _WATCHERS,
    Action.LEDGER_READ: _EVERYONE,
    Action.AUDIT_READ: _WATCHERS,
    Action.TOKEN_READ: _EVERYONE,  # one's own; leads those of their subtree, watchers all
    Action.TOKEN_CREATE: _LEADS,
    Action.TOKEN_REVOKE: _LEADS,  # and whoever bears it
    Action.BINDING_READ: _EVERYONE,  # one's own; leads those of their subtree, watchers all
    Action.BINDING_WRITE: _LEADS,
}
_ANYWHERE = frozenset({Action.CLUSTER_READ})  # what is no tenant's: any binding anywhere will do
_HIDES = {Action.WORKLOAD_SUBMIT: "queue", Action.WORKLOAD_READ: "workload", Action.QUEUE_READ: "queue"}
_LOOKS = ".read"
_ON_WORK = frozenset(
    {Action.WORKLOAD_SUBMIT, Action.WORKLOAD_CANCEL, Action.WORKLOAD_EDIT, Action.WORKLOAD_PUSH, Action.DOCUMENT_APPLY}
)  # what the scope `submit` adds to `read`

_OPEN, _ANY = Rule(By.NOBODY), Rule(By.CALLER)
ROUTES: Mapping[tuple[str, str], Rule] = {
    ("GET", "/healthz"): _OPEN,
    ("GET", "/readyz"): _OPEN,
    ("GET", "/readyz/process"): _OPEN,
    ("GET", "/metrics"): _OPEN,
    ("GET", "/api/v1/whoami"): _ANY,
    ("GET", "/api/v1/schema/{kind}"): _ANY,
    ("POST", "/api/v1/workloads"): Rule(By.ANYWHERE, Action.WORKLOAD_SUBMIT),
    ("GET", "/api/v1/workloads"): Rule(By.ANYWHERE, Action.WORKLOAD_READ),
    ("GET", "/api/v1/workloads/{reference}"): Rule(By.WORKLOAD, Action.WORKLOAD_READ),
    ("PATCH", "/api/v1/workloads/{reference}"): Rule(By.WORKLOAD, Action.WORKLOAD_EDIT),
    ("GET", "/api/v1/workloads/{reference}/explain"): Rule(By.WORKLOAD, Action.WORKLOAD_READ),
    ("POST", "/api/v1/workloads/{reference}/cancel"): Rule(By.WORKLOAD, Action.WORKLOAD_CANCEL),
    ("GET", "/api/v1/events"): Rule(By.ANYWHERE, Action.EVENT_READ),
    ("POST", "/api/v1/apply"): Rule(By.ANYWHERE, Action.DOCUMENT_APPLY),
    ("GET", "/api/v1/documents"): Rule(By.ANYWHERE, Action.DOCUMENT_READ),
    ("GET", "/api/v1/documents/{kind}/{name:path}"): Rule(By.DOCUMENT, Action.DOCUMENT_READ),
    ("PUT", "/api/v1/documents/{kind}/{name:path}"): Rule(By.DOCUMENT, Action.DOCUMENT_WRITE),
    ("DELETE", "/api/v1/documents/{kind}/{name:path}"): Rule(By.DOCUMENT, Action.DOCUMENT_WRITE),
    ("GET", "/api/v1/queues"): Rule(By.ANYWHERE, Action.QUEUE_READ),
    ("GET", "/api/v1/queues/{path:path}"): Rule(By.QUEUE, Action.QUEUE_READ),
    ("DELETE", "/api/v1/queues/{path:path}"): Rule(By.QUEUE, Action.QUEUE_WRITE),
    ("POST", "/api/v1/queues/{path:path}/move"): Rule(By.QUEUE, Action.QUEUE_WRITE),
    ("POST", "/api/v1/clusters"): Rule(By.PLANE, Action.CLUSTER_WRITE),
    ("GET", "/api/v1/clusters"): Rule(By.ANYWHERE, Action.CLUSTER_READ),
    ("GET", "/api/v1/clusters/{name}"): Rule(By.ANYWHERE, Action.CLUSTER_READ),
    ("DELETE", "/api/v1/clusters/{name}"): Rule(By.PLANE, Action.CLUSTER_WRITE),
    ("GET", "/api/v1/clusters/{name}/removal"): Rule(By.PLANE, Action.PLANE_READ),
    ("POST", "/api/v1/clusters/{name}/enrolment-tokens"): Rule(By.PLANE, Action.CLUSTER_WRITE),
    ("POST", "/api/v1/clusters/{name}/accept"): Rule(By.PLANE, Action.CLUSTER_WRITE),
    ("POST", "/api/v1/clusters/{name}/revoke"): Rule(By.PLANE, Action.CLUSTER_WRITE),
    ("POST", "/api/v1/clusters/{name}/cordon"): Rule(By.PLANE, Action.CLUSTER_WRITE),
    ("POST", "/api/v1/clusters/{name}/uncordon"): Rule(By.PLANE, Action.CLUSTER_WRITE),
    ("POST", "/api/v1/clusters/{name}/drain"): Rule(By.PLANE, Action.CLUSTER_WRITE),
    ("POST", "/api/v1/clusters/{name}/undrain"): Rule(By.PLANE, Action.CLUSTER_WRITE),
    ("GET", "/api/v1/clusters/{cluster}/nodes/{name}"): Rule(By.ANYWHERE, Action.CLUSTER_READ),
    ("POST", "/api/v1/clusters/{cluster}/nodes/{name}/cordon"): Rule(By.PLANE, Action.CLUSTER_WRITE),
    ("POST", "/api/v1/clusters/{cluster}/nodes/{name}/uncordon"): Rule(By.PLANE, Action.CLUSTER_WRITE),
    ("GET", "/api/v1/nodes"): Rule(By.ANYWHERE, Action.CLUSTER_READ),
    ("POST", "/api/v1/nodes/{number}/cordon"): Rule(By.PLANE, Action.CLUSTER_WRITE),
    ("GET", "/api/v1/devices"): Rule(By.ANYWHERE, Action.CLUSTER_READ),
    ("GET", "/api/v1/devices/{number}"): Rule(By.ANYWHERE, Action.CLUSTER_READ),
    ("POST", "/api/v1/devices/{number}/cordon"): Rule(By.PLANE, Action.CLUSTER_WRITE),
    ("POST", "/api/v1/devices/{number}/uncordon"): Rule(By.PLANE, Action.CLUSTER_WRITE),
    ("GET", "/api/v1/cycles"): Rule(By.PLANE, Action.PLANE_READ),
    ("GET", "/api/v1/cycles/{number}"): Rule(By.PLANE, Action.PLANE_READ),
    ("GET", "/api/v1/cycles/{number}/plan"): Rule(By.PLANE, Action.PLANE_READ),
    ("GET", "/api/v1/cycles/{number}/replay"): Rule(By.PLANE, Action.PLANE_READ),
    ("GET", "/api/v1/cycles/{number}/record"): Rule(By.PLANE, Action.PLANE_READ),
    ("GET", "/api/v1/pools/{pool}/snapshot"): Rule(By.PLANE, Action.PLANE_READ),
    ("GET", "/api/v1/rebalance"): Rule(By.ANYWHERE, Action.CLUSTER_READ),
    ("GET", "/api/v1/doctor"): Rule(By.PLANE, Action.PLANE_READ),
    ("GET", "/api/v1/ledger/accounts"): Rule(By.ANYWHERE, Action.LEDGER_READ),
    ("GET", "/api/v1/ledger/transfers"): Rule(By.ANYWHERE, Action.LEDGER_READ),
    ("GET", "/api/v1/audit"): Rule(By.ANYWHERE, Action.AUDIT_READ),
    ("GET", "/api/v1/tokens"): Rule(By.ANYWHERE, Action.TOKEN_READ),
    ("POST", "/api/v1/tokens"): Rule(By.ANYWHERE, Action.TOKEN_CREATE),
    ("DELETE", "/api/v1/tokens/{number}"): Rule(By.TOKEN, Action.TOKEN_REVOKE),
    ("GET", "/api/v1/bindings"): Rule(By.ANYWHERE, Action.BINDING_READ),
    ("POST", "/api/v1/bindings"): Rule(By.ANYWHERE, Action.BINDING_WRITE),
    ("DELETE", "/api/v1/bindings/{number}"): Rule(By.BINDING, Action.BINDING_WRITE),
}


def admit(principal: Principal, method: str, route: str) -> None:
    """What can be said of a request before it is looked into; raises Forbidden.

    A route without a line is closed. Where the thing that the path names decides, the use case asks again; who calls
    without the right to see it must not learn here whether it exists.
    """
    rule = ROUTES.get((method, route))
    if rule is None:
        raise Forbidden(f"no line of the policy says who may {method} {route}")
    if rule.action is None:
        return
    _within_scopes(principal, rule.action)
    if rule.by is By.PLANE:
        require(principal, rule.action)
    elif rule.by is By.ANYWHERE and not anywhere(principal, rule.action) and not rule.action.endswith(_LOOKS):
        raise Forbidden(f"{principal.name} may not do {rule.action} anywhere")


def may(principal: Principal, action: Action, path: str | None = None) -> bool:
    """Whether the Principal may do it in the Queue at `path`; None: in the whole plane."""
    return scope_of(action) in principal.scopes and any(_allows(each, action, path) for each in principal.bindings)


def anywhere(principal: Principal, action: Action) -> bool:
    """Whether one of its roles may do it, wherever that role holds."""
    return any(binding.role in MAY[action] for binding in principal.bindings)


def require(principal: Principal, action: Action, path: str | None = None) -> None:
    """Raise Forbidden, or NotFound where the caller may not know that it exists."""
    if may(principal, action, path):
        return
    if path is not None and not sees(principal, path):
        raise NotFound(f"there is no such {_HIDES.get(action, 'thing')}")
    _within_scopes(principal, action)
    where = "" if path is None else f" in {path}"
    raise Forbidden(f"{principal.name} may not do {action}{where}")


def sees(principal: Principal, path: str) -> bool:
    """Whether the Principal has any role where the Queue at `path` is."""
    return any(binding.covers(path) for binding in principal.bindings)


def visible_paths(principal: Principal) -> tuple[str, ...] | None:
    """The subtrees that it may see; None: everything."""
    return _union(principal.bindings)


def paths_where(principal: Principal, action: Action) -> tuple[str, ...] | None:
    """The subtrees in which it may do `action`; None: everywhere; empty: nowhere."""
    if scope_of(action) not in principal.scopes:
        return ()
    return _union(tuple(each for each in principal.bindings if each.role in MAY[action]))


def scope_of(action: Action) -> TokenScope:
    """The narrowest scope that a token needs for it."""
    if action.endswith(_LOOKS):
        return TokenScope.READ
    return TokenScope.SUBMIT if action in _ON_WORK else TokenScope.ADMIN


def led_from(principal: Principal, path: str) -> str:
    """The root of the widest subtree that it leads and that the Queue stands below; "" where there is none."""
    roots = [each.queue_path for each in principal.bindings if _allows(each, Action.QUEUE_WRITE, path)]
    return min((root for root in roots if root is not None), key=len, default="")


def _allows(binding: Binding, action: Action, path: str | None) -> bool:
    if binding.role not in MAY[action]:
        return False
    if action is Action.QUEUE_WRITE and (binding.role is Role.TEAM_LEAD or binding.queue_path is not None):
        return binding.queue_path is not None and binding.covers(path) and path != binding.queue_path
    return action in _ANYWHERE or binding.covers(path)


def _union(bindings: tuple[Binding, ...]) -> tuple[str, ...] | None:
    if any(binding.queue_path is None for binding in bindings):
        return None
    return tuple(sorted({binding.queue_path for binding in bindings if binding.queue_path is not None}))


def _within_scopes(principal: Principal, action: Action) -> None:
    needed = scope_of(action)
    if needed not in principal.scopes:
        has = ", ".join(sorted(principal.scopes))
        raise Forbidden(f"this token may only {has}; {action} needs the scope {needed}", slug="scope-too-narrow")
