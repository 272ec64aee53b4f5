"""Figure P: doing what `explain` says starts the job.

In each of many worlds (by seeds: `tests.support.waiting_worlds`) all who wait are advised. Each piece of advice is
carried out on a fresh copy of the world, by its numbers alone (`tests.support.doing`: a priority is changed, another
submit replaces the old one, limits are edited, nodes are added under names that the adviser did not know), and a whole
cycle is planned. P is the part of these trials in which the job starts. How many of those who wait are advised at all
is told beside it.
"""

import time
from collections import Counter

from controlplane.core.advising import Question, Told, advise
from controlplane.core.cycle import plan_cycle
from controlplane.core.ids import WorkloadId
from controlplane.core.plan import Admit
from controlplane.core.policy import Policy
from controlplane.core.snapshot import Snapshot
from tests.bench.figures import Result, at_least
from tests.builders.core import NOW
from tests.support.doing import done
from tests.support.waiting_worlds import waiting_world

WORLDS = 200


def advice_done() -> list[Result]:
    """P, in percent of all trials."""
    trials, started, waiting, advised = 0, 0, 0, 0
    kinds, silent = Counter[str](), Counter[str]()
    began, cpu = time.perf_counter(), time.process_time()
    for seed in range(WORLDS):
        snapshot = waiting_world(seed)
        for workload in sorted(snapshot.waiting):
            told = advise(Question(snapshot, Policy(), NOW, workload))
            if isinstance(told.outcome, Admit):
                continue
            waiting, advised = waiting + 1, advised + bool(told.advice)
            if not told.advice:
                silent[told.outcome[0].code] += 1
            trials += len(told.advice)
            started += sum(_starts(snapshot, workload, told, at) for at in range(len(told.advice)))
            kinds.update(step.kind for each in told.advice for step in each.steps)
    parameters = {
        "worlds": WORLDS, "waiting": waiting, "advised": advised, "trials": trials, "started": started,
        "steps": dict(kinds.most_common()), "first_reasons_without_advice": dict(silent.most_common()),
        "seconds": round(time.perf_counter() - began, 1), "cpu_seconds": round(time.process_time() - cpu, 1),
    }  # fmt: skip
    return [Result("P", 100 * started / max(1, trials), "% of trials", at_least(100), parameters)]


def _starts(snapshot: Snapshot, workload: WorkloadId, told: Told, at: int) -> bool:
    changed, asker = done(snapshot, workload, told.advice[at], NOW)
    plan = plan_cycle(changed, Policy(), NOW)
    return any(isinstance(each, Admit) and each.workload == asker for each in plan.decisions)
