"""Clusters, Nodes, agents' keys and Sessions as stored, as values; what an inventory writes.

Values only: `db/stores/fleet.py` and `db/stores/agents.py` read and write them, `services` decide on them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from controlplane.core.ids import ClusterId, FlavorName, NodeId, PoolId
from controlplane.core.lifecycle import ClusterState

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]
Document = Mapping[str, Json]

LISTENING_GAP_SECONDS = 10  # an outage of ours that is longer starts all clocks of silence again


@dataclass(frozen=True, slots=True)
class Cordon:
    """Why something takes nothing new, and until when; None: until somebody puts it back."""

    reason: str
    until: datetime | None
    by: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Why a Cluster is emptied, by when what runs there may end by itself, and whether it is removed afterwards."""

    reason: str
    deadline_at: datetime
    by: str
    then_remove: bool = False


@dataclass(frozen=True, slots=True)
class ClusterFact:
    """One Cluster's row, without its labels of no meaning to the fleet."""

    id: ClusterId
    pool: PoolId
    name: str
    state: ClusterState
    fingerprint: str | None
    spec: Document
    levels: tuple[str, ...]
    namespaces: tuple[str, ...]
    inventory_digest: str
    inventory_revision: int
    inventory_at: datetime | None
    last_heard_at: datetime | None
    lost_at: datetime | None
    version: int
    cordon: Cordon | None = None
    drain: Drain | None = None


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """New state and times of one Cluster, written only where its version is still the one read."""

    id: ClusterId
    version: int
    state: ClusterState
    lost_at: datetime | None
    next_check_at: datetime | None


@dataclass(frozen=True, slots=True)
class NodeFact:
    """What of a Node's row decides something."""

    id: NodeId
    cluster: ClusterId
    cluster_state: ClusterState
    pool: PoolId
    uid: str
    name: str
    ready: bool
    ready_changed_at: datetime | None
    lost_at: datetime | None
    removed_at: datetime | None
    cordon: Cordon | None = None
    cordon_version: int = 1


@dataclass(frozen=True, slots=True)
class DeviceFact:
    """What of a Device's row decides something."""

    id: int
    cluster: ClusterId
    cluster_name: str
    pool: PoolId
    node: NodeId
    node_name: str
    device_key: str
    cordon: Cordon | None
    cordon_version: int


@dataclass(frozen=True, slots=True)
class Card:
    """A stored device as far as it is counted."""

    device_key: str
    flavor: FlavorName
    resource: str
    parent_key: str | None
    slots_total: int
    slots_allocatable: int
    health: str
    is_cordoned: bool


@dataclass(frozen=True, slots=True)
class ToldResource:
    """What a node says of one Kubernetes resource: units that the API server would give, and foreign pods' part."""

    resource: str
    allocatable: int
    foreign: int


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """What of one Queue lives in a Cluster: live Attempts and held devices. `queue`: its path."""

    queue: str
    attempts: int
    devices: int


@dataclass(frozen=True, slots=True)
class FlavorCount:
    """Units of one Flavor on one node, as its report adds up; `capacity` is what is ours to give.

    `withheld` are those of cordoned devices, which would be in `allocatable` but for that.
    """

    flavor: FlavorName
    resource: str
    owned: int
    allocatable: int
    foreign: int
    capacity: int
    withheld: int = 0


@dataclass(frozen=True, slots=True)
class NodeWrite:
    """One node as reported, ready to be stored. `row` and each of `devices` are columns by name."""

    uid: str
    name: str
    row: Document
    flavors: tuple[FlavorCount, ...]
    devices: tuple[Document, ...]
    discrepancies: tuple[Document, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSignals:
    """Nodes of one report that turned not ready, that came back, that vanished, with device trouble."""

    fell: tuple[NodeId, ...] = ()
    rose: tuple[NodeId, ...] = ()
    removed: tuple[NodeId, ...] = ()
    unhealthy: tuple[NodeId, ...] = ()
    capacity_changed: bool = False


@dataclass(frozen=True, slots=True)
class TokenFact:
    """An enrolment token's row; never the token."""

    id: int
    cluster: ClusterId
    uses: int
    uses_max: int
    used_by: str | None
    auto_accept: bool
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class KeyFact:
    """A public key of an agent. `slot`: current | next | retired."""

    thumbprint: str
    cluster: ClusterId
    cluster_name: str
    cluster_state: ClusterState
    algorithm: str
    jwk: Mapping[str, str]
    slot: str
    created_at: datetime
    banned_at: datetime | None


@dataclass(frozen=True, slots=True)
class SessionFact:
    """An agent's Session; `answer` is what request `seq` was answered, None while it is not yet."""

    cluster: ClusterId
    epoch: int
    instance_id: str
    thumbprint: str
    seq: int
    answer: Document | None
    acked_number: int
    lease_until: datetime
    started_at: datetime
    ended_at: datetime | None
    full_asked_at: datetime | None
    is_recovering: bool = False  # its cluster has not told everything since the plane came from a backup


@dataclass(frozen=True, slots=True)
class PlaneFact:
    """The plane's own row: which life of its data this is, and since when it listens without a gap."""

    incarnation: str
    epoch: int
    listened_at: datetime | None
    listening_since: datetime | None
    recovering_since: datetime | None = None

    def clocks_from(self, now: datetime) -> datetime | None:
        """From when on silence counts: the end of our last outage, or now while one lasts; None: it never listened."""
        if self.listened_at is None:
            return None
        is_deaf = now - self.listened_at > timedelta(seconds=LISTENING_GAP_SECONDS)
        return now if is_deaf else self.listening_since


@dataclass(frozen=True, slots=True)
class NumberedDirective:
    """A directive with its place in its cluster's stream."""

    number: int
    object_id: str
    gen: int
    kind: str
    workload: str
    attempt: int
    body: Document = field(default_factory=dict)
