"""The Workload document and what the API shows of one.

Every field of the design is in the schema; those that nothing would obey yet are refused with "not yet",
so that nobody believes in a promise that is not kept. Pod templates stay JSON: what they may not contain is
`services.podspec`.
"""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from controlplane.contract.rest.common import (
    Count,
    DocumentHead,
    FlavorText,
    Json,
    Metadata,
    Moment,
    Name,
    PlainText,
    Positive,
    QueuePath,
    ReasonView,
    RestModel,
    Warned,
    refusal,
)
from controlplane.contract.rest.quantities import Duration, MemoryBytes

PRIORITY_CLASSES = {"production": 1_000_000, "high": 10_000, "normal": 1_000, "low": 500, "best-effort": 100}
PRIORITY_MAX = 1_000_000
REPLICAS_MAX = 100_000
DEVICES_MAX = 1_000_000
SPEED_UNIT = 1_000
CLUSTERS_MAX = 64


def not_yet(field: str, words: str = "") -> ValueError:
    """Refuse a field that the schema knows and nothing obeys yet."""
    return refusal("not-yet", f"{field} is not obeyed yet, so it is not accepted{': ' if words else ''}{words}")


class FlavorChoice(RestModel):
    """A Flavor that would do; `speed` in thousandths of the first."""

    name: FlavorText
    speed: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = SPEED_UNIT


class SliceRequest(RestModel):
    """Groups of `size` pods inside a PodSet that must share a domain of level `required` each."""

    size: Positive
    required: Name


class TopologyRequest(RestModel):
    """One level at which the PodSet must (`required`) or would like to (`preferred`) share a domain.

    `slices` are finer groups inside it. `with` names the PodSet that this one sits beside, at the level of that one.
    """

    required: Name | None = None
    preferred: Name | None = None
    slices: SliceRequest | None = None
    with_: Annotated[Name | None, Field(alias="with")] = None

    @model_validator(mode="after")
    def _one_of(self) -> "TopologyRequest":
        if self.required is not None and self.preferred is not None:
            raise refusal("invalid-value", "topology names one level, either required or preferred")
        is_bare = self.required is None and self.preferred is None
        if self.with_ is not None and (self.slices is not None or not is_bare):
            raise refusal("invalid-value", "topology.with takes the level of the PodSet that it names; give no other")
        if is_bare and self.slices is None and self.with_ is None:
            raise refusal("invalid-value", "topology names a level (required or preferred), slices, or with")
        return self


class PodSetSpec(RestModel):
    """Identical pods. `devices` per pod, read from the template's limits where absent.

    With `minReplicas` it starts with as many pods as there is room for, at least so many and at most `replicas`.
    """

    name: Name
    replicas: Annotated[int, Field(strict=True, ge=1, le=REPLICAS_MAX)] = 1
    min_replicas: Positive | None = None
    devices: Annotated[int, Field(strict=True, ge=0, le=DEVICES_MAX)] | None = None
    flavors: Annotated[list[FlavorChoice], Field(max_length=16)] = Field(default_factory=list)
    topology: TopologyRequest | None = None
    template: dict[str, Json] | None = None

    @model_validator(mode="after")
    def _obeyed(self) -> "PodSetSpec":
        if self.min_replicas is not None and self.min_replicas > self.replicas:
            words = f"minReplicas is {self.min_replicas}, and there are {self.replicas} replicas"
            raise refusal("invalid-quantity", words)
        size = self.topology.slices.size if self.topology is not None and self.topology.slices is not None else 1
        for name, pods in (("replicas", self.replicas), ("minReplicas", self.min_replicas or size)):
            if pods % size:
                raise refusal("invalid-quantity", f"{name} is {pods}, which is no multiple of slices of {size} pods")
        names = [flavor.name for flavor in self.flavors]
        if len(set(names)) < len(names):
            raise refusal("invalid-value", "a Flavor is named twice")
        return self


class Requires(RestModel):
    """Facts that clusters must have (`storage`, `data`), and what each pod needs of its node beside its template."""

    storage: list[Name] = Field(default_factory=list, max_length=32)
    data: list[PlainText] = Field(default_factory=list, max_length=64)
    image: Literal["warm"] | None = None
    rdma: Count | None = None
    hugepages: MemoryBytes | None = None
    local_storage: MemoryBytes | None = None

    @field_validator("image")
    @classmethod
    def _cold(cls, value: str | None) -> str | None:
        if value is not None:
            raise not_yet("requires.image")
        return value


