"""Pools, Clusters, Nodes, Devices, and the agents that speak for them."""

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from controlplane.db.base import Base, Big, BigKey, Document, Moment, Told, Tracked


class Pool(Base):
    """A set of nodes planned together; its planner lease stands here (owner, epoch, until)."""

    __tablename__ = "pool"
    id: Mapped[BigKey]
    name: Mapped[str] = mapped_column(unique=True)
    labels: Mapped[Document] = mapped_column(server_default=text("'{}'"))
    spec: Mapped[Document] = mapped_column(server_default=text("'{}'"))
    policy_version: Mapped[int] = mapped_column(server_default="1")
    planner_owner: Mapped[str] = mapped_column(server_default="")
    planner_epoch: Mapped[int] = mapped_column(server_default="0")
    planner_until: Mapped[Moment | None]
    dirty_version: Mapped[int] = mapped_column(server_default="0")  # raised by whoever gives the planner work
    next_check_at: Mapped[Moment | None] = mapped_column(index=True)
    deleted_at: Mapped[Moment | None]


class Cluster(Tracked, Base):
    """A Kubernetes cluster. `fingerprint` is the uid of its kube-system namespace."""

    __tablename__ = "cluster"
    __table_args__ = (
        CheckConstraint("name = lower(name) AND name <> ''", name="name_normal"),
        Index("uq_cluster_fingerprint_live", "fingerprint", unique=True,
              postgresql_where=text("fingerprint IS NOT NULL AND removed_at IS NULL")),
        Index("uq_cluster_name_live", "name", unique=True, postgresql_where=text("removed_at IS NULL")),
        CheckConstraint("(drain_reason <> '') = (drain_deadline_at IS NOT NULL)", name="drain_whole"),
        CheckConstraint("drain_reason <> '' OR NOT then_remove", name="removal_drains"),
    )  # fmt: skip
    id: Mapped[BigKey]
    pool_id: Mapped[int] = mapped_column(ForeignKey("pool.id"), index=True)
    name: Mapped[str]
    state: Mapped[str]
    fingerprint: Mapped[str | None]
    labels: Mapped[Document] = mapped_column(server_default=text("'{}'"))
    spec: Mapped[Document] = mapped_column(server_default=text("'{}'"))  # time-outs and the like, as applied
    levels: Mapped[list[str]] = mapped_column(JSONB, server_default=text("'[\"host\"]'"))  # coarse to fine
    namespaces: Mapped[list[str]] = mapped_column(JSONB, server_default=text("'[]'"))  # that the agent may write to
    features: Mapped[list[str]] = mapped_column(JSONB, server_default=text("'[]'"))
    agent_version: Mapped[str] = mapped_column(server_default="")
    kubernetes_version: Mapped[str] = mapped_column(server_default="")
    recovering: Mapped[bool] = mapped_column(server_default=text("false"))  # no order before it has told everything
    inventory_at: Mapped[Moment | None]
    inventory_digest: Mapped[str] = mapped_column(server_default="")
    inventory_revision: Mapped[int] = mapped_column(server_default="0")
    last_heard_at: Mapped[Moment | None]
    lost_at: Mapped[Moment | None]  # stored once when it falls silent; every grace is counted from here
    cordon_reason: Mapped[str] = mapped_column(server_default="")  # "" = not; nothing new, what runs goes on
    cordon_until: Mapped[Moment | None]
    cordon_by: Mapped[str] = mapped_column(server_default="")
    drain_reason: Mapped[str] = mapped_column(server_default="")  # "" = not; beside the state: it may fall silent too
    drain_deadline_at: Mapped[Moment | None]
    drain_by: Mapped[str] = mapped_column(server_default="")
    then_remove: Mapped[bool] = mapped_column(server_default=text("false"))  # once the drain has emptied it
    version: Mapped[int] = mapped_column(server_default="1")
    created_at: Mapped[Moment]
    accepted_at: Mapped[Moment | None]
    removed_at: Mapped[Moment | None]
    next_check_at: Mapped[Moment | None] = mapped_column(index=True)


