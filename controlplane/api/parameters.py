"""Query parameters of lists: typed, bounded, and none that is not known."""

from typing import Annotated, Literal

from fastapi import Header, Path
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from controlplane.contract.rest.cordons import WorkChoice
from controlplane.contract.rest.events import EVENT_KINDS
from controlplane.services.cursors import LIMIT_MAX, TEXT_MAX, Paging
from controlplane.services.errors import Malformed

IDEMPOTENCY_KEY = "Idempotency-Key"
IdempotencyKey = Annotated[str | None, Header(alias=IDEMPOTENCY_KEY)]
"""Documents the header. Its value is read from the request, because an empty one would pass for none here."""

NUMBER_MAX = 2**63 - 1
Number = Annotated[int, Path(ge=1, le=NUMBER_MAX)]
"""The type of a path's part that is a row's number."""

Word = Annotated[str | None, Field(max_length=600)]
Supposition = Annotated[str, Field(max_length=2_000)]
SUPPOSITIONS_MAX = 16


class PageQuery(BaseModel):
    """Which page."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = 100
    cursor: Annotated[str | None, Field(max_length=TEXT_MAX)] = None

    @property
    def paging(self) -> Paging:
        """The same for services."""
        return Paging(self.limit, self.cursor)


class WorkloadQuery(PageQuery):
    """Which Workloads; `state` may name several, with commas; `label` is key=value and may come again."""

    queue: Word = None
    state: Word = None
    owner: Word = None
    name: Word = None
    cluster: Word = None
    label: Annotated[list[str], Field(max_length=10)] = Field(default_factory=list)
    submitted_after: Annotated[AwareDatetime | None, Field(alias="submittedAfter")] = None
    submitted_before: Annotated[AwareDatetime | None, Field(alias="submittedBefore")] = None


class ExplainQuery(BaseModel):
    """What is supposed of a Workload that waits; `if` may come again."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    texts: Annotated[list[Supposition], Field(alias="if", max_length=SUPPOSITIONS_MAX)] = Field(default_factory=list)


class FleetQuery(PageQuery):
    """Which nodes or devices."""

    cluster: Word = None
    node: Word = None
    flavor: Word = None


class DeviceQuery(FleetQuery):
    """Which devices."""

    health: Word = None


class RemovalQuery(BaseModel):
    """What becomes of the work in a cluster that is removed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    work: WorkChoice = "refuse"


class CycleQuery(PageQuery):
    """Whose cycles."""

    pool: Word = None


class PeopleQuery(PageQuery):
    """Whose tokens or bindings."""

    principal: Word = None
    kind: Literal["person", "service"] | None = None


class TokenQuery(PeopleQuery):
    """Which tokens; `ended` also those that are revoked or over."""

    ended: bool = False


class BindingQuery(PeopleQuery):
    """Which bindings; `queue` means its whole subtree."""

    role: Literal["platform-admin", "team-lead", "member", "auditor"] | None = None
    queue: Word = None


class LedgerQuery(PageQuery):
    """Which accounts; `queue` means its whole subtree."""

    queue: Word = None
    flavor: Word = None


class TransferQuery(LedgerQuery):
    """Which transfers; `workload` is an id or name."""

    workload: Word = None


class EventQuery(BaseModel):
    """What to hear of; `kind` may name several, with commas; `queue` means its whole subtree."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    workload: Word = None
    queue: Word = None
    kind: Annotated[str | None, Field(max_length=200, pattern=r"^[a-z]{1,20}(,[a-z]{1,20})*$")] = None
    after: Annotated[int | None, Field(ge=0, le=2**62)] = None

    def kinds(self) -> tuple[str, ...]:
        """Those that are named; raises Malformed for one that is none."""
        return _known_kinds(tuple((self.kind or "").split(",")) if self.kind else ())


class AuditQuery(PageQuery):
    """Which lines of the audit log."""

    kind: Word = None
    object: Word = None
    actor: Word = None
    since: AwareDatetime | None = None

    def known_kind(self) -> str | None:
        """The one that is named; raises Malformed for one that is none."""
        if self.kind is not None:
            _known_kinds((self.kind,))
        return self.kind


def _known_kinds(named: tuple[str, ...]) -> tuple[str, ...]:
    if unknown := set(named) - EVENT_KINDS:
        words = f"there is no kind {min(unknown)}; there are {', '.join(sorted(EVENT_KINDS))}"
        raise Malformed(words, slug="invalid-filter")
    return named
