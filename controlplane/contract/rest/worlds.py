"""Documents that describe a whole world for `muster plan`: those that people apply, and what a plane knows besides.

What agents and time tell a plane (states, places, when something was submitted) stands in the document here.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, model_validator

from controlplane.contract.rest.common import (
    Count,
    DocumentHead,
    Json,
    Metadata,
    Moment,
    Name,
    PlainText,
    Positive,
    QueueMetadata,
    RestModel,
    refusal,
)
from controlplane.contract.rest.documents import DOCUMENT_KINDS
from controlplane.contract.rest.fleet import ClusterSpec, FlavorDocument
from controlplane.contract.rest.quantities import Duration
from controlplane.contract.rest.tenancy import PolicyDocument, PoolDocument, QueueSpec, WindowDocument
from controlplane.contract.rest.workloads import WorkloadSpec


class WorldClusterSpec(ClusterSpec):
    """A Cluster with what its agent would have told. `namespaces`: none given means those of all Queues."""

    state: Literal["created", "enrolled", "accepted", "ready", "suspect", "unreachable"] = "ready"
    namespaces: list[Name] | None = Field(default=None, max_length=10_000)
    inventory_age: Duration | None = None
    cordon: PlainText = ""
    drain: PlainText = ""


class WorldCluster(DocumentHead):
    """`kind: Cluster` in a world."""

    kind: Literal["Cluster"]
    metadata: Metadata
    spec: WorldClusterSpec = WorldClusterSpec()


class WorldSpent(RestModel):
    """What has been used of a budget since its period began, by work that has ended."""

    flavor: Annotated[str, Field(max_length=100)]
    per: Literal["day", "week", "month", "quarter", "year"]
    device_hours: Count


class WorldQueueSpec(QueueSpec):
    """A Queue with what was used of its budgets before; Running documents add what they use."""

    spent: list[WorldSpent] = Field(default_factory=list, max_length=64)


class WorldQueue(DocumentHead):
    """`kind: Queue` in a world."""

    kind: Literal["Queue"]
    metadata: QueueMetadata
    spec: WorldQueueSpec = WorldQueueSpec()


class WorldWorkloadSpec(WorkloadSpec):
    """A Workload that waits. `submittedAt`: none given means in the order of the files; `attempts` were made before."""

    owner: PlainText = "somebody"
    submitted_at: Moment | None = None
    not_before: Moment | None = None
    attempts: Count = 0


class WorldWorkload(DocumentHead):
    """`kind: Workload` in a world."""

    kind: Literal["Workload"]
    metadata: Metadata
    spec: WorldWorkloadSpec


class RunningPlace(RestModel):
    """Where pods of an Attempt are: how many on each node. `podSet` may be left out where there is only one."""

    cluster: Name
    pod_set: Name | None = None
    nodes: Annotated[dict[str, Positive], Field(min_length=1, max_length=100_000)]


class RunningSpec(WorldWorkloadSpec):
    """A Workload that has a live Attempt: all that a Workload says, and where it is since when."""

    placement: Annotated[list[RunningPlace], Field(min_length=1, max_length=10_000)]
    started_at: Moment
    state: Literal["placed", "prepared", "starting", "running", "stopping"] = "running"


class RunningDocument(DocumentHead):
    """`kind: Running`: in worlds only."""

    kind: Literal["Running"]
    metadata: Metadata
    spec: RunningSpec


class WorldSpec(RestModel):
    """What is true of the world as a whole."""

    now: Moment


class WorldDocument(DocumentHead):
    """`kind: World`: the moment that the other documents speak of."""

    kind: Literal["World"]
    metadata: Metadata
    spec: WorldSpec


class SnapshotDocument(DocumentHead):
    """`kind: Snapshot`: a Pool of a running plane as `muster plan --from-server --save` keeps it.

    `policy` and `snapshot` are records of the core's values; nobody writes them by hand.
    """

    kind: Literal["Snapshot"]
    now: Moment
    policy: dict[str, Json]
    snapshot: dict[str, Json]

    @model_validator(mode="after")
    def _whole(self) -> "SnapshotDocument":
        if "pool" not in self.snapshot:
            raise refusal("invalid-value", "a snapshot names its pool")
        return self


WorldMember = (
    WorldWorkload
    | RunningDocument
    | WorldQueue
    | WorldCluster
    | PoolDocument
    | PolicyDocument
    | FlavorDocument
    | WindowDocument
    | WorldDocument
)
WORLD_DOCUMENT: TypeAdapter[WorldMember] = TypeAdapter(Annotated[WorldMember, Field(discriminator="kind")])
WORLD_KINDS: dict[str, type[RestModel]] = {
    **DOCUMENT_KINDS,
    "Workload": WorldWorkload,
    "Queue": WorldQueue,
    "Cluster": WorldCluster,
    "Running": RunningDocument,
    "World": WorldDocument,
}
"""The kinds of a world's file, beside `Job` and `Snapshot`; those that people apply may say more here."""