class Node(Tracked, Told, Base):
    """A machine of a Cluster; its key is the node's uid, since names are used again."""

    __tablename__ = "node"
    __table_args__ = (
        UniqueConstraint("cluster_id", "uid"),
        Index("uq_node_name_live", "cluster_id", "name", unique=True, postgresql_where=text("removed_at IS NULL")),
        Index("ix_node_cordon_until", "cordon_until", postgresql_where=text("cordon_until IS NOT NULL")),
        CheckConstraint("kind IN ('real', 'virtual', 'fake')", name="kind_known"),
    )
    id: Mapped[BigKey]
    cluster_id: Mapped[int] = mapped_column(ForeignKey("cluster.id"), index=True)
    uid: Mapped[str]
    name: Mapped[str]
    kind: Mapped[str] = mapped_column(server_default="real")
    provider_id: Mapped[str] = mapped_column(server_default="")
    instance_type: Mapped[str] = mapped_column(server_default="")
    ready: Mapped[bool]
    ready_changed_at: Mapped[Moment | None]
    cordoned: Mapped[bool] = mapped_column(server_default=text("false"))  # in Kubernetes
    cordoned_by_us: Mapped[str] = mapped_column(server_default="")  # the reason; "" = not
    cordon_until: Mapped[Moment | None]
    cordon_by: Mapped[str] = mapped_column(server_default="")
    cordon_version: Mapped[int] = mapped_column(server_default="1")  # raised by whoever cordons or puts back
    resources: Mapped[list[dict[str, object]]] = mapped_column(JSONB, server_default=text("'[]'"))  # counts as told
    deleting: Mapped[bool] = mapped_column(server_default=text("false"))
    taints: Mapped[list[dict[str, str]]] = mapped_column(JSONB, server_default=text("'[]'"))
    domains: Mapped[dict[str, str]] = mapped_column(JSONB, server_default=text("'{}'"))  # level -> domain name
    labels: Mapped[dict[str, str]] = mapped_column(JSONB, server_default=text("'{}'"))
    driver_versions: Mapped[dict[str, str]] = mapped_column(JSONB, server_default=text("'{}'"))
    cpu_milli: Mapped[int] = mapped_column(server_default="0")  # allocatable less foreign requests
    memory_bytes: Mapped[int] = mapped_column(server_default="0")
    cpu_milli_held: Mapped[int] = mapped_column(server_default="0")
    memory_bytes_held: Mapped[int] = mapped_column(server_default="0")
    pods: Mapped[int] = mapped_column(server_default="110")  # that its kubelet takes, less foreign ones
    rdma: Mapped[int | None]  # null, as the next two: its agent tells none of it
    rdma_held: Mapped[int] = mapped_column(server_default="0")
    hugepages_bytes: Mapped[int | None]
    hugepages_bytes_held: Mapped[int] = mapped_column(server_default="0")
    local_storage_bytes: Mapped[int | None]
    local_storage_bytes_held: Mapped[int] = mapped_column(server_default="0")
    digest: Mapped[str] = mapped_column(server_default="")  # of its last report, as the agent counts it too
    foreign_pods: Mapped[list[dict[str, object]]] = mapped_column(JSONB, server_default=text("'[]'"))
    discrepancies: Mapped[list[dict[str, object]]] = mapped_column(JSONB, server_default=text("'[]'"))
    lost_at: Mapped[Moment | None]  # declared lost after Policy's node_lost_seconds of not Ready
    removed_at: Mapped[Moment | None]
    first_seen_at: Mapped[Moment]
    observed_at: Mapped[Moment]
    next_check_at: Mapped[Moment | None] = mapped_column(index=True)


class NodeFlavor(Tracked, Told, Base):
    """The counter that makes double selling impossible: units of one Flavor on one node.

    `capacity` = usable by us (healthy, not taken by foreign pods); `owned` all known ones. `overdraft`
    is raised only where capacity falls below what is held, in the same statement.
    """

    __tablename__ = "node_flavor"
    __table_args__ = (
        CheckConstraint("held >= 0 AND held <= capacity + overdraft", name="not_oversold"),
        CheckConstraint("capacity >= 0 AND overdraft >= 0 AND owned >= 0 AND foreign_held >= 0", name="not_negative"),
    )
    node_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    flavor: Mapped[str] = mapped_column(primary_key=True)
    cluster_id: Mapped[Big]
    resource: Mapped[str] = mapped_column(server_default="")  # the Kubernetes resource that a pod asks for
    owned: Mapped[Big]
    allocatable: Mapped[Big]
    foreign_held: Mapped[int] = mapped_column(server_default="0")
    withheld: Mapped[int] = mapped_column(server_default="0")  # of cordoned devices, which would be usable
    capacity: Mapped[Big]
    overdraft: Mapped[int] = mapped_column(server_default="0")
    held: Mapped[int] = mapped_column(server_default="0")


