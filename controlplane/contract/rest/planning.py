"""What a plan comes to, in people's words: who starts where, who leaves, who waits and why, and who has which share.

The same whether it was planned here from files (`muster plan`) or by a plane (`muster apply --dry-run --plan`).
"""

from typing import Literal

from pydantic import Field

from controlplane.contract.rest.common import Json, Moment, ReasonView, RestModel


class NodePods(RestModel):
    """Pods of one PodSet on one node. `ranks` as in "0-7,12"; `units` of the Flavor in all, 0 where it wants none."""

    node: str
    pod_set: str
    pods: int
    flavor: str
    units: int
    ranks: str


class StartPlace(RestModel):
    """One cluster's part of a start, nodes in the order of their ranks."""

    cluster: str
    pods: int
    nodes: list[NodePods]


class StartView(RestModel):
    """A Workload that starts: `charges` are units by Flavor; `standsOn` names those that have to leave first."""

    workload: str
    queue: str
    priority: int
    attempt: int
    pods: int
    charges: dict[str, int]
    placements: list[StartPlace]
    stands_on: list[str] = Field(default_factory=list)


class LeaveView(RestModel):
    """A running Workload that has to give its devices back, and for whom."""

    workload: str
    queue: str
    attempt: int
    asker: str
    asker_queue: str
    reason: ReasonView


class KeepView(RestModel):
    """Room that is kept for a Workload until it starts, as units by Flavor."""

    workload: str
    queue: str
    cluster: str
    units: dict[str, int]
    until: Moment


class WaitView(RestModel):
    """A Workload that waits, with every Reason, the nearest to a start first."""

    workload: str
    queue: str
    priority: int
    reasons: list[ReasonView]


class ShareView(RestModel):
    """What one Queue has of one Flavor, in units. No `nominal`: a root that owns what clusters own.

    `used` before the plan and `after` it; `entitled` is its fair share of what is wanted now, in whole
    units; none where it wants nothing of it.
    """

    queue: str
    flavor: str
    nominal: int | None = None
    owns: int
    used: int
    after: int
    entitled: int | None = None


class PoolPlan(RestModel):
    """One Pool's plan. `planSha256` is what a planner would store for it; work is counted in units, not in time."""

    pool: str
    plan_sha256: str
    policy_version: int
    work_units: int
    left_over: int
    starts: list[StartView] = Field(default_factory=list)
    leaves: list[LeaveView] = Field(default_factory=list)
    keeps: list[KeepView] = Field(default_factory=list)
    waits: list[WaitView] = Field(default_factory=list)
    shares: list[ShareView] = Field(default_factory=list)


class WorldPlan(RestModel):
    """What one cycle of each Pool would do at this moment."""

    now: Moment
    pools: list[PoolPlan]


class SnapshotView(RestModel):
    """A Pool's live world as records of the core's values: what `muster plan -f` reads again as `kind: Snapshot`."""

    api_version: str
    kind: str
    now: Moment
    policy: dict[str, Json]
    snapshot: dict[str, Json]


class ReplayView(RestModel):
    """A stored cycle, run again. `identical`: the same world gave the same plan, bit for bit."""

    cycle: int
    identical: bool
    stored_sha256: str
    replayed_sha256: str
    decisions: int
    waiting: int
    work_units: int


class CycleLink(RestModel):
    """One cycle of a chain, as stored. `changes` are rows of the planner's world, in the first link all of them.

    `changes` and `plan` (of the last link alone) are JSON, compressed (zlib) and in base64: hashes are of bytes.
    """

    cycle: int
    policy_version: int
    policy: dict[str, Json]
    now: Moment
    changes: str
    plan: str = ""
    plan_sha256: str


class CycleRecordView(RestModel):
    """What it takes to run a cycle again elsewhere: its base, and every cycle after it up to this one."""

    cycle: int
    links: list[CycleLink] = Field(min_length=1)


Fate = Literal["starts", "waits", "leaves", "runs"]


class FateCounts(RestModel):
    """How many Workloads of a Pool would start, wait, have to leave, or run on."""

    starts: int
    waits: int
    leaves: int
    runs: int


class ForeseenWork(RestModel):
    """A Workload whose fate the documents would change. No `before`: it comes with them.

    What belongs to others has no name: "other work" of "another queue", with its numbers alone.
    """

    workload: str
    queue: str
    before: Fate | None = None
    clusters: list[str] = Field(default_factory=list)
    charges: dict[str, int] = Field(default_factory=dict)
    asker: str = ""
    reasons: list[ReasonView] = Field(default_factory=list)


class ForeseenPlan(RestModel):
    """What the next cycle of a Pool would do differently, were these documents applied now.

    Only what differs is listed, at most 1,000 of each; the counts are of everything. `runs`: who need not leave then.
    """

    pool: str
    before: FateCounts
    after: FateCounts
    starts: list[ForeseenWork] = Field(default_factory=list)
    waits: list[ForeseenWork] = Field(default_factory=list)
    leaves: list[ForeseenWork] = Field(default_factory=list)
    runs: list[ForeseenWork] = Field(default_factory=list)
