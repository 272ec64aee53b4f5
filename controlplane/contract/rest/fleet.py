"""Documents of Clusters and Flavors, and what the API shows of clusters, nodes and devices."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from controlplane.contract.agent.attempts import Budgets
from controlplane.contract.rest.common import (
    Count,
    DocumentHead,
    FlavorText,
    Json,
    Labels,
    Metadata,
    Moment,
    Name,
    PlainText,
    Positive,
    RestModel,
    refusal,
)
from controlplane.contract.rest.cordons import CordonView, DrainView
from controlplane.contract.rest.quantities import CpuMilli, Duration, MemoryBytes
from controlplane.contract.rest.workloads import not_yet


class WorldDevices(RestModel):
    """Devices of each node of a simulated cluster."""

    flavor: FlavorText
    count: Positive


class WorldLevel(RestModel):
    """Consecutive nodes form domains of this many."""

    level: Name
    of: Positive


class WorldTaint(RestModel):
    """What keeps pods that do not tolerate it from these nodes."""

    key: Annotated[str, Field(max_length=316)]
    value: Annotated[str, Field(max_length=63)] = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class WorldNodes(RestModel):
    """Equal nodes of a simulated cluster or a world, named after `name` and numbered from 0.

    `cordon` is why all of them take nothing new.
    """

    count: Positive
    name: Name | None = None
    devices: WorldDevices | None = None
    cpu: CpuMilli
    memory: MemoryBytes
    topology: list[WorldLevel] = Field(default_factory=list, max_length=8)
    labels: dict[str, str] = Field(default_factory=dict, max_length=256)
    taints: list[WorldTaint] = Field(default_factory=list, max_length=64)
    pods: Count = 110
    rdma: Count = 0
    hugepages: MemoryBytes = 0
    local_storage: MemoryBytes = 2**40
    cordon: PlainText = ""


Budget = Annotated[int, Field(strict=True, ge=1, le=86_400)]
_USUAL = Budgets()


class ClusterBudgets(RestModel):
    """Seconds that each stage of an Attempt's start may take here; then it is given up and planned again."""

    prepare_seconds: Budget = _USUAL.prepare_seconds
    bind_seconds: Budget = _USUAL.bind_seconds
    pull_seconds: Budget = _USUAL.pull_seconds
    ready_seconds: Budget = _USUAL.ready_seconds


_LABEL = r"(?:\{(?:service|namespace)\}|[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)"
_MEMBER_ADDRESS = rf"^\{{host\}}(?:\.{_LABEL})+$"


class ClusterFacts(RestModel):
    """What Workloads may require of a cluster: classes of storage that it has, and data that is near."""

    storage: list[Name] = Field(default_factory=list, max_length=64)
    data: list[PlainText] = Field(default_factory=list, max_length=1_000)

    def named(self) -> list[str]:
        """As a Workload's `requires` asks for them."""
        return [*(f"storage/{name}" for name in self.storage), *(f"data/{name}" for name in self.data)]


class ClusterSpec(RestModel):
    """One Kubernetes cluster. `nodes` only in worlds and simulated clusters.

    Pods of clusters with the same `networkDomain` reach each other, so a gang may be divided over these. How a pod of
    this one is called from there is its `memberAddress`, as in `{host}.{service}.{namespace}.svc.east.example`.
    """

    pool: Name = "default"
    suspect_seconds: Annotated[int, Field(strict=True, ge=1, le=86_400)] = 30
    unreachable_seconds: Annotated[int, Field(strict=True, ge=1, le=604_800)] = 300
    budgets: ClusterBudgets = ClusterBudgets()
    topology_keys: dict[Name, Annotated[str, Field(max_length=316)]] = Field(default_factory=dict, max_length=8)
    network_domain: Name | None = None
    member_address: Annotated[str, Field(max_length=253, pattern=_MEMBER_ADDRESS)] | None = None
    facts: ClusterFacts = ClusterFacts()
    nodes: list[WorldNodes] | None = None

    @model_validator(mode="after")
    def _obeyed(self) -> "ClusterSpec":
        if self.unreachable_seconds <= self.suspect_seconds:
            raise refusal("invalid-quantity", "unreachableSeconds is more than suspectSeconds")
        return self


class ClusterDocument(DocumentHead):
    """`kind: Cluster`."""

    kind: Literal["Cluster"]
    metadata: Metadata
    spec: ClusterSpec = ClusterSpec()