class Device(Base):
    """One physical card, partition or shared slot, with where its key comes from and how good it is."""

    __tablename__ = "device"
    __table_args__ = (
        UniqueConstraint("cluster_id", "device_key"),
        Index("ix_device_cordoned", "node_id", postgresql_where=text("cordon_reason <> ''")),
        CheckConstraint("key_quality IN ('uuid', 'dra', 'pci', 'synthetic')", name="key_quality_known"),
        CheckConstraint("kind IN ('card', 'partition', 'slot_pool', 'tpu_chip', 'fpga', 'virtual')", name="kind_known"),
        CheckConstraint("health IN ('ok', 'warn', 'unhealthy', 'lost', 'unknown')", name="health_known"),
        CheckConstraint(
            "state IN ('present', 'starting', 'reconfiguring', 'stale', 'lost', 'removed')", name="state_known"
        ),
    )
    id: Mapped[BigKey]
    cluster_id: Mapped[int] = mapped_column(ForeignKey("cluster.id"))
    node_id: Mapped[int] = mapped_column(ForeignKey("node.id"), index=True)
    device_key: Mapped[str]
    key_quality: Mapped[str]
    vendor: Mapped[str]
    kind: Mapped[str]
    flavor: Mapped[str]
    resource: Mapped[str] = mapped_column(server_default="")  # the Kubernetes resource that counts it
    parent_key: Mapped[str | None]
    model_raw: Mapped[str] = mapped_column(server_default="")
    model: Mapped[str] = mapped_column(server_default="")
    arch: Mapped[str] = mapped_column(server_default="")
    compute_capability: Mapped[str] = mapped_column(server_default="")
    memory_mib: Mapped[int | None]
    memory_oversubscribed_thousandths: Mapped[int | None]
    profile: Mapped[str] = mapped_column(server_default="")
    profile_id: Mapped[int | None]
    compute_slices: Mapped[int | None]
    memory_slices: Mapped[int | None]
    placement_start: Mapped[int | None]
    placement_size: Mapped[int | None]
    cores: Mapped[int | None]
    slots_total: Mapped[int] = mapped_column(server_default="1")
    slots_allocatable: Mapped[int] = mapped_column(server_default="1")
    sharing: Mapped[str] = mapped_column(server_default="none")
    pci_bus_id: Mapped[str | None]
    pcie_root: Mapped[str | None]
    numa: Mapped[int | None]
    nvlink_domain: Mapped[str | None]
    nvlink_partition: Mapped[str | None]
    health: Mapped[str]
    health_changed_at: Mapped[Moment | None]
    health_reasons: Mapped[list[dict[str, str]]] = mapped_column(JSONB, server_default=text("'[]'"))
    state: Mapped[str]
    sources: Mapped[list[str]] = mapped_column(JSONB, server_default=text("'[]'"))
    source_generation: Mapped[int | None]
    raw: Mapped[Document] = mapped_column(server_default=text("'{}'"))
    cordon_reason: Mapped[str] = mapped_column(server_default="")  # "" = not
    cordon_until: Mapped[Moment | None]
    cordon_by: Mapped[str] = mapped_column(server_default="")
    cordon_version: Mapped[int] = mapped_column(server_default="1")
    first_seen_at: Mapped[Moment]
    observed_at: Mapped[Moment]


