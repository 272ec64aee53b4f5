"""Which agent calls: a proof-of-possession signature over method, path and body, by a key that the plane knows.

In order: the key's row, its algorithm, the signature, what it is over, the time. Replay is stopped by the session's
sequence numbers, that of a hello by its time (`services.sync`), so nothing is remembered here. Bodies were limited
before anything was read.
"""

import base64
import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import ValidationError

from controlplane.contract.agent.enrolment import AUTH_SCHEME, POP_TYPE, SignedClaims
from controlplane.core.facts.fleet import KeyFact
from controlplane.services import enrolment, signing
from controlplane.services.errors import Forbidden, Unauthenticated
from controlplane.services.ports.unit_of_work import UnitOfWorkFactory, run

WINDOW_SECONDS = 300
LIFE_SECONDS_MAX = 60
_HEADER_BYTES_MAX = 8_192


class ClockSkewed(Unauthenticated):
    """The signature's time is too far from ours; the answer tells our time."""

    slug = "clock-skew"

    def __init__(self, server_time: datetime) -> None:
        super().__init__("the clock of the agent is too far from the plane's")
        self.server_time = server_time


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """What the signature has to be over."""

    authorization: str
    method: str
    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class AgentCall:
    """An agent that proved its key, and the place in its Session that it claims."""

    key: KeyFact
    epoch: int
    seq: int
    signed_at: int  # seconds since 1970


def authenticate(factory: UnitOfWorkFactory, audience: str, request: SignedRequest) -> AgentCall:
    """Who signed this very request, now; raises Unauthenticated, Forbidden. First use of a next key promotes it."""
    scheme, _, token = request.authorization.partition(" ")
    if scheme != AUTH_SCHEME or not token or len(token) > _HEADER_BYTES_MAX:
        raise Unauthenticated(f"sign the request: Authorization: {AUTH_SCHEME} …")
    thumbprint = signing.header_of(token).get("kid")
    if not isinstance(thumbprint, str) or len(thumbprint) > 64:
        raise Unauthenticated("the signature names no key", slug="invalid-token")
    key = enrolment.known_key(factory, thumbprint)
    proven = signing.verified(token, signing.public_key(key.jwk), POP_TYPE, key.algorithm)
    try:
        claims = SignedClaims.model_validate_json(proven.payload)
    except ValidationError as error:
        raise Unauthenticated("the claims are not complete", slug="invalid-token") from error
    _require_this_request(claims, audience, request)
    _require_now(claims)
    if claims.sub != key.cluster_name:
        run(factory, lambda uow: enrolment.note_wrong_cluster(uow, key, f"it called itself {claims.sub[:253]!r}"))
        raise Forbidden("this key belongs to another cluster", slug="wrong-cluster")
    enrolment.use_key(factory, key)
    return AgentCall(key, claims.se, claims.seq, claims.iat)


def _require_this_request(claims: SignedClaims, audience: str, request: SignedRequest) -> None:
    digest = base64.urlsafe_b64encode(hashlib.sha256(request.body).digest()).rstrip(b"=").decode()
    meant = (claims.aud.rstrip("/"), claims.htm, claims.htu, claims.bh)
    if meant != (audience.rstrip("/"), request.method, request.path, digest):
        raise Unauthenticated("the signature is over another request", slug="invalid-token")


def _require_now(claims: SignedClaims) -> None:
    now = datetime.now(UTC)
    seconds = now.timestamp()
    if not 0 < claims.exp - claims.iat <= LIFE_SECONDS_MAX:
        raise Unauthenticated(f"a signature holds for at most {LIFE_SECONDS_MAX} s", slug="invalid-token")
    if claims.exp < seconds or claims.iat > seconds + WINDOW_SECONDS:
        raise ClockSkewed(now)
