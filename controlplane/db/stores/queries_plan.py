"""Read models of planning cycles: one cycle, and what it decided, with names beside ids."""

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Row, text
from sqlalchemy.orm import Session

from controlplane.contract.rest.common import ReasonView
from controlplane.contract.rest.operations import CycleView, DecisionView, PlacedView, PlanView, WaitingView
from controlplane.core.plan import Admit, Decision, Placement, Plan, Reclaim
from controlplane.core.reasons import Reason
from controlplane.core.records import from_record

WAITING_MAX = 1_000
Line = Row[Any]

_CYCLE = text("""
    SELECT cycle.id, pool.name AS pool, cycle.policy_version, cycle.decisions, cycle.dropped, cycle.work_units,
           cycle.left_over, cycle.started_at, cycle.finished_at, encode(cycle.plan_sha256, 'hex') AS plan_sha256
    FROM cycle JOIN pool ON pool.id = cycle.pool_id WHERE cycle.id = :number""")
_PLAN = text("SELECT plan, encode(plan_sha256, 'hex') AS plan_sha256 FROM cycle WHERE id = :number")
_WORKLOADS = text("""
    SELECT CAST(workload.id AS text) AS id, workload.name, queue.path
    FROM workload JOIN queue ON queue.id = workload.queue_id WHERE workload.id = ANY(CAST(:ids AS uuid[]))""")
_CLUSTERS = text("SELECT id, name FROM cluster WHERE id = ANY(:ids)")


@dataclass(frozen=True, slots=True)
class _Names:
    """What people call what a Plan names by ids."""

    workloads: Mapping[str, Line]
    clusters: Mapping[int, str]

    def name(self, workload: str) -> str:
        found = self.workloads.get(workload)
        return "" if found is None else str(found.name)

    def queue(self, workload: str) -> str | None:
        found = self.workloads.get(workload)
        return None if found is None else str(found.path)


def cycle(session: Session, number: int) -> CycleView | None:
    """One, while it is kept."""
    row = session.execute(_CYCLE, {"number": number}).mappings().one_or_none()
    return None if row is None else CycleView(**row)


def plan(session: Session, number: int) -> PlanView | None:
    """What a cycle decided, and why others wait, while it is kept."""
    row = session.execute(_PLAN, {"number": number}).one_or_none()
    if row is None:
        return None
    made = cast("Plan", from_record("Plan", json.loads(zlib.decompress(row.plan))))
    waiting = list(made.reasons.items())[:WAITING_MAX]
    names = _named(session, made.decisions, [workload for workload, _ in waiting])
    return PlanView(
        cycle=number,
        plan_sha256=row.plan_sha256,
        work_units=made.work_units,
        left_over=made.left_over,
        decisions=[_decision(each, names) for each in made.decisions],
        waiting=[
            WaitingView(
                workload=workload,
                name=names.name(workload),
                queue=names.queue(workload),
                reasons=[_reason(each) for each in reasons],
            )
            for workload, reasons in waiting
        ],
        waiting_total=len(made.reasons),
    )


def _named(session: Session, decisions: Sequence[Decision], waiting: Iterable[str]) -> _Names:
    workloads = {*waiting, *(each.workload for each in decisions)}
    workloads |= {each.asker for each in decisions if isinstance(each, Reclaim)}
    clusters = {part.cluster for each in decisions if isinstance(each, Admit) for part in each.placements}
    clusters |= {each.cluster for each in decisions if not isinstance(each, Admit | Reclaim)}
    return _Names(
        {row.id: row for row in session.execute(_WORKLOADS, {"ids": sorted(workloads)})},
        {row.id: row.name for row in session.execute(_CLUSTERS, {"ids": sorted(clusters)})},
    )


def _decision(made: Decision, names: _Names) -> DecisionView:
    workload = made.workload
    view = DecisionView(kind="admit", workload=workload, name=names.name(workload), queue=names.queue(workload))
    if isinstance(made, Admit):
        placements = [_placed(part, names) for part in made.placements]
        told = {"attempt": made.attempt, "placements": placements, "stands_on": list(made.stands_on)}
        return view.model_copy(update=told)
    if isinstance(made, Reclaim):
        asker = {"asker": made.asker, "asker_name": names.name(made.asker)}
        return view.model_copy(
            update={"kind": "reclaim", "attempt": made.attempt, "reason": _reason(made.reason), **asker}
        )
    units: Counter[str] = Counter()
    for share in made.shares:
        units[share.flavor] += share.amount
    kept = PlacedView(
        cluster=names.clusters.get(made.cluster, ""),
        nodes=len({share.node for share in made.shares}),
        pods=0,
        units=dict(units),
    )
    told = {"kind": "earmark", "placements": [kept], "until": made.until, "stands_on": list(made.stands_on)}
    return view.model_copy(update=told)


def _placed(part: Placement, names: _Names) -> PlacedView:
    units: Counter[str] = Counter()
    for pod in part.pods:
        units[pod.flavor] += pod.amount
    return PlacedView(
        cluster=names.clusters.get(part.cluster, ""),
        nodes=len({pod.node for pod in part.pods}),
        pods=len(part.pods),
        units=dict(units),
    )


def _reason(why: Reason) -> ReasonView:
    return ReasonView(code=why.code, sentence=why.sentence(), facts=dict(why.facts))