class EnrolmentToken(Base):
    """A one-time token bound to one Cluster; only its SHA-256 is kept."""

    __tablename__ = "enrolment_token"
    __table_args__ = (
        CheckConstraint("uses >= 0 AND uses <= uses_max", name="not_overused"),
        CheckConstraint("uses_max BETWEEN 1 AND 100", name="uses_max_range"),
        CheckConstraint("expires_at > created_at", name="expires"),
        CheckConstraint("last_used_at IS NULL OR last_used_at <= expires_at", name="not_used_late"),
        CheckConstraint("revoked_at IS NULL OR last_used_at IS NULL OR last_used_at <= revoked_at",
                        name="not_used_revoked"),
    )  # fmt: skip
    id: Mapped[BigKey]
    cluster_id: Mapped[int] = mapped_column(ForeignKey("cluster.id"), index=True)
    token_sha256: Mapped[bytes] = mapped_column(unique=True)
    uses: Mapped[int] = mapped_column(server_default="0")
    uses_max: Mapped[int] = mapped_column(server_default="1")
    used_by_thumbprint: Mapped[str | None]
    auto_accept: Mapped[bool] = mapped_column(server_default=text("false"))
    created_at: Mapped[Moment]
    created_by: Mapped[str]
    expires_at: Mapped[Moment]
    last_used_at: Mapped[Moment | None]
    revoked_at: Mapped[Moment | None]


class AgentKey(Base):
    """A public key that signs an agent's requests; two slots per Cluster: current and next."""

    __tablename__ = "agent_key"
    __table_args__ = (
        CheckConstraint("slot IN ('current', 'next', 'retired')", name="slot_known"),
        Index("uq_agent_key_slot", "cluster_id", "slot", unique=True, postgresql_where=text("slot <> 'retired'")),
    )
    thumbprint: Mapped[str] = mapped_column(primary_key=True)
    cluster_id: Mapped[int] = mapped_column(ForeignKey("cluster.id"), index=True)
    algorithm: Mapped[str]
    jwk: Mapped[Document]
    slot: Mapped[str]
    created_at: Mapped[Moment]
    hello_iat: Mapped[int | None]  # of the last hello that it signed and that was taken, in seconds since 1970
    banned_at: Mapped[Moment | None]


class AgentSession(Base):
    """An agent's conversation with the plane; at most one is active per Cluster, its epoch only rises."""

    __tablename__ = "agent_session"
    __table_args__ = (
        Index("uq_agent_session_active", "cluster_id", unique=True, postgresql_where=text("ended_at IS NULL")),
    )
    cluster_id: Mapped[int] = mapped_column(ForeignKey("cluster.id"), primary_key=True)
    epoch: Mapped[Big] = mapped_column(primary_key=True)
    instance_id: Mapped[str]
    thumbprint: Mapped[str]
    seq: Mapped[int] = mapped_column(server_default="0")  # last request answered
    answer: Mapped[dict[str, object] | None] = mapped_column(JSONB)  # to `seq`; the same seq gets it again
    acked_number: Mapped[int] = mapped_column(server_default="0")  # directives up to here were received
    lease_until: Mapped[datetime]
    started_at: Mapped[Moment]
    last_heard_at: Mapped[Moment]
    full_asked_at: Mapped[Moment | None]  # when it was last asked for everything, so that it is not asked at once again
    ended_at: Mapped[Moment | None]


class Plane(Base):
    """The plane itself, one row: which life of its data this is, and since when agents could reach it.

    Silence of a cluster counts only from `listening_since`, so an outage of ours is nobody else's.
    """

    __tablename__ = "plane"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    incarnation: Mapped[str]
    epoch: Mapped[int] = mapped_column(server_default="1")
    listened_at: Mapped[Moment | None]
    listening_since: Mapped[Moment | None]
    recovering_since: Mapped[Moment | None]  # it came from a backup then, and not every cluster was heard since


class ClusterCounter(Base):
    """Two rows per Cluster, `up` and `down`: numbers are given under the row's lock, so none is skipped."""

    __tablename__ = "cluster_counter"
    __table_args__ = (CheckConstraint("direction IN ('up', 'down')", name="direction_known"),)
    cluster_id: Mapped[int] = mapped_column(ForeignKey("cluster.id"), primary_key=True)
    direction: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[int] = mapped_column(server_default="0")


class Discrepancy(Base):
    """Two sources that disagree about a node's devices, and which is believed."""

    __tablename__ = "discrepancy"
    __table_args__ = (UniqueConstraint("node_id", "code"),)
    id: Mapped[BigKey]
    node_id: Mapped[int] = mapped_column(ForeignKey("node.id"))
    code: Mapped[str]
    values: Mapped[Document]
    believed: Mapped[str] = mapped_column(server_default="")
    first_seen_at: Mapped[Moment]
    last_seen_at: Mapped[Moment]
    ended_at: Mapped[Moment | None]
