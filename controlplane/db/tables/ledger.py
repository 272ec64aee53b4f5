"""Accounts, Transfers with their legs, usage, audit, and the record of cycles. Append-only but for balances.

A leaf account keeps its usage in two parts, `pending` (placed) and `posted` (running). An inner account
keeps all that passes its children's kept parts in `posted`: how much of it is pending depends on the order
of events, and only the sum U = pending + posted limits anything (see the ledger's decision record).
"""

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, LargeBinary, text
from sqlalchemy.dialects.postgresql import JSONB, TSTZRANGE, UUID, ExcludeConstraint, Range
from sqlalchemy.orm import Mapped, mapped_column

from controlplane.db.base import Base, Big, BigKey, Document, Moment, Xid8

_UUID = UUID(as_uuid=False)


class Account(Base):
    """(Queue, Flavor): S (`subtree`), B (`borrow_limit`), K (`kept`) of the quota tree, and U in two parts."""

    __tablename__ = "account"
    __table_args__ = (
        CheckConstraint("pending >= 0 AND posted >= 0 AND overdraft >= 0", name="not_negative"),
        CheckConstraint("NOT is_root OR pending + posted <= subtree + overdraft", name="root_not_oversold"),
        CheckConstraint("borrow_limit IS NULL OR pending + posted <= subtree + borrow_limit + overdraft",
                        name="borrowing_limited"),
    )  # fmt: skip
    queue_id: Mapped[int] = mapped_column(ForeignKey("queue.id"), primary_key=True)
    flavor: Mapped[str] = mapped_column(primary_key=True)
    is_root: Mapped[bool]
    subtree: Mapped[Big]
    borrow_limit: Mapped[int | None]
    kept: Mapped[int] = mapped_column(server_default="0")
    overdraft: Mapped[int] = mapped_column(server_default="0")
    pending: Mapped[int] = mapped_column(server_default="0")
    posted: Mapped[int] = mapped_column(server_default="0")


class ClusterOwned(Base):
    """Units of one Flavor in one Cluster that count for quota; where fewer are told, they fall from `peak`."""

    __tablename__ = "cluster_owned"
    __table_args__ = (CheckConstraint("units BETWEEN 0 AND peak", name="units_range"),)
    cluster_id: Mapped[int] = mapped_column(ForeignKey("cluster.id"), primary_key=True)
    flavor: Mapped[str] = mapped_column(primary_key=True)
    units: Mapped[Big]
    peak: Mapped[Big]
    since: Mapped[Moment | None]


class Transfer(Base):
    """One append-only change: place opens a pending one; post, void or expire resolves it; reverse ends a posted."""

    __tablename__ = "transfer"
    __table_args__ = (
        CheckConstraint("kind IN ('place', 'post', 'void', 'expire', 'reverse', 'adjust')", name="kind_known"),
        CheckConstraint("(kind IN ('post', 'void', 'expire', 'reverse')) = (pending_id IS NOT NULL)",
                        name="resolves_something"),
        Index("uq_transfer_resolution", "pending_id", unique=True,
              postgresql_where=text("kind IN ('post', 'void', 'expire')")),
        Index("uq_transfer_reverse", "pending_id", unique=True, postgresql_where=text("kind = 'reverse'")),
        Index("uq_transfer_place", "workload_id", "attempt", unique=True, postgresql_where=text("kind = 'place'")),
    )  # fmt: skip
    id: Mapped[BigKey]
    kind: Mapped[str]
    workload_id: Mapped[str | None] = mapped_column(_UUID)
    attempt: Mapped[int | None]
    pending_id: Mapped[int | None] = mapped_column(ForeignKey("transfer.id"))
    created_at: Mapped[Moment]


class Leg(Base):
    """What one Transfer does to one Account: `amount` moves from `source` to `target` side."""

    __tablename__ = "leg"
    __table_args__ = (
        CheckConstraint("amount > 0", name="amount_positive"),
        CheckConstraint("source IN ('free', 'pending', 'posted') AND target IN ('free', 'pending', 'posted')"
                        " AND source <> target", name="sides_known"),
        Index("ix_leg_account", "queue_id", "flavor"),
    )  # fmt: skip
    transfer_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    queue_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    flavor: Mapped[str] = mapped_column(primary_key=True)
    amount: Mapped[Big]
    source: Mapped[str]
    target: Mapped[str]


