"""Workloads, their Attempts, Placements and pods; what is held for them; what agents are told.

States follow `core.lifecycle`; the trigger of the first migration refuses any other step.
"""

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, text
from sqlalchemy.dialects.postgresql import JSONB, UUID
from sqlalchemy.orm import Mapped, mapped_column

from controlplane.db.base import Base, Big, BigKey, Document, Moment, Tracked

_UUID = UUID(as_uuid=False)


class Workload(Tracked, Base):
    """The unit of admission. `submitted_at` is its queue age and never changes."""

    __tablename__ = "workload"
    __table_args__ = (
        Index("uq_workload_name_live", "queue_id", "name", unique=True,
              postgresql_where=text("state NOT IN ('succeeded', 'failed', 'cancelled')")),
        Index("ix_workload_state_pool", "pool_id", "state"),
        Index("ix_workload_name", "name"),
        Index("ix_workload_youngest", text("submitted_at DESC"), text("id DESC")),
        Index("ix_workload_queue_youngest", "queue_id", text("submitted_at DESC"), text("id DESC")),
    )  # fmt: skip
    id: Mapped[str] = mapped_column(_UUID, primary_key=True)
    parent_id: Mapped[str | None] = mapped_column(_UUID)  # of which it is a rerun
    name: Mapped[str]
    queue_id: Mapped[int] = mapped_column(ForeignKey("queue.id"), index=True)
    pool_id: Mapped[int] = mapped_column(ForeignKey("pool.id"))
    owner: Mapped[str]
    priority: Mapped[int]
    state: Mapped[str]
    kind: Mapped[str]  # Workload | Job
    spec: Mapped[Document]  # the Workload document's spec; a Job manifest is translated into one
    manifest: Mapped[dict[str, object] | None] = mapped_column(JSONB)  # a Job as submitted
    labels: Mapped[Document] = mapped_column(server_default=text("'{}'"))
    shape: Mapped[str] = mapped_column(server_default="")
    generation: Mapped[int] = mapped_column(server_default="1")
    version: Mapped[int] = mapped_column(server_default="1")
    attempts_made: Mapped[int] = mapped_column(server_default="0")  # the last Attempt's number
    attempts_seen: Mapped[int] = mapped_column(server_default="0")  # the highest that an agent told of, unknown to us
    program_failures: Mapped[int] = mapped_column(server_default="0")
    infrastructure_ends: Mapped[int] = mapped_column(server_default="0")
    max_attempts: Mapped[int] = mapped_column(server_default="1")
    on_cluster_loss: Mapped[str] = mapped_column(server_default="hold")
    reasons: Mapped[list[dict[str, object]]] = mapped_column(JSONB, server_default=text("'[]'"))  # why it waits
    old_place: Mapped[list[int]] = mapped_column(JSONB, server_default=text("'[]'"))  # node ids, tried first
    not_before: Mapped[Moment | None]
    submitted_at: Mapped[Moment]
    state_changed_at: Mapped[Moment]
    finished_at: Mapped[Moment | None]
    next_check_at: Mapped[Moment | None] = mapped_column(index=True)