class ClusterChoice(RestModel):
    """Which clusters may take it, and over how many of one network domain it may be divided.

    Divided are whole PodSets, and PodSets in slices between these. Other clusters find rank 0 by the `memberAddress` of
    its Cluster.
    """

    max: Annotated[int, Field(strict=True, ge=1, le=CLUSTERS_MAX)] = 1
    selector: dict[str, PlainText] = Field(default_factory=dict, max_length=32)
    avoid: list[Name] = Field(default_factory=list, max_length=256)


def _check_company(pod_sets: list[PodSetSpec]) -> None:
    """Every PodSet that `topology.with` names is there, and nobody sits beside itself in the end."""
    beside = {each.name: each.topology.with_ for each in pod_sets if each.topology is not None and each.topology.with_}
    names = {each.name for each in pod_sets}
    for name, other in beside.items():
        if other not in names:
            raise refusal("invalid-value", f"PodSet {name} sits with {other}, and there is no such PodSet")
        seen, at = {name}, other
        while at in beside and at not in seen:
            seen.add(at)
            at = beside[at]
        if at in seen:
            raise refusal("invalid-value", f"PodSet {name} sits with itself, by way of {other}")


class CheckpointSpec(RestModel):
    """How a Workload saves its state."""

    mode: Literal["none", "periodic", "handshake"] = "none"
    deadline: Duration | None = None
    restore: Duration | None = None
    every: Duration | None = None

    @model_validator(mode="after")
    def _none(self) -> "CheckpointSpec":
        if self.mode != "none":
            raise not_yet("checkpoint", "only mode none is")
        return self


class Disturb(RestModel):
    """How often it may be disturbed."""

    min_runtime: Duration | None = None
    most_per_day: Count | None = None


class WorkloadSpec(RestModel):
    """What is asked for: all of it starts or none of it."""

    queue: QueuePath
    pool: Name = "default"
    priority: Annotated[int, Field(strict=True, ge=0, le=PRIORITY_MAX)] | None = None
    priority_class: Literal["production", "high", "normal", "low", "best-effort"] | None = None
    pod_sets: Annotated[list[PodSetSpec], Field(min_length=1, max_length=64)]
    strategy: Literal["pack", "spread", "compact", "dynamic"] = "pack"
    requires: Requires | None = None
    clusters: ClusterChoice = ClusterChoice()
    max_runtime: Duration | None = None
    checkpoint: CheckpointSpec = CheckpointSpec()
    on_cluster_loss: Literal["hold", "replace"] = "hold"
    max_attempts: Annotated[int, Field(strict=True, ge=1, le=100)] = 1
    disturb: Disturb | None = None

    @model_validator(mode="after")
    def _obeyed(self) -> "WorkloadSpec":
        if self.priority is not None and self.priority_class is not None:
            raise refusal("invalid-value", "give priority or priorityClass, not both")
        if self.on_cluster_loss == "replace":
            raise not_yet("onClusterLoss: replace", "hold is")
        for field, value in (("maxRuntime", self.max_runtime), ("disturb", self.disturb)):
            if value is not None:
                raise not_yet(field)
        names = [pod_set.name for pod_set in self.pod_sets]
        if len(set(names)) < len(names):
            raise refusal("name-conflict", "two PodSets have the same name")
        _check_company(self.pod_sets)
        if sum(pod_set.replicas for pod_set in self.pod_sets) > REPLICAS_MAX:
            raise refusal("invalid-quantity", f"a Workload has at most {REPLICAS_MAX} pods in all")
        return self

    def priority_value(self) -> int:
        """The number that orders it within its leaf."""
        if self.priority is not None:
            return self.priority
        return PRIORITY_CLASSES[self.priority_class or "normal"]


class WorkloadDocument(DocumentHead):
    """`kind: Workload`."""

    kind: Literal["Workload"]
    metadata: Metadata
    spec: WorkloadSpec


