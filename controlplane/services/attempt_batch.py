"""Write what became of many Attempts as one batch: a fixed number of statements, in the plane's order of locks.

Accounts first, then counters of nodes, Workloads (locked by whoever calls), holds. Each change of a state has one
audit row in the same transaction.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from controlplane.core.facts.attempts import PlacementChange, object_id
from controlplane.core.facts.ledger import AttemptKey, AuditEntry, Proof
from controlplane.core.ids import ClusterId
from controlplane.core.lifecycle import WorkloadState
from controlplane.services import accounting
from controlplane.services.attempt_work import Work
from controlplane.services.ports.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class By:
    """Who brings a change about, and the request that asked for it, where one did."""

    actor: str
    request_id: str = ""


def lock(uow: UnitOfWork, works: Sequence[Work]) -> None:
    """Lock what these changes will touch and what comes before Workloads in the order of locks."""
    accounting.lock(uow, [work.fact.key for work in works if work.is_posted or work.proof is not None])
    uow.attempts.lock_counters([pod for work in works for pod in work.released()])


def write(uow: UnitOfWork, works: Sequence[Work], by: By) -> set[ClusterId]:
    """Write all of it; returns the clusters that have new directives, which still need their numbers."""
    _write_ledger(uow, works)
    uow.attempts.release_holds([pod for work in works for pod in work.released()])
    for round_ in range(max((len(work.passed) for work in works), default=0)):
        uow.attempts.write_attempts([work.passed[round_] for work in works if len(work.passed) > round_])
    uow.attempts.write_attempts([work.fact for work in works if _differs_from_last(work)])
    uow.attempts.write_placements(
        [PlacementChange(work.fact.key, each) for work in works for each in work.changed_placements()]
    )
    uow.attempts.write_pods([pod for work in works for pod in work.changed_pods()])
    uow.attempts.write_workloads([work.move for work in works if work.move is not None])
    uow.attempts.add_directives([each for work in works for each in work.directives])
    uow.attempts.add_exclusions([each for work in works for each in work.refused])
    _write_around(uow, works, by)
    return {each.cluster for work in works for each in work.directives}


def number(uow: UnitOfWork, clusters: set[ClusterId]) -> None:
    """Give new directives their place in the streams and wake whom they are for; the last thing of a transaction."""
    for cluster in uow.agents.number_directives(clusters):
        uow.notify_cluster(cluster)


def _write_ledger(uow: UnitOfWork, works: Sequence[Work]) -> None:
    posted = [work.fact.key for work in works if work.is_posted]
    if posted:
        accounting.post(uow, posted)
    settled: dict[Proof, list[AttemptKey]] = defaultdict(list)
    for work in works:
        if work.proof is not None:
            settled[work.proof].append(work.fact.key)
    for proof, keys in settled.items():
        accounting.settle(uow, keys, proof)
    usages = [each for work in works for each in work.usages]
    if usages:
        accounting.record_usage(uow, usages)


def _write_around(uow: UnitOfWork, works: Sequence[Work], by: By) -> None:
    """Audit, earmarks that are not needed any more, planners that have something to do now."""
    uow.audit.record_many([entry for work in works for entry in _audited(work, by)])
    settled = {WorkloadState.RUNNING, WorkloadState.SUCCEEDED, WorkloadState.FAILED, WorkloadState.CANCELLED}
    uow.attempts.give_up_earmarks(
        [work.move.id for work in works if work.move is not None and work.move.state in settled]
    )
    for work in works:
        is_waiting = work.move is not None and work.move.state is WorkloadState.PENDING
        if is_waiting or work.proof is not None or work.released():
            uow.wake_pool(work.fact.pool)


def _differs_from_last(work: Work) -> bool:
    return work.fact != (work.passed[-1] if work.passed else work.before)


def _audited(work: Work, by: By) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    before = work.before.state
    for passed in work.passed:
        facts = {} if passed.outcome is None else {"outcome": str(passed.outcome)}
        name = object_id(work.fact.key)
        entries.append(_entry(by, "attempt", name, before, passed.state, facts))
        before = passed.state
    was = work.before.workload_state
    if work.move is not None and work.move.state is not was:
        facts = {} if work.fact.verdict is None else {"verdict": work.fact.verdict}
        now = work.move.state
        entries.append(_entry(by, "workload", work.move.id, was, now, facts))
    return entries


def _entry(by: By, kind: str, name: str, before: StrEnum, after: StrEnum, facts: Mapping[str, object]) -> AuditEntry:
    return AuditEntry(by.actor, f"{kind}.{after}", kind, name, before, after, facts, by.request_id)
