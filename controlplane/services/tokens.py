"""Principals and their bearer tokens: made, hashed, recognised, ended.

A token is shown once, when it is made; only its SHA-256 is stored. Agents have keys, not tokens (`enrolment`).
"""

import hashlib
import secrets
from datetime import timedelta

from controlplane.contract.rest.people import TokenCreate, TokenView
from controlplane.core.facts.tenancy import Binding, NewToken, Principal, Role
from controlplane.services.authz import Action, Caller, require
from controlplane.services.errors import Conflict, Invalid, NotFound, Unauthenticated
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
    """A new token for a person or service, which gets the role if it has it not; raises Invalid, Forbidden."""
    require(caller.principal, Action.TOKEN_CREATE)
    if wanted.queue is not None and uow.tenancy.queue(wanted.queue) is None:
        raise Invalid(f"there is no queue {wanted.queue}", slug="queue-unknown")
    principal = uow.tenancy.put_principal(wanted.kind, wanted.principal)
    uow.tenancy.bind(principal, Binding(Role(wanted.role), wanted.queue))
    expires = None if wanted.expires_in is None else uow.now + timedelta(seconds=wanted.expires_in)
    token = _new_token()
    number = uow.tenancy.add_token(NewToken(principal, digest(token), wanted.name, expires))
    uow.audit.record(
        actor=caller.principal.actor, action=Action.TOKEN_CREATE, object_kind="principal",
        object_id=f"{wanted.kind}:{wanted.principal}", request_id=caller.request_id,
        facts={"token": number, "role": wanted.role, "queue": wanted.queue or ""},
    )  # fmt: skip
    return TokenView(
        id=number, principal=wanted.principal, role=wanted.role, queue=wanted.queue, expires_at=expires, token=token
    )


def revoke(uow: UnitOfWork, caller: Caller, token: int) -> None:
    """End a token; raises NotFound, Forbidden."""
    require(caller.principal, Action.TOKEN_CREATE)
    if not uow.tenancy.revoke_token(token):
        raise NotFound("there is no such token")
    uow.audit.record(
        actor=caller.principal.actor, action="token.revoke", object_kind="token", object_id=str(token),
        request_id=caller.request_id,
    )  # fmt: skip


def first_admin(uow: UnitOfWork, name: str = FIRST_ADMIN) -> str:
    """A token for the first admin, who may do everything; whoever reaches the database may ask for it."""
    principal = uow.tenancy.put_principal("person", name)
    uow.tenancy.bind(principal, Binding(Role.PLATFORM_ADMIN))
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


def _new_token() -> str:
    return PREFIX + secrets.token_urlsafe(_BYTES)