class PodNeedsView(RestModel):
    """What one pod needs beside its devices: CPU in millicores, memory and disk in bytes, RDMA in interfaces."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    rdma: int = 0
    hugepages_bytes: int = 0
    local_storage_bytes: int = 0


class PodSetView(RestModel):
    """Identical pods, as the planner counts them."""

    name: str
    replicas: int
    devices: int
    flavors: list[str]
    topology: str = ""  # "required rack, slices of 4 in one nvlink-domain"
    min_replicas: int | None = None  # of an elastic one: how many of `replicas` must start
    speeds: list[int] = Field(default_factory=list)  # of the flavors, in thousandths of the first; empty: all alike
    needs: PodNeedsView = PodNeedsView()
    nodes: str = ""  # which its template allows: "zone=b, tolerating team=ml"


def topology_words(mode: str, level: str, slices: tuple[int, str], beside: str) -> str:
    """What a PodSet asks for, in a line; "" if nothing. `slices` are their size, 0 if none, and their level."""
    size, slice_level = slices
    told = [
        f"{mode} {level}" if mode != "none" else "",
        f"slices of {size} in one {slice_level}" if size else "",
        f"with {beside}" if beside else "",
    ]
    return ", ".join(each for each in told if each)


class NodeUse(RestModel):
    """What one node gives to an Attempt."""

    node: str
    flavor: str
    pods: int
    devices: int
    states: dict[str, int]


class PlacementView(RestModel):
    """One cluster's part of an Attempt."""

    cluster: str
    state: str
    message: str = ""
    nodes: list[NodeUse] = Field(default_factory=list)


class PodWords(RestModel):
    """What a pod's program said last (at most 1 KiB), or what its cluster says of one that waits."""

    pod_set: str
    index: int
    rank: int
    node: str = ""
    state: str
    exit_code: int | None = None
    text: str


class AttemptView(RestModel):
    """One try, with when each step of it came. `words`: of at most eight pods of each of the last three tries."""

    attempt: int
    state: str
    outcome: str | None = None
    verdict: str | None = None
    reason: ReasonView | None = None
    placed_at: Moment
    prepared_at: Moment | None = None
    start_ordered_at: Moment | None = None
    running_at: Moment | None = None
    stop_ordered_at: Moment | None = None
    failed_at: Moment | None = None
    ended_at: Moment | None = None
    placements: list[PlacementView] = Field(default_factory=list)
    words: list[PodWords] = Field(default_factory=list)


class WorkloadSummary(RestModel):
    """One line of a list."""

    id: str
    name: str
    queue: str
    pool: str
    owner: str
    state: str
    priority: int
    pods: int
    devices: int
    clusters: list[str] = Field(default_factory=list)
    attempt: int
    submitted_at: Moment
    state_changed_at: Moment
    finished_at: Moment | None = None
    reason: str = ""


class LogsView(RestModel):
    """Where the logs of live pods are: `command` is to be typed by whoever may reach the cluster.

    The context is the cluster's name here; a person's own kubeconfig may call it otherwise.
    """

    cluster: str
    namespace: str
    pod_set: str
    pods: int  # how many of it have started and are still there
    command: str


class WorkloadView(RestModel):
    """All that the plane knows of one Workload."""

    id: str
    name: str
    queue: str
    pool: str
    owner: str
    state: str
    priority: int
    kind: str
    labels: dict[str, str] = Field(default_factory=dict)
    version: int
    pod_sets: list[PodSetView]
    max_attempts: int
    program_failures: int = 0
    infrastructure_ends: int = 0
    submitted_at: Moment
    state_changed_at: Moment
    finished_at: Moment | None = None
    not_before: Moment | None = None
    reasons: list[ReasonView] = Field(default_factory=list)
    attempts: list[AttemptView] = Field(default_factory=list)
    spec: dict[str, Json] = Field(default_factory=dict)
    logs: list[LogsView] = Field(default_factory=list)  # one per cluster and PodSet with live pods
    warnings: list[Warned] = Field(default_factory=list)


class WorkloadPatch(RestModel):
    """What may be changed of a live Workload: where it stands among others of its Queue."""

    priority: Annotated[int, Field(strict=True, ge=0, le=PRIORITY_MAX)] | None = None
    priority_class: Literal["production", "high", "normal", "low", "best-effort"] | None = None

    @model_validator(mode="after")
    def _one_of(self) -> "WorkloadPatch":
        if (self.priority is None) == (self.priority_class is None):
            raise refusal("invalid-value", "give either priority or priorityClass")
        return self

    def value(self) -> int:
        """The number asked for."""
        return self.priority if self.priority is not None else PRIORITY_CLASSES[self.priority_class or "normal"]
