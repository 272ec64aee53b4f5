"""Runs a stored cycle again and says whether the plan is the same, bit for bit.

A chain of stored cycles starts at a base (every row) and goes on with what changed; each has the time and the
Policy that it was planned with. Nothing is written.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from controlplane.contract.rest.common import Json
from controlplane.contract.rest.planning import CycleLink, CycleRecordView, ReplayView
from controlplane.core.assumed import assumed
from controlplane.core.cycle import plan_cycle
from controlplane.core.facts.planning import StoredCycle
from controlplane.core.ids import PoolId
from controlplane.core.plan import Plan
from controlplane.core.policy import policy_from
from controlplane.core.records import World, changes_from_text, from_record, plan_hash
from controlplane.services.errors import NotFound
from controlplane.services.ports.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class Replay:
    """One cycle, run again. Hashes are SHA-256 in hex."""

    cycle: int
    plan: Plan
    stored_sha256: str
    replayed_sha256: str

    @property
    def is_identical(self) -> bool:
        """Whether the same world gave the same plan."""
        return self.stored_sha256 == self.replayed_sha256


def replay(uow: UnitOfWork, cycle: int) -> Replay:
    """Run a stored cycle again; raises NotFound where there is none of this id (any more)."""
    return rerun(chain_to(uow, cycle))


def chain_to(uow: UnitOfWork, cycle: int) -> Sequence[StoredCycle]:
    """The cycle's base and all after it, up to the cycle; raises NotFound where there is none (any more)."""
    chain = uow.planning.chain(cycle)
    if not chain:
        raise NotFound(f"there is no cycle {cycle}, or no longer")
    return chain


def rerun(chain: Sequence[StoredCycle]) -> Replay:
    """Run the last cycle of a chain again; the first must be a base."""
    world = World(PoolId(0))
    before: StoredCycle | None = None
    for stored in chain:
        assumes, changes = changes_from_text(zlib.decompress(stored.changes))
        if assumes and before is not None:
            world.apply(assumed(world.freeze(), _stored_plan(before), before.now))
        world.apply(changes)
        before = stored
    last = chain[-1]
    plan = plan_cycle(world.freeze(), policy_from(last.policy_version, last.policy), last.now)
    return Replay(last.id, plan, _stored_hash(last), plan_hash(plan))


def view(found: Replay) -> ReplayView:
    """How it is told."""
    return ReplayView(
        cycle=found.cycle, identical=found.is_identical, stored_sha256=found.stored_sha256,
        replayed_sha256=found.replayed_sha256, decisions=len(found.plan.decisions), waiting=len(found.plan.reasons),
        work_units=found.plan.work_units,
    )  # fmt: skip


def record_of(chain: Sequence[StoredCycle]) -> CycleRecordView:
    """A chain as it travels, so that it can be run elsewhere."""
    last = chain[-1]
    links = [
        CycleLink(
            cycle=each.id, policy_version=each.policy_version, policy=cast("dict[str, Json]", dict(each.policy)),
            now=each.now, changes=base64.b64encode(each.changes).decode(),
            plan=base64.b64encode(each.plan).decode(), plan_sha256=each.plan_sha256.hex(),
        )
        for each in chain
    ]  # fmt: skip
    return CycleRecordView(cycle=last.id, links=links)


def chain_of(record: CycleRecordView) -> list[StoredCycle]:
    """The chain again; raises ValueError for what is no record."""
    return [
        StoredCycle(
            id=each.cycle, base=record.links[0].cycle, policy_version=each.policy_version, policy=each.policy,
            now=each.now, changes=base64.b64decode(each.changes, validate=True),
            plan=base64.b64decode(each.plan, validate=True), plan_sha256=bytes.fromhex(each.plan_sha256),
            running_sha256=b"",
        )
        for each in record.links
    ]  # fmt: skip


def _stored_hash(stored: StoredCycle) -> str:
    """The stored Plan's hash in today's form; the form may have left out less when it was stored."""
    if hashlib.sha256(zlib.decompress(stored.plan)).digest() != stored.plan_sha256:
        return stored.plan_sha256.hex()  # it was tampered with
    return plan_hash(_stored_plan(stored))


def _stored_plan(stored: StoredCycle) -> Plan:
    return cast("Plan", from_record("Plan", json.loads(zlib.decompress(stored.plan))))
