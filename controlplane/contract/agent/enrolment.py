"""Enrolment and the opening of a Session: what an agent says first.

The body of an enrolment is a compact JWS signed with the agent's own key, whose public JWK stands in its
header: the one place where a key is taken from the message. Every later request carries a
proof-of-possession JWT in `Authorization: AgentPoP <JWS>` (see `SignedClaims`).
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from controlplane.contract.agent.base import Amount, Moment, Text, WireModel

ENROL_TYPE = "agent-enrol+jwt"
POP_TYPE = "agent-pop+jwt"
DIRECTIVES_TYPE = "directives+jws"
AUTH_SCHEME = "AgentPoP"
ALGORITHMS = ("ES256",)

Thumbprint = Annotated[str, StringConstraints(min_length=43, max_length=43, pattern=r"^[A-Za-z0-9_-]+$")]


class EnrolRequest(WireModel):
    """The JWS payload of `POST /agent/v1/enrol` (HTTP body: `EnrolEnvelope`)."""

    token: Annotated[str, StringConstraints(min_length=20, max_length=200)]
    fingerprint: Annotated[str, StringConstraints(min_length=8, max_length=64)]  # uid of namespace kube-system
    kubernetes_version: Text = ""
    agent_version: Text = ""
    instance_id: Text
    protocol_oldest: int = 1
    protocol_newest: int = 1


class EnrolEnvelope(WireModel):
    """`jws`: compact serialisation over an EnrolRequest, header alg ES256, typ agent-enrol+jwt, jwk."""

    jws: Annotated[str, StringConstraints(max_length=16_384)]


class EnrolReply(WireModel):
    """Where the agent stands now; `plane_keys` are the JWKs that sign directives."""

    cluster: str
    state: str  # enrolled (waits for an admin) | accepted …
    key_thumbprint: Thumbprint
    plane_keys: list[dict[str, str]]
    audience: str


class SignedClaims(WireModel):
    """Claims of the proof-of-possession JWT; `kid` in its header is the key's thumbprint.

    `bh`: base64url SHA-256 of the raw body. `se` and `seq`: session epoch and number; 0 for hello.
    """

    sub: str
    aud: str
    htm: Literal["POST", "GET"]
    htu: str  # path only
    bh: str
    iat: int
    exp: int
    se: int = 0
    seq: int = 0


class HelloRequest(WireModel):
    """`POST /agent/v1/hello` opens a Session; what the agent knows of the last one."""

    instance_id: Text
    fingerprint: Annotated[str, StringConstraints(min_length=8, max_length=64)]
    kubernetes_version: Text = ""
    agent_version: Text = ""
    protocol_oldest: int = 1
    protocol_newest: int = 1
    features: list[Text] = Field(default_factory=list, max_length=64)
    namespaces: list[Text] = Field(default_factory=list, max_length=10_000)  # that the agent may write to
    acked_number: Amount = 0  # last directive number that the cluster's objects show; 0 = unknown
    next_key: dict[str, str] | None = None  # public JWK of the key to rotate to
    next_key_proof: Annotated[str, StringConstraints(max_length=4096)] | None = None  # JWS by it over its thumbprint


class HelloReply(WireModel):
    """The new Session. `mode`: normal | full-resync | recovery | quarantined."""

    session_epoch: int
    incarnation: str
    plane_epoch: int
    protocol: int
    mode: str
    server_time: Moment
    lease_seconds: int
    poll_seconds: int
    observations_max: int = 500
    plane_keys: list[dict[str, str]]
    spec: dict[str, object] = Field(default_factory=dict)  # the Cluster document's time-outs and topology keys
