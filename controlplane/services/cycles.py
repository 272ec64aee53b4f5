"""A cycle on its way from the planner into the database: what is committed, and what is stored of it for replay."""

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from controlplane.core.facts.planning import Change, CycleRecord, Horizon, PlannerLease
from controlplane.core.ids import NodeId, WorkloadId
from controlplane.core.plan import Plan
from controlplane.core.policy import Policy
from controlplane.core.reasons import Reason
from controlplane.core.recheck import Verdict
from controlplane.core.records import canonical, changes_text, running_hash, to_record
from controlplane.core.snapshot import Snapshot
from controlplane.services.ports.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class Cycle:
    """One planned cycle, to be committed. `said` are the Reasons that differ from what was stored."""

    lease: PlannerLease
    snapshot: Snapshot
    plan: Plan
    policy: Policy
    now: datetime
    changes: tuple[Change, ...]
    is_base: bool
    said: Mapping[WorkloadId, tuple[Reason, ...]]
    horizon: Horizon  # up to where its world was read
    assumes: bool = False  # the changes follow what the cycle before decided


@dataclass(frozen=True, slots=True)
class Written:
    """What a commit came to. `own` names it to later readings, with what they must read again (`Horizon`)."""

    decisions: int = 0
    fallen: int = 0
    own: int = 0
    nodes_again: tuple[NodeId, ...] = ()
    workloads_again: tuple[WorkloadId, ...] = ()


@dataclass(frozen=True, slots=True)
class Texts:
    """What replay needs of a cycle: the row changes since the cycle before (or a base) and the Plan, as stored.

    Worked out before anything is locked: of a base, it takes a while.
    """

    changes: str
    plan: str
    packed: tuple[bytes, bytes]

    @classmethod
    def of(cls, cycle: Cycle) -> "Texts":
        """Canonical JSON, and the same compressed."""
        changes, plan = changes_text(cycle.changes, assumes=cycle.assumes), canonical(to_record(cycle.plan))
        return cls(changes, plan, (zlib.compress(changes.encode(), level=1), zlib.compress(plan.encode(), level=1)))


def record_of(uow: UnitOfWork, cycle: Cycle, texts: Texts, verdict: Verdict) -> CycleRecord:
    """What is stored of a cycle, linked to the one before."""
    base, running = uow.planning.last_link(cycle.lease.pool) or (None, b"")
    digest = hashlib.sha256(texts.plan.encode())
    return CycleRecord(
        pool=cycle.lease.pool,
        epoch=cycle.lease.epoch,
        base=None if cycle.is_base else base,
        policy_version=cycle.policy.version,
        now=cycle.now,
        changes=texts.packed[0],
        plan=texts.packed[1],
        plan_sha256=digest.digest(),
        running_sha256=bytes.fromhex(running_hash(running.hex(), texts.changes, digest.hexdigest())),
        decisions=len(verdict.kept),
        dropped=len(verdict.fallen),
        work_units=cycle.plan.work_units,
        left_over=cycle.plan.left_over,
        started_at=cycle.now,
    )
