"""Who may do what, as the API takes and shows it: tokens, bindings of roles, the caller itself."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from controlplane.contract.rest.common import Moment, Name, PlainText, QueuePath, RestModel, refusal
from controlplane.contract.rest.quantities import Duration

RoleName = Literal["platform-admin", "team-lead", "member", "auditor"]
Kind = Literal["person", "service"]
Scope = Literal["read", "submit", "admin"]

TOKEN_SECONDS = 90 * 86_400  # what a token lives where nothing is said; at most a year (366 d, as any duration)


class TokenCreate(RestModel):
    """A token for a person or service, who gets the role in the Queue's subtree (none: everywhere).

    `scopes` narrow what the role may: `read` looks only, `submit` also submits, cancels and reorders Workloads, `admin`
    does all that the role may; none given is `admin`.
    """

    principal: Name
    kind: Kind = "person"
    role: RoleName = "member"
    queue: QueuePath | None = None
    scopes: Annotated[list[Scope], Field(max_length=3)] = Field(default_factory=list)
    expires_in: Duration | None = None
    name: PlainText = ""

    @field_validator("scopes")
    @classmethod
    def _once(cls, value: list[Scope]) -> list[Scope]:
        if len(set(value)) < len(value):
            raise refusal("invalid-value", "scopes: one is named twice")
        return value


class TokenSummary(RestModel):
    """A token as listed: never its text. `within`: a lead made it, so it reaches no further than this subtree."""

    id: int
    name: str = ""
    principal: str
    kind: str
    scopes: list[str]
    within: str | None = None
    created_at: Moment
    created_by: str = ""
    expires_at: Moment | None = None
    revoked_at: Moment | None = None
    last_used_on: str | None = None  # a day by the plane's clock, in UTC; written once per day


class TokenView(RestModel):
    """A fresh token; its text is shown this once, and empty where a repeated request is answered."""

    id: int
    principal: str
    kind: str = "person"
    role: str
    queue: str | None = None
    scopes: list[str] = Field(default_factory=list)
    within: str | None = None
    expires_at: Moment | None = None
    token: str


class BindingCreate(RestModel):
    """A role for a person or service in a Queue's subtree; without a Queue: in the whole plane."""

    principal: Name
    kind: Kind = "person"
    role: RoleName
    queue: QueuePath | None = None


class BindingView(RestModel):
    """Who has which role where."""

    id: int
    principal: str
    kind: str
    role: str
    queue: str | None = None
    created_at: Moment


class WhoAmI(RestModel):
    """Who the caller is to the plane, and what its token may."""

    principal: str
    kind: str
    roles: list[str]
    scopes: list[str] = Field(default_factory=list)
    token: int | None = None
    expires_at: Moment | None = None
