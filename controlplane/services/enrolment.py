"""How an agent becomes known: a one-time token, its own key, an admin's word; and how its key changes or goes.

Identity comes from the token's row alone, never from what a message says of itself. Rates are the listener's; whether
a signed request is fresh, `api.agent_auth` decides.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import ValidationError

from controlplane.contract.agent.base import PROTOCOL_VERSION, VersionRefused, negotiate
from controlplane.contract.agent.enrolment import ALGORITHMS, ENROL_TYPE, EnrolReply, EnrolRequest
from controlplane.core.facts.fleet import ClusterFact, KeyFact, TokenFact
from controlplane.core.ids import ClusterId
from controlplane.core.lifecycle import ClusterEvent, ClusterState
from controlplane.services import accounting, fleet, signing
from controlplane.services.errors import Conflict, Forbidden, Invalid, NotFound, TooNew, Unauthenticated
from controlplane.services.ports.unit_of_work import UnitOfWork, UnitOfWorkFactory, run
from controlplane.services.signing import Signer

TOKEN_SECONDS, TOKEN_SECONDS_MAX = 3_600, 86_400
SAME_ANSWER_SECONDS = 600
_TOKEN = re.compile(r"mst_[0-9]{1,19}\.[A-Za-z0-9_-]{43}")
_BAD_TOKEN = "this enrolment token is not valid"  # noqa: S105 - one text for every way to be wrong


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token's text, shown once and stored nowhere, and until when it can be used."""

    token: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class EnrolTools:
    """What enrolment works with; `audience` is the agents' listener as they know it."""

    uow_factory: UnitOfWorkFactory
    signer: Signer
    audience: str


def issue_token(
    uow: UnitOfWork,
    cluster: ClusterId,
    actor: str,
    *,
    valid_seconds: int = TOKEN_SECONDS,
    auto_accept: bool = False,
    request_id: str = "",
) -> IssuedToken:
    """Make a one-time token for this Cluster; raises NotFound, Invalid."""
    if not 1 <= valid_seconds <= TOKEN_SECONDS_MAX:
        raise Invalid(f"an enrolment token is valid for 1 to {TOKEN_SECONDS_MAX} s", slug="invalid-quantity")
    fact = uow.fleet.cluster(cluster)
    if fact is None:
        raise NotFound("there is no such cluster")
    token = f"mst_{cluster}.{secrets.token_urlsafe(32)}"
    expires_at = uow.now + timedelta(seconds=valid_seconds)
    number = uow.agents.add_token(cluster, _digest(token), actor, expires_at, auto_accept=auto_accept)
    uow.audit.record(
        actor=actor,
        action="cluster.issue-token",
        object_kind="cluster",
        object_id=str(cluster),
        facts={"name": fact.name, "token": number, "expires_at": expires_at.isoformat(), "auto_accept": auto_accept},
        request_id=request_id,
    )
    return IssuedToken(token, expires_at)


def enrol(tools: EnrolTools, envelope: str) -> EnrolReply:
    """Take a self-signed enrolment; raises Unauthenticated, Invalid, Conflict, TooNew. Nothing refused costs a use."""
    jwk = signing.header_of(envelope).get("jwk")
    if not isinstance(jwk, Mapping):
        raise Invalid("the header carries no public key", slug="invalid-key")
    key = signing.public_key(jwk)
    try:
        proven = signing.verified(envelope, key, ENROL_TYPE, ALGORITHMS[0])
    except Unauthenticated as error:
        raise Invalid("the body is not signed by the key that it carries", slug="invalid-key") from error
    try:
        request = EnrolRequest.model_validate_json(proven.payload)
    except ValidationError as error:
        raise Invalid("the signed body is no enrolment") from error
    require_version(request.protocol_oldest, request.protocol_newest)
    public = signing.public_part(key)
    state, name = run(tools.uow_factory, lambda uow: _enrol(uow, request, proven.thumbprint, public))
    return EnrolReply(
        cluster=name,
        state=state,
        key_thumbprint=proven.thumbprint,
        plane_keys=tools.signer.public_keys(),
        audience=tools.audience,
    )


