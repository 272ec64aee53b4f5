"""What the API shows of the plane itself: cycles, rebalance reports, the doctor's findings, the audit log."""

from pydantic import Field

from controlplane.contract.rest.common import Json, Moment, RestModel


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
    state_from: str | None = None
    state_to: str | None = None
    request_id: str = ""
    facts: dict[str, Json] = Field(default_factory=dict)


class Readiness(RestModel):
    """Whether the plane's path works, part by part."""

    ready: bool
    parts: dict[str, str]
