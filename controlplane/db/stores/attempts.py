"""Attempts, placements, pods, holds and directives: every query of them that a service needs.

Fulfils `services.ports.attempts`. Rows go in as one JSON document per statement, so that a gang of thousands is as
many statements as a gang of one. The statements' texts stand in `attempts_sql`; the planner writes its own batch.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, TextClause
from sqlalchemy.orm import Session

from controlplane.core.facts.attempts import (
    AttemptFact,
    NewDirective,
    NodeRefused,
    PlacementChange,
    PlacementFact,
    PlacementState,
    PodFact,
    PodState,
    WorkloadMove,
    object_id,
)
from controlplane.core.facts.ledger import AttemptKey
from controlplane.core.ids import AttemptNumber, ClusterId, FlavorName, NodeId, PoolId, QueueId, WorkloadId
from controlplane.core.lifecycle import FINAL_WORKLOAD, AttemptState, ClusterState, Outcome, WorkloadState
from controlplane.core.policy import Policy, policy_from
from controlplane.core.reasons import Reason, ReasonCode, reason
from controlplane.db.arrays import plain
from controlplane.db.stores import attempts_sql as sql

Line = Row[Any]


class AttemptStore:
    """`uow.attempts`."""

    def __init__(self, session: Session, now: datetime) -> None:
        self._session = session
        self._now = now

    def read(self, keys: Collection[AttemptKey]) -> list[AttemptFact]:
        if not keys:
            return []
        which = _pairs(keys)
        placements: dict[AttemptKey, list[PlacementFact]] = defaultdict(list)
        for row in self._session.execute(sql.PLACEMENTS, which):
            placements[_key(row)].append(_placement(row))
        pods: dict[AttemptKey, list[PodFact]] = defaultdict(list)
        for row in self._session.execute(sql.PODS, which):
            pods[_key(row)].append(_pod(row))
        attempts = self._session.execute(sql.ATTEMPTS, which)
        return [_attempt(row, tuple(placements[_key(row)]), tuple(pods[_key(row)])) for row in attempts]

    def lock(self, keys: Collection[AttemptKey]) -> list[AttemptFact]:
        if not keys:
            return []
        self._session.execute(sql.LOCK_WORKLOADS, {"workloads": sorted({key.workload for key in keys})})
        return self.read(keys)

    def live_of(self, workloads: Collection[WorkloadId]) -> list[AttemptKey]:
        return self._keys(sql.LIVE_OF, workloads=list(workloads))

    def take_over(self, cluster: ClusterId, keys: Collection[AttemptKey]) -> int:
        taken = self._session.execute(sql.TAKE_OVER, {**_pairs(keys), "cluster": cluster}).all()
        if not taken:
            return 0
        told = [{"workload": row.workload, "attempt": row.attempt, "old": row.old} for row in taken]
        self._write(sql.COPY_DIRECTIVES, told, cluster=cluster)
        self.add_directives([NewDirective(cluster, _key(row), row.wanted_gen, "tombstone") for row in taken])
        return len(taken)

    def live_in(self, cluster: ClusterId) -> list[AttemptKey]:
        return self._keys(sql.LIVE_IN, cluster=cluster)

    def live_on(self, nodes: Collection[NodeId]) -> list[AttemptKey]:
        return self._keys(sql.LIVE_ON, nodes=list(nodes)) if nodes else []

    def held_on(self, nodes: Collection[NodeId]) -> list[int]:
        return list(self._session.scalars(sql.HELD_ON, {"nodes": list(nodes)})) if nodes else []

    def due(self, limit: int) -> list[AttemptKey]:
        return self._keys(sql.DUE, limit=limit, now=self._now)

    def policies(self, pools: Collection[PoolId]) -> Mapping[PoolId, Policy]:
        rows = self._session.execute(sql.POLICIES, {"pools": list(pools)})
        return {PoolId(row.id): policy_from(row.version, row.spec) for row in rows}

    def write_attempts(self, facts: Sequence[AttemptFact]) -> None:
        self._write(sql.WRITE_ATTEMPTS, [_attempt_row(fact) for fact in facts])

    def write_placements(self, changes: Sequence[PlacementChange]) -> None:
        self._write(sql.WRITE_PLACEMENTS, [_placement_row(change) for change in changes])

    def write_pods(self, pods: Sequence[PodFact]) -> None:
        self._write(sql.WRITE_PODS, [_pod_row(pod) for pod in pods])

    def write_workloads(self, moves: Sequence[WorkloadMove]) -> None:
        self._write(sql.WRITE_WORKLOADS, [_workload_row(move) for move in moves], now=self._now)

    def add_directives(self, directives: Sequence[NewDirective]) -> None:
        self._write(sql.ADD_DIRECTIVES, [_directive_row(directive) for directive in directives], now=self._now)

    def add_exclusions(self, refused: Sequence[NodeRefused]) -> None:
        newest = {(one.shape, one.cluster, one.node_name): one for one in refused}
        self._write(sql.ADD_EXCLUSIONS, [_refused_row(one) for one in newest.values()], now=self._now)

    def lock_counters(self, pods: Collection[int]) -> None:
        if pods:
            self._session.execute(sql.LOCK_COUNTERS, {"pods": plain(sorted(pods))})
            self._session.execute(sql.LOCK_NODES, {"pods": plain(sorted(pods))})

    def release_holds(self, pods: Collection[int]) -> None:
        if not pods:
            return
        self.lock_counters(pods)
        self._session.execute(sql.RELEASE_HOLDS, {"pods": plain(sorted(pods)), "now": self._now})

    def give_up_earmarks(self, workloads: Collection[WorkloadId]) -> None:
        if workloads:
            self._session.execute(sql.END_EARMARKS, {"workloads": sorted(workloads), "now": self._now})

    def _keys(self, statement: TextClause, **values: object) -> list[AttemptKey]:
        return [_key(row) for row in self._session.execute(statement, values)]

    def _write(self, statement: TextClause, rows: Sequence[Mapping[str, object]], **values: object) -> None:
        if rows:
            self._session.execute(statement, {"rows": json.dumps(rows, default=_plain), **values})


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is no plain value")


def _pairs(keys: Collection[AttemptKey]) -> dict[str, object]:
    ordered = sorted(set(keys))
    return {"workloads": [key.workload for key in ordered], "attempts": [int(key.attempt) for key in ordered]}


def _key(row: Line) -> AttemptKey:
    return AttemptKey(WorkloadId(row.workload), AttemptNumber(row.attempt))


def _reason(stored: Mapping[str, Any] | None) -> Reason | None:
    return None if stored is None else reason(ReasonCode(stored["code"]), **stored["facts"])


def _stored(why: Reason | None) -> dict[str, object] | None:
    return None if why is None else {"code": str(why.code), "facts": dict(why.facts)}


def _placement(row: Line) -> PlacementFact:
    return PlacementFact(
        cluster=ClusterId(row.cluster_id),
        state=PlacementState(row.state),
        wanted_gen=row.wanted_gen,
        applied_gen=row.applied_gen,
        message=row.message,
        cluster_name=row.cluster_name,
        # Of a Cluster that was removed nothing more will be told, so nobody waits for it.
        cluster_is_ready=row.cluster_state in {ClusterState.READY, ClusterState.REMOVED},
        budgets=row.budgets,
    )


def _pod(row: Line) -> PodFact:
    return PodFact(
        id=row.id,
        cluster=ClusterId(row.cluster_id),
        pod_set=row.pod_set,
        index=row.place,
        rank=row.rank,
        node=NodeId(row.node_id),
        node_name=row.node_name,
        flavor=FlavorName(row.flavor),
        amount=row.amount,
        state=PodState(row.state),
        uid=row.uid,
        replacement_of=row.replacement_of,
        exit_code=row.exit_code,
        disrupted=row.disrupted,
        message=row.message,
        device_keys=tuple(row.device_keys),
        started_at=row.started_at,
        finished_at=row.finished_at,
        changed_at=row.changed_at,
        is_held=row.is_held,
        node_is_lost=row.node_is_lost,
        node_trouble_at=row.node_trouble_at,
        device_trouble_at=row.device_trouble_at,
        device_words=row.device_words,
    )


def _attempt(row: Line, placements: tuple[PlacementFact, ...], pods: tuple[PodFact, ...]) -> AttemptFact:
    return AttemptFact(
        key=_key(row),
        state=AttemptState(row.state),
        outcome=None if row.outcome is None else Outcome(row.outcome),
        outcome_wanted=None if row.outcome_wanted is None else Outcome(row.outcome_wanted),
        verdict=row.verdict,
        reason=_reason(row.reason),
        placed_at=row.placed_at,
        prepared_at=row.prepared_at,
        start_ordered_at=row.start_ordered_at,
        running_at=row.running_at,
        stop_ordered_at=row.stop_ordered_at,
        failed_at=row.failed_at,
        evidence_until=row.evidence_until,
        ended_at=row.ended_at,
        next_check_at=row.next_check_at,
        workload_name=row.workload_name,
        workload_state=WorkloadState(row.workload_state),
        workload_version=row.workload_version,
        queue=QueueId(row.queue_id),
        pool=PoolId(row.pool_id),
        shape=row.shape,
        attempts_made=row.attempts_made,
        max_attempts=row.max_attempts,
        program_failures=row.program_failures,
        infrastructure_ends=row.infrastructure_ends,
        placements=placements,
        pods=pods,
    )


def _attempt_row(fact: AttemptFact) -> dict[str, object]:
    return {
        "workload_id": fact.key.workload,
        "attempt": fact.key.attempt,
        "state": fact.state,
        "outcome": fact.outcome,
        "outcome_wanted": fact.outcome_wanted,
        "verdict": fact.verdict,
        "reason": _stored(fact.reason),
        "prepared_at": fact.prepared_at,
        "start_ordered_at": fact.start_ordered_at,
        "running_at": fact.running_at,
        "stop_ordered_at": fact.stop_ordered_at,
        "failed_at": fact.failed_at,
        "evidence_until": fact.evidence_until,
        "ended_at": fact.ended_at,
        "next_check_at": fact.next_check_at,
    }


def _workload_row(move: WorkloadMove) -> dict[str, object]:
    return {
        "id": move.id,
        "state": move.state,
        "is_final": move.state in FINAL_WORKLOAD,
        "program_failures": move.program_failures,
        "infrastructure_ends": move.infrastructure_ends,
        "next_check_at": move.next_check_at,
        "not_before": move.not_before,
        "old_place": None if move.old_place is None else list(move.old_place),
        "reasons": None if move.reasons is None else [_stored(why) for why in move.reasons],
    }


def _placement_row(change: PlacementChange) -> dict[str, object]:
    placement = change.placement
    return {
        "workload_id": change.key.workload,
        "attempt": change.key.attempt,
        "cluster_id": placement.cluster,
        "state": placement.state,
        "wanted_gen": placement.wanted_gen,
        "applied_gen": placement.applied_gen,
        "message": placement.message,
    }


def _pod_row(pod: PodFact) -> dict[str, object]:
    return {
        "id": pod.id,
        "state": pod.state,
        "uid": pod.uid,
        "replacement_of": pod.replacement_of,
        "exit_code": pod.exit_code,
        "disrupted": pod.disrupted,
        "message": pod.message,
        "device_keys": list(pod.device_keys),
        "started_at": pod.started_at,
        "finished_at": pod.finished_at,
        "changed_at": pod.changed_at,
    }


def _directive_row(directive: NewDirective) -> dict[str, object]:
    return {
        "cluster_id": directive.cluster,
        "object_id": object_id(directive.key),
        "gen": directive.gen,
        "workload_id": directive.key.workload,
        "attempt": directive.key.attempt,
        "kind": directive.kind,
        "body": dict(directive.body),
    }


def _refused_row(one: NodeRefused) -> dict[str, object]:
    return {
        "pool_id": one.pool,
        "shape": one.shape,
        "cluster_id": one.cluster,
        "node_name": one.node_name,
        "words": one.words,
        "until": one.until,
    }
