"""Documents of Queues, Pools, Policies and Windows, and what the API shows of Queues."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from controlplane.contract.rest.common import (
    DocumentHead,
    FlavorText,
    FreeName,
    Json,
    Metadata,
    Moment,
    Name,
    PlainText,
    Positive,
    QueueMetadata,
    QueuePath,
    RestModel,
    refusal,
)
from controlplane.contract.rest.workloads import not_yet

UNITS_MAX = 10**9
Seconds = Annotated[int, Field(strict=True, ge=1, le=604_800)]
Permille = Annotated[int, Field(strict=True, ge=0, le=1_000)]
Preference = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
Units = Annotated[int, Field(strict=True, ge=0, le=UNITS_MAX)]


class DomainQuota(RestModel):
    """Whole topology domains as the guarantee."""

    level: Name
    count: Positive


class QuotaSpec(RestModel):
    """One Queue's limits for one Flavor. No `nominal` at a root: what clusters own and nobody else claims."""

    flavor: FlavorText
    nominal: Units | None = None
    borrow: Units | None = None
    lend: Units | None = None
    domains: DomainQuota | None = None

    @model_validator(mode="after")
    def _obeyed(self) -> "QuotaSpec":
        if self.domains is not None:
            raise not_yet("quotas[].domains")
        return self


class BudgetSpec(RestModel):
    """Device-hours that a Queue and all below it may use in each period of UTC; `flavor` "*" counts all together.

    A hard one stops admission when it is used up, a soft one puts its Queue behind its siblings.
    """

    flavor: FlavorText | Literal["*"]
    device_hours: Annotated[int, Field(strict=True, ge=1, le=UNITS_MAX)]
    per: Literal["day", "week", "month", "quarter", "year"]
    hard: bool = False


class QueueSpec(RestModel):
    """A node of the quota tree."""

    weight: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 1
    namespace: FreeName | None = None
    quotas: Annotated[list[QuotaSpec], Field(max_length=256)] = Field(default_factory=list)
    budgets: list[BudgetSpec] = Field(default_factory=list, max_length=64)
    most_running: Positive | None = None

    @model_validator(mode="after")
    def _obeyed(self) -> "QueueSpec":
        budgeted = [(budget.flavor, budget.per) for budget in self.budgets]
        if len(set(budgeted)) < len(budgeted):
            raise refusal("name-conflict", "a Flavor has two budgets of one period in one Queue")
        flavors = [quota.flavor for quota in self.quotas]
        if len(set(flavors)) < len(flavors):
            raise refusal("name-conflict", "a Flavor has two quotas in one Queue")
        return self


class QueueDocument(DocumentHead):
    """`kind: Queue`; its name is its path, so its parent is what stands before the last slash."""

    kind: Literal["Queue"]
    metadata: QueueMetadata
    spec: QueueSpec = QueueSpec()


class QueueMove(RestModel):
    """Where a Queue goes: its new whole path."""

    path: QueuePath


class PoolSpec(RestModel):
    """A set of nodes planned together. Clusters name their Pool; nodes of one cluster are not divided yet."""

    nodes: dict[str, PlainText] | None = None
    levels: list[Name] = Field(default_factory=list, max_length=8)
    policy: Name | None = None

    @model_validator(mode="after")
    def _obeyed(self) -> "PoolSpec":
        if self.nodes is not None:
            raise not_yet("Pool nodes", "a Cluster names its Pool")
        if self.levels:
            raise not_yet("Pool levels", "agents report them")
        if self.policy is not None:
            raise not_yet("Pool policy", "a Policy document carries its Pool's name")
        return self


class PoolDocument(DocumentHead):
    """`kind: Pool`."""

    kind: Literal["Pool"]
    metadata: Metadata
    spec: PoolSpec = PoolSpec()


class PolicySpec(RestModel):
    """The knobs of one Pool; what is not given keeps its default."""

    work_units_max: Annotated[int, Field(strict=True, ge=1_000, le=1_000_000_000)] | None = None
    admissions_max: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = None
    reclaim: Annotated[bool, Field(strict=True)] | None = None
    earmark_seconds: Seconds | None = None
    evidence_seconds: Seconds | None = None
    inventory_stale_seconds: Seconds | None = None
    inventory_fall_permille_per_hour: Annotated[int, Field(strict=True, ge=1, le=3_600_000)] | None = None
    exclusion_seconds: Seconds | None = None
    exclusions_before_reason: Annotated[int, Field(strict=True, ge=1, le=1_000)] | None = None
    node_lost_seconds: Seconds | None = None
    backoff_seconds: Seconds | None = None
    dynamic_spread_below_permille: Permille | None = None
    dynamic_pack_from_permille: Permille | None = None
    dynamic_large_devices: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] | None = None
    dynamic_large_permille: Permille | None = None
    history_half_life_seconds: Annotated[int, Field(strict=True, ge=60, le=31_536_000)] | None = None
    history_strength_permille: Annotated[int, Field(strict=True, ge=0, le=10_000)] | None = None
    history_floor_permille: Annotated[int, Field(strict=True, ge=1, le=1_000)] | None = None
    history_margin_permille: Permille | None = None
    weights_every_seconds: Seconds | None = None
    cluster_preference: Annotated[dict[Name, Preference], Field(max_length=1_000)] | None = None


class PolicyDocument(DocumentHead):
    """`kind: Policy`; its name is its Pool's."""

    kind: Literal["Policy"]
    metadata: Metadata
    spec: PolicySpec


def _refuse_window(_: dict[str, Json]) -> dict[str, Json]:
    raise not_yet("kind Window")


class WindowDocument(DocumentHead):
    """`kind: Window`: known, and not obeyed yet."""

    kind: Literal["Window"]
    metadata: Metadata
    spec: Annotated[dict[str, Json], AfterValidator(_refuse_window)]


class QuotaView(RestModel):
    """One Queue's limits for one Flavor, and what is in use of it."""

    flavor: str
    nominal: int | None = None
    borrow: int | None = None
    lend: int | None = None
    subtree: int = 0  # its nominal and what its children do not keep
    potential: int = 0  # the most that it could ever use
    available: int = 0  # the most that it may use more now; negative after a cut
    used: int = 0
    pending: int = 0  # of `used`: placed, not running yet
    running: int = 0  # of `used`
    borrowed: int = 0  # of `used`: beyond its own
    entitled: float = 0  # what is its fair share of what all want now, for all below it; rounded down to hundredths
    burst_credit: float | None = None  # device-hours less than its share that it had lately; below 0: more


class BudgetView(RestModel):
    """One Queue's budget in the period that runs; `limit` and `used` (rounded down) in device-hours."""

    flavor: str  # "*": all together
    limit: int
    used: int
    per: str
    hard: bool = False
    is_spent: bool = False
    ends_at: Moment  # when the period ends and it begins anew


class QueueView(RestModel):
    """A Queue with its quotas and usage."""

    path: str
    parent: str | None = None
    weight: int
    weight_now: float = 0  # what history leaves of it, as reckoned last
    namespace: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    is_leaf: bool
    version: int
    quotas: list[QuotaView] = Field(default_factory=list)
    budgets: list[BudgetView] = Field(default_factory=list)
    most_running: int | None = None  # Workloads that may be under way at once, in it and below it
    waiting: int = 0
    running: int = 0