class UsageInterval(Base):
    """What one pod used; intervals of one pod, and of one named device, never overlap."""

    __tablename__ = "usage_interval"
    __table_args__ = (
        ExcludeConstraint(("pod_id", "="), ("during", "&&"), using="gist", name="ex_usage_interval_pod"),
        ExcludeConstraint(("device_key", "="), ("during", "&&"), using="gist", where=text("device_key <> ''"),
                          name="ex_usage_interval_device"),
        CheckConstraint("amount > 0", name="amount_positive"),
        CheckConstraint("NOT isempty(during) AND NOT lower_inf(during) AND NOT upper_inf(during)",
                        name="during_bounded"),
        Index("ix_usage_interval_waiting", "id", postgresql_where=text("NOT is_rolled_up")),
    )  # fmt: skip
    id: Mapped[BigKey]
    pod_id: Mapped[Big]
    workload_id: Mapped[str] = mapped_column(_UUID)
    attempt: Mapped[Big]
    queue_id: Mapped[Big]
    flavor: Mapped[str]
    amount: Mapped[Big]
    device_key: Mapped[str] = mapped_column(server_default="")
    during: Mapped[Range[datetime]] = mapped_column(TSTZRANGE)
    is_rolled_up: Mapped[bool] = mapped_column(server_default=text("false"))  # counted in usage_hour, once


class UsageHour(Base):
    """Device-seconds by Queue, Flavor and hour: the roll-up of usage intervals."""

    __tablename__ = "usage_hour"
    queue_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    flavor: Mapped[str] = mapped_column(primary_key=True)
    hour: Mapped[Moment] = mapped_column(primary_key=True)
    device_seconds: Mapped[Big]


class UsageDay(Base):
    """The same by day of UTC, for budgets; the trigger `add_to_day` keeps it."""

    __tablename__ = "usage_day"
    queue_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    day: Mapped[Moment] = mapped_column(primary_key=True)
    flavor: Mapped[str] = mapped_column(primary_key=True)
    device_seconds: Mapped[Big]


class Audit(Base):
    """Who did what to which object, in the transaction that did it; append-only."""

    __tablename__ = "audit"
    __table_args__ = (Index("ix_audit_object", "object_kind", "object_id"), Index("ix_audit_at", "at", "id"))
    id: Mapped[BigKey]
    at: Mapped[Moment]
    actor: Mapped[str]
    request_id: Mapped[str] = mapped_column(server_default="")
    action: Mapped[str]
    object_kind: Mapped[str]
    object_id: Mapped[str]
    state_from: Mapped[str | None]  # for a change of state: both ends
    state_to: Mapped[str | None]
    facts: Mapped[Document] = mapped_column(server_default=text("'{}'"))
    before_sha256: Mapped[bytes | None]
    after_sha256: Mapped[bytes | None]
    xid: Mapped[int] = mapped_column(Xid8, server_default=text("pg_current_xact_id()"), index=True)


class AuditSeal(Base):
    """A row's place in the audit log's chain of hashes: sha256(the chain before, the row). Append-only.

    A table of its own, because audit rows are never updated and commit in another order than they were numbered.
    """

    __tablename__ = "audit_seal"
    position: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    audit_id: Mapped[int] = mapped_column(BigInteger, unique=True)
    chain: Mapped[bytes]
    horizon: Mapped[int] = mapped_column(Xid8, server_default=text("'0'"))  # rows of transactions before have a seal


class Cycle(Base):
    """One planning cycle: what replay needs to run it again."""

    __tablename__ = "cycle"
    __table_args__ = (Index("ix_cycle_pool_started", "pool_id", "started_at"),)
    id: Mapped[BigKey]
    pool_id: Mapped[int] = mapped_column(ForeignKey("pool.id"))
    planner_epoch: Mapped[Big]
    base_id: Mapped[int | None]  # the cycle whose record is whole; NULL: this one
    policy_version: Mapped[Big]
    now: Mapped[Moment]
    changes: Mapped[bytes] = mapped_column(LargeBinary)  # compressed JSON: what changed since the last cycle, or a base
    plan: Mapped[bytes] = mapped_column(LargeBinary)  # compressed JSON
    plan_sha256: Mapped[bytes]
    running_sha256: Mapped[bytes]  # over (previous, changes, plan)
    decisions: Mapped[Big]
    dropped: Mapped[int] = mapped_column(server_default="0")
    work_units: Mapped[Big]
    left_over: Mapped[Big]
    started_at: Mapped[Moment]
    finished_at: Mapped[Moment]


class RebalanceReport(Base):
    """One report-only rebalancing pass of a Pool."""

    __tablename__ = "rebalance_report"
    __table_args__ = (Index("ix_rebalance_report_pool_at", "pool_id", "at"),)
    id: Mapped[BigKey]
    pool_id: Mapped[int] = mapped_column(ForeignKey("pool.id"))
    at: Mapped[Moment]
    report: Mapped[dict[str, object]] = mapped_column(JSONB)


class ProcessHeartbeat(Base):
    """That a worker, planner or beat made progress: liveness is work seen, not a process id."""

    __tablename__ = "process_heartbeat"
    name: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    at: Mapped[Moment]


class PeriodicRun(Base):
    """When a periodic job last ran, so that two beats do the work once."""

    __tablename__ = "periodic_run"
    name: Mapped[str] = mapped_column(primary_key=True)
    last_at: Mapped[Moment]