def accept(uow: UnitOfWork, cluster: ClusterId, actor: str, request_id: str = "") -> ClusterState:
    """An admin's word that an enrolled Cluster may take work; raises NotFound, Conflict. Twice is once."""
    fact = uow.fleet.lock_cluster(cluster)
    if fact is None:
        raise NotFound("there is no such cluster")
    if fact.state is ClusterState.CREATED:
        raise Conflict("no agent has enrolled for it yet", slug="not-enrolled")
    if fact.state is not ClusterState.ENROLLED:
        return fact.state
    return _accept(uow, fact, actor, request_id)


def revoke(uow: UnitOfWork, cluster: ClusterId, actor: str, request_id: str = "") -> int:
    """Ban every key of a Cluster, its Session and its open tokens; the next request is refused. Pods run on.

    Until another agent enrols for it, it takes no new work.
    """
    seen = uow.fleet.cluster(cluster)
    if seen is not None:
        uow.cordons.hold_planning(seen.pool)  # before the Cluster, as everywhere: no commit places work there meanwhile
    fact = uow.fleet.lock_cluster(cluster)
    if fact is None:
        raise NotFound("there is no such cluster")
    banned = uow.agents.ban_keys(cluster)
    uow.agents.end_sessions(cluster)
    uow.cordons.end_earmarks(cluster)
    uow.wake_pool(fact.pool)
    revoked = uow.agents.revoke_tokens(cluster)
    uow.audit.record(
        actor=actor,
        action="cluster.revoke",
        object_kind="cluster",
        object_id=str(cluster),
        facts={"name": fact.name, "keys": banned, "tokens": revoked},
        request_id=request_id,
    )
    return banned


def offer_next_key(uow: UnitOfWork, key: KeyFact, jwk: Mapping[str, object], proof: str | None) -> None:
    """Put a key into the second slot; its owner proves it by a signature over its thumbprint. Raises Invalid."""
    offered = signing.public_key(jwk)
    thumbprint = offered.thumbprint()
    if thumbprint == key.thumbprint:
        return
    try:
        proven = signing.verified(proof or "", offered, None, ALGORITHMS[0])
    except Unauthenticated as error:
        raise Invalid("the next key is not proven by a signature of its own", slug="invalid-key") from error
    if proven.payload != thumbprint.encode():
        raise Invalid("the next key's proof is over something else", slug="invalid-key")
    if not uow.agents.add_key(thumbprint, key.cluster, ALGORITHMS[0], signing.public_part(offered), "next"):
        raise Invalid("the next key is in use elsewhere or banned", slug="invalid-key")
    _note_key(uow, key.cluster, "cluster.offer-key", thumbprint)


def known_key(factory: UnitOfWorkFactory, thumbprint: str) -> KeyFact:
    """The key of this name, to verify a signature with; raises Unauthenticated, Forbidden."""
    with factory() as uow:
        key = uow.agents.key(thumbprint)
    if key is None:
        raise Unauthenticated("no agent has this key", slug="invalid-token")
    if key.banned_at is not None:
        raise Forbidden("this agent was banned", slug="agent-banned")
    return key


def use_key(factory: UnitOfWorkFactory, key: KeyFact) -> None:
    """Take note of a request that this key has truly signed; raises Unauthenticated where it may no longer.

    The first use of the next key makes it the only one. Use of an old one after that may be a copy of it: it is noted.
    """
    if key.slot == "next":
        run(factory, lambda uow: _promote(uow, key))
    elif key.slot == "retired":
        run(factory, lambda uow: _note_key(uow, key.cluster, "cluster.retired-key-used", key.thumbprint))
        raise Unauthenticated("this key was replaced by another", slug="invalid-token")


def note_wrong_cluster(uow: UnitOfWork, key: KeyFact, what: str) -> None:
    """Write down that somebody used this key for another cluster than its own."""
    uow.audit.record(
        actor=f"agent:{key.cluster_name}",
        action="cluster.wrong-cluster",
        object_kind="cluster",
        object_id=str(key.cluster),
        facts={"what": what},
    )