class PodSet(Base):
    """Identical pods of a Workload, as the planner needs them."""

    __tablename__ = "pod_set"
    __table_args__ = (
        CheckConstraint("replicas BETWEEN 1 AND 100000", name="replicas_range"),
        CheckConstraint("devices BETWEEN 0 AND 1000000", name="devices_range"),
    )
    workload_id: Mapped[str] = mapped_column(_UUID, ForeignKey("workload.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[Big]
    replicas: Mapped[Big]
    min_replicas: Mapped[int | None]
    devices: Mapped[Big]
    flavors: Mapped[list[str]] = mapped_column(JSONB)
    cpu_milli: Mapped[int] = mapped_column(server_default="0")
    memory_bytes: Mapped[int] = mapped_column(server_default="0")
    topology_mode: Mapped[str] = mapped_column(server_default="none")
    topology_level: Mapped[str] = mapped_column(server_default="")
    rdma: Mapped[int] = mapped_column(server_default="0")
    hugepages_bytes: Mapped[int] = mapped_column(server_default="0")
    local_storage_bytes: Mapped[int] = mapped_column(server_default="0")
    rules: Mapped[Document] = mapped_column(server_default=text("'{}'"))  # which nodes its template allows
    speeds: Mapped[list[int]] = mapped_column(JSONB, server_default=text("'[]'"))  # thousandths, one per Flavor
    slice_size: Mapped[int] = mapped_column(server_default="0")
    slice_level: Mapped[str] = mapped_column(server_default="")
    with_pod_set: Mapped[str] = mapped_column(server_default="")


class Attempt(Tracked, Base):
    """One try. At most one is live per Workload; its outcome is written once, when it ends."""

    __tablename__ = "attempt"
    __table_args__ = (
        CheckConstraint("(state = 'ended') = (outcome IS NOT NULL)", name="ended_has_outcome"),
        CheckConstraint("attempt >= 1", name="number_range"),
        Index("uq_attempt_live", "workload_id", unique=True, postgresql_where=text("state <> 'ended'")),
    )
    workload_id: Mapped[str] = mapped_column(_UUID, ForeignKey("workload.id"), primary_key=True)
    attempt: Mapped[Big] = mapped_column(primary_key=True)
    state: Mapped[str]
    outcome: Mapped[str | None]
    outcome_wanted: Mapped[str | None]  # while stopping: what it will end as once the stop is proven
    verdict: Mapped[str | None]  # infrastructure | program, once judged
    reason: Mapped[dict[str, object] | None] = mapped_column(JSONB)
    cycle_id: Mapped[int | None]
    placed_at: Mapped[Moment]
    prepared_at: Mapped[Moment | None]
    start_ordered_at: Mapped[Moment | None]
    running_at: Mapped[Moment | None]
    stop_ordered_at: Mapped[Moment | None]
    failed_at: Mapped[Moment | None]
    evidence_until: Mapped[Moment | None]
    ended_at: Mapped[Moment | None]
    next_check_at: Mapped[Moment | None] = mapped_column(index=True)


class Placement(Base):
    """One Cluster's part of an Attempt, and how far its agent is with it."""

    __tablename__ = "placement"
    __table_args__ = (
        CheckConstraint("state IN ('ordered', 'prepared', 'rejected', 'stopping', 'gone')", name="state_known"),
        CheckConstraint("applied_gen <= wanted_gen", name="not_ahead"),
        Index("ix_placement_cluster_live", "cluster_id", postgresql_where=text("state <> 'gone'")),
    )
    workload_id: Mapped[str] = mapped_column(_UUID, primary_key=True)
    attempt: Mapped[Big] = mapped_column(primary_key=True)
    cluster_id: Mapped[int] = mapped_column(ForeignKey("cluster.id"), primary_key=True)
    state: Mapped[str]
    wanted_gen: Mapped[int] = mapped_column(server_default="1")
    applied_gen: Mapped[int] = mapped_column(server_default="0")
    message: Mapped[str] = mapped_column(server_default="")


class Pod(Base):
    """One pod of an Attempt: where it was put and what was last seen of it."""

    __tablename__ = "pod"
    __table_args__ = (
        CheckConstraint(
            "state IN ('placed', 'gated', 'pending', 'running', 'succeeded', 'failed', 'lost', 'gone')",
            name="state_known",
        ),
        Index("ix_pod_attempt", "workload_id", "attempt"),
        Index("ix_pod_node_live", "node_id", postgresql_where=text("state NOT IN ('succeeded', 'failed', 'gone')")),
    )
    id: Mapped[BigKey]
    workload_id: Mapped[str] = mapped_column(_UUID)
    attempt: Mapped[Big]
    cluster_id: Mapped[Big]
    pod_set: Mapped[str]
    index: Mapped[Big]
    rank: Mapped[Big]  # over the whole Attempt
    node_id: Mapped[Big]
    flavor: Mapped[str]
    amount: Mapped[Big]
    state: Mapped[str]
    uid: Mapped[str] = mapped_column(server_default="")  # of the pod object last seen
    replacement_of: Mapped[str] = mapped_column(server_default="")
    exit_code: Mapped[int | None]
    disrupted: Mapped[bool] = mapped_column(server_default=text("false"))  # DisruptionTarget seen
    message: Mapped[str] = mapped_column(server_default="")
    device_keys: Mapped[list[str]] = mapped_column(JSONB, server_default=text("'[]'"))  # learned after start
    started_at: Mapped[Moment | None]
    finished_at: Mapped[Moment | None]
    changed_at: Mapped[Moment]


class Reservation(Base):
    """Quota kept for an Attempt; released in the transaction that records the proof of its end."""

    __tablename__ = "reservation"
    __table_args__ = (
        CheckConstraint("state IN ('held', 'released')", name="state_known"),
        CheckConstraint("(state = 'released') = (released_at IS NOT NULL)", name="released_has_time"),
        CheckConstraint("(state = 'released') = (proof <> '')", name="released_has_proof"),
        CheckConstraint("amount > 0", name="amount_positive"),
        Index("ix_reservation_held_queue", "queue_id", postgresql_where=text("state = 'held'")),
    )
    workload_id: Mapped[str] = mapped_column(_UUID, primary_key=True)
    attempt: Mapped[Big] = mapped_column(primary_key=True)
    flavor: Mapped[str] = mapped_column(primary_key=True)
    queue_id: Mapped[Big]
    amount: Mapped[Big]
    state: Mapped[str] = mapped_column(server_default="held")
    proof: Mapped[str] = mapped_column(server_default="")  # agent-report | tombstone-ack | fence | declared-lost
    created_at: Mapped[Moment]
    released_at: Mapped[Moment | None]


class Hold(Base):
    """Units of one Flavor on one node kept for one pod. No foreign keys: they halve the speed of a batch."""

    __tablename__ = "hold"
    __table_args__ = (
        CheckConstraint("amount >= 0", name="amount_not_negative"),  # 0: a pod without devices, held for its CPU
        Index("uq_hold_live", "pod_id", unique=True, postgresql_where=text("released_at IS NULL")),
        Index("ix_hold_node_live", "node_id", "flavor", postgresql_where=text("released_at IS NULL")),
        Index("ix_hold_attempt_live", "workload_id", "attempt", postgresql_where=text("released_at IS NULL")),
    )
    id: Mapped[BigKey]
    pod_id: Mapped[Big]
    node_id: Mapped[Big]
    cluster_id: Mapped[Big]
    flavor: Mapped[str]
    amount: Mapped[Big]
    cpu_milli: Mapped[int] = mapped_column(server_default="0")
    memory_bytes: Mapped[int] = mapped_column(server_default="0")
    rdma: Mapped[int] = mapped_column(server_default="0")
    hugepages_bytes: Mapped[int] = mapped_column(server_default="0")
    local_storage_bytes: Mapped[int] = mapped_column(server_default="0")
    workload_id: Mapped[str] = mapped_column(_UUID)
    attempt: Mapped[Big]
    created_at: Mapped[Moment]
    released_at: Mapped[Moment | None]


class HoldDevice(Base):
    """A named device of a hold, only where the cluster can honour the name (DRA)."""

    __tablename__ = "hold_device"
    __table_args__ = (
        Index("uq_hold_device_live", "device_uid", unique=True, postgresql_where=text("released_at IS NULL")),
    )
    hold_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    device_uid: Mapped[str] = mapped_column(primary_key=True)
    released_at: Mapped[Moment | None]


class Earmark(Tracked, Base):
    """Freed units kept for the Workload for whose sake they were freed."""

    __tablename__ = "earmark"
    workload_id: Mapped[str] = mapped_column(_UUID, primary_key=True)
    cluster_id: Mapped[Big]
    pool_id: Mapped[Big]
    shares: Mapped[list[dict[str, object]]] = mapped_column(JSONB)  # [{node, flavor, amount, cpu_milli, memory_bytes}]
    created_at: Mapped[Moment]
    until: Mapped[Moment]
    ended_at: Mapped[Moment | None]
    next_check_at: Mapped[Moment | None] = mapped_column(index=True)


class Exclusion(Tracked, Base):
    """A node that its cluster's scheduler refused for one shape of pod; expires."""

    __tablename__ = "exclusion"
    shape: Mapped[str] = mapped_column(primary_key=True)
    node_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    pool_id: Mapped[Big]
    words: Mapped[str]
    times: Mapped[int] = mapped_column(server_default="1")
    until: Mapped[Moment]
    created_at: Mapped[Moment]


class Directive(Base):
    """What an agent must make true for one object; immutable, one row per generation.

    `object_id` = "<workload id>.<attempt>". kind: apply (gated and pinned), start (gates off), tombstone.
    """

    __tablename__ = "directive"
    __table_args__ = (CheckConstraint("kind IN ('apply', 'start', 'tombstone')", name="kind_known"),)
    cluster_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    object_id: Mapped[str] = mapped_column(primary_key=True)
    gen: Mapped[Big] = mapped_column(primary_key=True)
    workload_id: Mapped[str] = mapped_column(_UUID)
    attempt: Mapped[Big]
    kind: Mapped[str]
    body: Mapped[Document]
    created_at: Mapped[Moment]


class DirectiveNumber(Base):
    """A directive's place in its cluster's stream; given in a last, tiny transaction."""

    __tablename__ = "directive_number"
    __table_args__ = (Index("uq_directive_number_directive", "cluster_id", "object_id", "gen", unique=True),)
    cluster_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    number: Mapped[Big] = mapped_column(primary_key=True)
    object_id: Mapped[str]
    gen: Mapped[Big]


class Checkpoint(Base):
    """A saved state of a Workload: step, location, size, time."""

    __tablename__ = "checkpoint"
    id: Mapped[BigKey]
    workload_id: Mapped[str] = mapped_column(_UUID, ForeignKey("workload.id"), index=True)
    attempt: Mapped[Big]
    step: Mapped[Big]
    uri: Mapped[str]
    bytes: Mapped[int | None]
    verified_at: Mapped[Moment | None]
    saved_at: Mapped[Moment]


class Window(Tracked, Base):
    """A stretch of time in which capacity is kept for someone or taken out."""

    __tablename__ = "window"
    __table_args__ = (CheckConstraint("ends_at > starts_at", name="ends_after_start"),)
    id: Mapped[BigKey]
    name: Mapped[str] = mapped_column(unique=True)
    pool_id: Mapped[int] = mapped_column(ForeignKey("pool.id"))
    kind: Mapped[str]
    spec: Mapped[Document]
    starts_at: Mapped[Moment]
    ends_at: Mapped[Moment]


class StateTransition(Base):
    """The lifecycles of `core.lifecycle` as rows: the database refuses every other change of a state.

    `from_state` is empty for the state in which a row begins.
    """

    __tablename__ = "state_transition"
    entity: Mapped[str] = mapped_column(primary_key=True)  # workload | attempt | cluster
    from_state: Mapped[str] = mapped_column(primary_key=True)
    to_state: Mapped[str] = mapped_column(primary_key=True)
