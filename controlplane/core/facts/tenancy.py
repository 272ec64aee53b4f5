"""Queues, Pools, Policies, Principals and tokens as stored, as plain values.

What a planner needs of a Queue is `core.tenancy`; here stands what services need to change one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum

from controlplane.core.ids import PoolId, QueueId
from controlplane.core.tenancy import Quota


class Role(StrEnum):
    """What a Principal may do, in a Queue subtree or everywhere."""

    PLATFORM_ADMIN = "platform-admin"
    TEAM_LEAD = "team-lead"
    MEMBER = "member"
    AUDITOR = "auditor"


class TokenScope(StrEnum):
    """What a token is for; each holds what stands before it."""

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"

    def holds(self) -> frozenset["TokenScope"]:
        """Itself, and those that it includes."""
        every = tuple(TokenScope)
        return frozenset(every[: every.index(self) + 1])


EVERY_SCOPE = frozenset(TokenScope)


@dataclass(frozen=True, slots=True)
class Binding:
    """A role and the subtree where it holds; no path: the whole plane."""

    role: Role
    queue_path: str | None = None

    def covers(self, path: str | None) -> bool:
        """Whether it holds for the Queue at `path`; None asks for the whole plane."""
        if self.queue_path is None:
            return True
        return path is not None and (path == self.queue_path or path.startswith(self.queue_path + "/"))


@dataclass(frozen=True, slots=True)
class TokenFact:
    """The token that a Principal calls with."""

    id: int
    expires_at: datetime | None = None
    within: str | None = None  # the subtree that its maker could give away; it reaches no further
    last_used_on: date | None = None


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls."""

    id: int
    kind: str  # person | service | agent
    name: str
    bindings: tuple[Binding, ...] = ()
    scopes: frozenset[TokenScope] = EVERY_SCOPE  # of the token that it calls with
    token: "TokenFact | None" = None
    page_key: bytes = field(default=b"", repr=False, compare=False)  # signs the cursors of lists that it asks for

    @property
    def actor(self) -> str:
        """How the audit log names it."""
        return f"{self.kind}:{self.name}"

    def bounded(self) -> "Principal":
        """The same, with no more than its token reaches: what a lead gave away ends where the lead's own right does.

        A token that a lead made never carries the role of an admin, whatever its bearer is given later.
        """
        within = None if self.token is None else self.token.within
        if within is None:
            return self
        lead = Binding(Role.TEAM_LEAD, within)
        kept = [each for each in self.bindings if each.role is not Role.PLATFORM_ADMIN]
        inner = [replace(each, queue_path=within) if each.covers(within) else each for each in kept]
        return replace(self, bindings=tuple(each for each in inner if lead.covers(each.queue_path)))


@dataclass(frozen=True, slots=True)
class NewToken:
    """A bearer token to be stored; only its hash ever is."""

    principal_id: int
    token_sha256: bytes
    name: str
    expires_at: datetime | None = None
    scopes: frozenset[TokenScope] = frozenset()  # none: all
    within: str | None = None
    created_by: str = ""


@dataclass(frozen=True, slots=True)
class QueueFact:
    """A Queue as stored. `namespace` is its own; empty: inherited."""

    id: QueueId
    path: str
    parent: QueueId | None
    weight: int
    namespace: str
    labels: Mapping[str, str]
    version: int


@dataclass(frozen=True, slots=True)
class NewQueue:
    """A Queue to be written with all Quotas that it lists from now on; its parent is what its path says."""

    path: str
    weight: int
    namespace: str
    labels: Mapping[str, str]
    spec: Mapping[str, object]
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, slots=True)
class Use:
    """What keeps a Queue or Pool from going: Workloads that have not ended, held units, clusters."""

    workloads: int = 0
    held: int = 0
    clusters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as its row holds it; `spec` may name defaults, and a Policy's is written in the core's words."""

    kind: str
    name: str
    id: int
    labels: Mapping[str, str]
    spec: Mapping[str, object]
    version: int | None = None  # where its kind counts them


@dataclass(frozen=True, slots=True)
class PoolFact:
    """A Pool as stored."""

    id: PoolId
    name: str
    spec: Mapping[str, object]
    policy_version: int


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What an idempotency key holds: the request's hash and, once answered, the answer."""

    body_sha256: bytes
    status: int | None
    response: Mapping[str, object] | None