class FlavorSpec(RestModel):
    """A class of devices that quota counts. Names are derived, so a document could only add aliases."""

    aliases: list[FlavorText] = Field(default_factory=list, max_length=16)

    @model_validator(mode="after")
    def _obeyed(self) -> "FlavorSpec":
        if self.aliases:
            raise not_yet("Flavor aliases")
        return self


class FlavorMetadata(RestModel):
    """A Flavor's name may hold dots."""

    name: FlavorText
    labels: dict[str, str] = Field(default_factory=dict, max_length=64)


class FlavorDocument(DocumentHead):
    """`kind: Flavor`: known; Flavors come from what agents report."""

    kind: Literal["Flavor"]
    metadata: FlavorMetadata
    spec: FlavorSpec = FlavorSpec()


class ClusterCreate(RestModel):
    """A Cluster made beforehand, so that an agent has something to enrol for."""

    name: Name
    labels: Labels = Field(default_factory=dict)
    spec: ClusterSpec = ClusterSpec()
    token_valid: Duration = 3_600
    auto_accept: Annotated[bool, Field(strict=True)] = False


class EnrolmentTokenCreate(RestModel):
    """Another enrolment token for a Cluster that is there."""

    token_valid: Duration = 3_600
    auto_accept: Annotated[bool, Field(strict=True)] = False


class EnrolmentTokenView(RestModel):
    """A one-time token for an agent; its text is shown this once. `agent_url`: where agents call."""

    cluster: str
    token: str
    expires_at: Moment
    auto_accept: bool
    agent_url: str


class Cordon(RestModel):
    """Why a node is taken out of planning; an empty reason puts it back. The older form, by number."""

    reason: PlainText = ""


class FlavorCount(RestModel):
    """Units of one Flavor somewhere."""

    flavor: str
    owned: int
    usable: int
    held: int
    free: int
    foreign: int = 0


class ClusterView(RestModel):
    """One Kubernetes cluster as the plane knows it."""

    name: str
    pool: str
    state: str
    labels: dict[str, str] = Field(default_factory=dict)
    levels: list[str] = Field(default_factory=list)
    namespaces: list[str] = Field(default_factory=list)
    agent: Literal["none", "enrolled", "banned"] = "none"  # banned: it takes no new work until another one enrols
    agent_version: str = ""
    kubernetes_version: str = ""
    nodes: int = 0
    nodes_ready: int = 0
    flavors: list[FlavorCount] = Field(default_factory=list)
    inventory_at: Moment | None = None
    last_heard_at: Moment | None = None
    lost_at: Moment | None = None
    created_at: Moment
    accepted_at: Moment | None = None
    version: int
    spec: dict[str, Json] = Field(default_factory=dict)
    cordon: CordonView | None = None
    drain: DrainView | None = None


class NodeView(RestModel):
    """One machine.

    CPU in millicores, memory, huge pages and local disk in bytes, RDMA in interfaces, pods: what is left of each beside
    pods that are not ours; null where its agent's version does not tell. `labels`: only of one asked for by name.
    """

    id: int
    cluster: str
    name: str
    kind: Literal["real", "virtual", "fake"]
    ready: bool
    cordoned: bool
    cordoned_by_us: str = ""  # the reason of `cordon`, as it was shown before there was more to say
    cordon: CordonView | None = None
    domains: dict[str, str] = Field(default_factory=dict)
    flavors: list[FlavorCount] = Field(default_factory=list)
    cpu_milli: int = 0
    memory_bytes: int = 0
    cpu_milli_held: int = 0
    memory_bytes_held: int = 0
    pods: int = 110
    pods_held: int = 0
    rdma: int | None = None
    rdma_held: int = 0
    hugepages_bytes: int | None = None
    hugepages_bytes_held: int = 0
    local_storage_bytes: int | None = None
    local_storage_bytes_held: int = 0
    taints: list[dict[str, str]] = Field(default_factory=list)
    labels: dict[str, str] = Field(default_factory=dict)
    discrepancies: list[dict[str, Json]] = Field(default_factory=list)
    lost_at: Moment | None = None
    observed_at: Moment


class DeviceView(RestModel):
    """One card, partition or shared slot."""

    id: int
    cluster: str
    node: str
    device_key: str
    key_quality: str
    vendor: str
    kind: str
    flavor: str
    model: str = ""
    memory_mib: int | None = None
    profile: str = ""
    slots_total: int = 1
    health: str
    health_reasons: list[dict[str, Json]] = Field(default_factory=list)
    state: str
    cordon: CordonView | None = None
    observed_at: Moment