def require_version(oldest: int, newest: int) -> int:
    """The protocol version for this agent; raises TooNew, Invalid."""
    try:
        return negotiate(oldest, newest)
    except VersionRefused as error:
        if oldest > PROTOCOL_VERSION:
            raise TooNew(str(error)) from error
        raise Invalid(str(error), slug="agent-too-old") from error


def _enrol(uow: UnitOfWork, request: EnrolRequest, thumbprint: str, jwk: dict[str, str]) -> tuple[ClusterState, str]:
    if _TOKEN.fullmatch(request.token) is None:
        raise _bad_token()
    token = uow.agents.token(_digest(request.token))
    if token is None or not request.token.startswith(f"mst_{token.cluster}."):
        raise _bad_token()
    fact = uow.fleet.lock_cluster(token.cluster)
    if fact is None:
        raise _bad_token()
    # Under the cluster's lock the row is read again: whoever waited for it sees who came first.
    token = uow.agents.token(_digest(request.token))
    assert token is not None
    if _is_spent(token):
        return _answer_again(uow, fact, token, thumbprint, request)
    if fact.fingerprint not in {None, request.fingerprint} or uow.fleet.fingerprint_taken(request.fingerprint, fact.id):
        raise Conflict("this cluster is enrolled under another name already", slug="cluster-already-enrolled")
    if not uow.agents.use_token(token.id, thumbprint):
        raise _bad_token()
    if not uow.agents.add_key(thumbprint, fact.id, ALGORITHMS[0], jwk, "current"):
        raise Invalid("the key is in use elsewhere or banned", slug="invalid-key")
    uow.agents.end_sessions(fact.id)
    uow.fleet.set_identity(fact.id, request.fingerprint, request.agent_version, request.kubernetes_version)
    uow.wake_pool(fact.pool)  # where the last agent was banned, it takes work again
    actor = f"agent:{fact.name}"
    if fact.state is ClusterState.CREATED:
        fact = fleet.move(uow, fact, ClusterEvent.ENROLLED, actor)
    _note_key(uow, fact.id, "cluster.enrol-key", thumbprint)
    if token.auto_accept and fact.state is ClusterState.ENROLLED:
        return _accept(uow, fact, actor, ""), fact.name
    return fact.state, fact.name


def _promote(uow: UnitOfWork, key: KeyFact) -> None:
    if uow.agents.promote(key.thumbprint):
        _note_key(uow, key.cluster, "cluster.rotate-key", key.thumbprint)


def _answer_again(
    uow: UnitOfWork, fact: ClusterFact, token: TokenFact, thumbprint: str, request: EnrolRequest
) -> tuple[ClusterState, str]:
    """The agent that used it may ask again for a while, since its answer may have been lost."""
    again_until = (token.last_used_at or uow.now) + timedelta(seconds=SAME_ANSWER_SECONDS)
    if token.revoked_at is not None or uow.now > again_until:
        raise _bad_token()
    if token.used_by != thumbprint or fact.fingerprint != request.fingerprint:
        raise Conflict("this enrolment token was used with another key", slug="enrolment-token-used")
    return fact.state, fact.name


def _accept(uow: UnitOfWork, fact: ClusterFact, actor: str, request_id: str) -> ClusterState:
    accepted = fleet.move(uow, fact, ClusterEvent.ACCEPTED, actor, request_id)
    uow.fleet.mark_accepted(fact.id)
    accounting.sync_accounts(uow)  # what it owns counts from now on
    uow.wake_pool(fact.pool)
    return accepted.state


def _is_spent(token: TokenFact) -> bool:
    return token.uses >= token.uses_max


def _bad_token() -> Unauthenticated:
    return Unauthenticated(_BAD_TOKEN, slug="invalid-enrolment-token")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _note_key(uow: UnitOfWork, cluster: ClusterId, action: str, thumbprint: str) -> None:
    facts = {"key": thumbprint}
    uow.audit.record(actor="plane", action=action, object_kind="cluster", object_id=str(cluster), facts=facts)
