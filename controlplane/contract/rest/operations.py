"""What the API shows of the plane itself: cycles, rebalance reports, the doctor's findings, the audit log."""

from pydantic import Field

from controlplane.contract.rest.common import Json, Moment, ReasonView, RestModel


class CycleView(RestModel):
    """One planning cycle."""

    id: int
    pool: str
    policy_version: int
    decisions: int
    dropped: int
    work_units: int
    left_over: int
    started_at: Moment
    finished_at: Moment
    plan_sha256: str


class PlacedView(RestModel):
    """One cluster's part of an admission: how many pods and units of each Flavor go where."""

    cluster: str
    nodes: int
    pods: int
    units: dict[str, int]


class DecisionView(RestModel):
    """One decision of a cycle: admit, reclaim or earmark. `asker`: for whose sake; `standsOn`: what must hold too."""

    kind: str
    workload: str
    name: str = ""
    queue: str | None = None
    attempt: int | None = None
    placements: list[PlacedView] = Field(default_factory=list)
    asker: str | None = None
    asker_name: str = ""
    reason: ReasonView | None = None
    until: Moment | None = None
    stands_on: list[str] = Field(default_factory=list)


class WaitingView(RestModel):
    """A Workload that the cycle left waiting, and why."""

    workload: str
    name: str = ""
    queue: str | None = None
    reasons: list[ReasonView]


class PlanView(RestModel):
    """What one cycle decided, in the order of its decisions; of those that wait at most the first 1,000."""

    cycle: int
    plan_sha256: str
    work_units: int
    left_over: int
    decisions: list[DecisionView] = Field(default_factory=list)
    waiting: list[WaitingView] = Field(default_factory=list)
    waiting_total: int = 0


class RebalanceView(RestModel):
    """The latest report-only rebalancing pass of a Pool."""

    pool: str
    at: Moment
    report: dict[str, Json]


class ViolationView(RestModel):
    """A broken invariant, as the doctor words it."""

    invariant: str
    detail: str


class DoctorView(RestModel):
    """What the doctor found; healthy if nothing."""

    healthy: bool
    violations: list[ViolationView] = Field(default_factory=list)


class AuditView(RestModel):
    """One line of the audit log."""

    id: int
    at: Moment
    actor: str
    action: str
    object_kind: str
    object_id: str
    object_name: str = ""  # what people call it, where the id is none of their words
    queue: str | None = None
    state_from: str | None = None
    state_to: str | None = None
    request_id: str = ""
    facts: dict[str, Json] = Field(default_factory=dict)
    before_sha256: str | None = None
    after_sha256: str | None = None


class Readiness(RestModel):
    """Whether the plane's path works, part by part."""

    ready: bool
    parts: dict[str, str]
