"""Principals and their bearer tokens: made, hashed, recognised, ended.

A token is shown once, when it is made; only its SHA-256 is stored. Agents have keys, not tokens (`enrolment`).
"""

import hashlib
import secrets
from datetime import timedelta

from controlplane.contract.rest.people import TOKEN_SECONDS, TokenCreate, TokenView
from controlplane.core.facts.people import TokenOwner
from controlplane.core.facts.tenancy import Binding, NewToken, Principal, Role, TokenScope
from controlplane.services import authz, people
from controlplane.services.authz import Action, Caller
from controlplane.services.errors import Conflict, Forbidden, NotFound, Unauthenticated
from controlplane.services.ports.unit_of_work import UnitOfWork

PREFIX = "mst_"
FIRST_ADMIN = "admin"
_BYTES = 32
_LENGTH_MAX = 200


def principal_of(uow: UnitOfWork, token: str) -> Principal:
    """Whose token it is; raises Unauthenticated."""
    if not token.startswith(PREFIX) or len(token) > _LENGTH_MAX:
        raise Unauthenticated("this is no token of this plane", slug="invalid-token")
    principal = uow.tenancy.principal_of_token(digest(token))
    if principal is None:
        raise Unauthenticated("the token is unknown, expired or revoked", slug="invalid-token")
    return principal


def create(uow: UnitOfWork, caller: Caller, wanted: TokenCreate) -> TokenView:
    """A new token for a person or service, which gets the role if it has it not; raises Invalid, Forbidden.

    A token that a lead makes reaches no further than the lead's own subtree, whatever its bearer may elsewhere.
    """
    binding = Binding(Role(wanted.role), wanted.queue)
    within = people.require_giving(uow, caller, Action.TOKEN_CREATE, binding)
    principal = uow.tenancy.put_principal(wanted.kind, wanted.principal)
    if within is not None and not _is_of(uow.people.bindings_of(principal), within):
        words = f"{wanted.principal} has roles outside {within}, so only an administrator may make its tokens"
        raise Forbidden(words)
    uow.people.add_binding(principal, binding)
    scopes = frozenset(TokenScope(each) for each in wanted.scopes)
    expires = uow.now + timedelta(seconds=wanted.expires_in or TOKEN_SECONDS)
    token = _new_token()
    number = uow.tenancy.add_token(
        NewToken(principal, digest(token), wanted.name, expires, scopes, within, caller.principal.actor)
    )
    uow.audit.record(
        actor=caller.principal.actor, action=Action.TOKEN_CREATE, object_kind="principal",
        object_id=f"{wanted.kind}:{wanted.principal}", request_id=caller.request_id,
        facts={
            "token": number, "role": wanted.role, "queue": wanted.queue or "", "scopes": sorted(scopes),
            "expiresAt": expires.isoformat(),
        },
    )  # fmt: skip
    return TokenView(
        id=number,
        principal=wanted.principal,
        kind=wanted.kind,
        role=wanted.role,
        queue=wanted.queue,
        scopes=sorted(scopes) or [TokenScope.ADMIN],
        within=within,
        expires_at=expires,
        token=token,
    )


def revoke(uow: UnitOfWork, caller: Caller, number: int) -> None:
    """End a token, at once: its bearer's own, or one that the caller may see; raises NotFound, Forbidden, Conflict.

    One that has ended already is not there any more.
    """
    found = uow.people.token(number)
    if found is None or found.is_ended or not _may_see(caller.principal, found):
        raise NotFound(f"there is no token {number} that lives")
    if found.principal != caller.principal.id and not _reaches(caller.principal, found, Action.TOKEN_REVOKE):
        raise Forbidden(f"{caller.principal.name} may not do {Action.TOKEN_REVOKE} for {found.principal_name}")
    _require_an_admin_left(uow, found)
    uow.tenancy.revoke_token(number)
    uow.audit.record(
        actor=caller.principal.actor, action=Action.TOKEN_REVOKE, object_kind="token", object_id=str(number),
        request_id=caller.request_id,
        facts={"principal": f"{found.principal_kind}:{found.principal_name}", "name": found.name},
    )  # fmt: skip


def first_admin(uow: UnitOfWork, name: str = FIRST_ADMIN) -> str:
    """A token for the first admin, who may do everything; whoever reaches the database may ask for it."""
    principal = uow.tenancy.put_principal("person", name)
    uow.people.add_binding(principal, Binding(Role.PLATFORM_ADMIN))
    token = _new_token()
    number = uow.tenancy.add_token(NewToken(principal, digest(token), "first admin"))
    uow.audit.record(
        actor="system:bootstrap", action=Action.TOKEN_CREATE, object_kind="principal", object_id=f"person:{name}",
        facts={"token": number, "role": Role.PLATFORM_ADMIN},
    )  # fmt: skip
    return token


def only_admin(uow: UnitOfWork, name: str = FIRST_ADMIN) -> str:
    """`first_admin`, where no administrator has a token that lives; else raises Conflict."""
    uow.tenancy.put_principal("person", name)  # takes its row: of two who ask at once, one waits for the other
    if uow.tenancy.has_admin_token():
        raise Conflict("an administrator has a token that lives; who lost it asks for a new one with --again")
    return first_admin(uow, name)


def digest(token: str) -> bytes:
    """What is stored. Tokens are 256 random bits, so a plain hash is enough: there is nothing to guess."""
    return hashlib.sha256(token.encode()).digest()


def _require_an_admin_left(uow: UnitOfWork, ending: TokenOwner) -> None:
    """Whoever ends the last token of an administrator locks everybody out, whom only the database lets in again."""
    if Binding(Role.PLATFORM_ADMIN) not in ending.bindings:
        return
    uow.people.other_admins(0)  # of two who end one of two each, one waits for the other
    if uow.tenancy.has_admin_token() and not uow.tenancy.has_admin_token(besides=ending.id):
        words = f"token {ending.id} is the last of an administrator that lives; make another one first"
        raise Conflict(words, slug="last-admin")


def _may_see(principal: Principal, token: TokenOwner) -> bool:
    return token.principal == principal.id or any(
        _reaches(principal, token, action) for action in (Action.TOKEN_REVOKE, Action.PLANE_READ)
    )


def _reaches(principal: Principal, token: TokenOwner, action: Action) -> bool:
    """Whether the right to `action` covers all that the token could be used for."""
    paths = authz.paths_where(principal, action)
    if paths is None:
        return True
    if action is Action.PLANE_READ:
        return False
    return any(
        _is_of(token.bindings, path)
        or (token.within is not None and Binding(Role.TEAM_LEAD, path).covers(token.within))
        for path in paths
        if token.bindings or token.within is not None
    )


def _is_of(bindings: tuple[Binding, ...], path: str) -> bool:
    """Whether none of these roles holds outside the subtree."""
    lead = Binding(Role.TEAM_LEAD, path)
    return all(each.queue_path is not None and lead.covers(each.queue_path) for each in bindings)


def _new_token() -> str:
    return PREFIX + secrets.token_urlsafe(_BYTES)
