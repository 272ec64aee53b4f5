"""The table of periodic jobs: what runs how often, and what it costs to miss a run.

beat sends each job on time and any sweep finds what beat missed: whoever comes first claims the run in Postgres
(`periodic_run`), so two beats, ten workers and a silent Redis give the same result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog

from controlplane.bootstrap import Container
from controlplane.services import (
    accounting,
    attempts,
    cordons,
    events,
    fleet,
    owned,
    recovery,
    removal,
    scheduling,
    sync,
)
from controlplane.services.ports.unit_of_work import UnitOfWork

log = structlog.get_logger(__name__)
BATCH = 500  # rows that one run takes at most; the rest waits for the next run
DROP_BATCHES_MAX = 100
IDEMPOTENCY_KEY_DAYS = 7


@dataclass(frozen=True, slots=True)
class Job:
    """One periodic job. `run` returns how many rows it worked."""

    name: str
    every_seconds: int
    run: Callable[[Container], int]
    if_missed: str


def _check_attempts(container: Container) -> int:
    with container.uow_factory() as uow:
        return attempts.check_attempts(uow, BATCH)


def _check_clusters(container: Container) -> int:
    with container.uow_factory() as uow:
        return fleet.check_clusters(uow, BATCH)


def _check_nodes(container: Container) -> int:
    with container.uow_factory() as uow:
        return fleet.check_nodes(uow, BATCH)


def _check_drains(container: Container) -> int:
    return removal.check(container.uow_factory, BATCH)


def _expire_cordons(container: Container) -> int:
    return cordons.expire(container.uow_factory, BATCH)


def _end_recovery(container: Container) -> int:
    with container.uow_factory() as uow:
        return recovery.settle(uow)


def _expire_earmarks(container: Container) -> int:
    with container.uow_factory() as uow:
        return scheduling.expire_earmarks(uow, BATCH)


def _poke_pools(container: Container) -> int:
    with container.uow_factory() as uow:
        due = uow.planning.due_pools(BATCH)
    for pool in due:
        container.wakeups.poke(pool)
    return len(due)


def _number_directives(container: Container) -> int:
    with container.uow_factory() as uow:
        return sync.number_left_over(uow, BATCH)


def _sync_accounts(container: Container) -> int:
    with container.uow_factory() as uow:
        settled = owned.settle(uow)
    with container.uow_factory() as uow:  # so that nobody who waits for what counts waits for accounts
        return settled + accounting.sync_accounts(uow)


def _roll_up_usage(container: Container) -> int:
    with container.uow_factory() as uow:
        return accounting.roll_up_usage(uow)


def _seal_audit(container: Container) -> int:
    return events.settle(container.uow_factory)


def _rebalance(container: Container) -> int:
    return scheduling.rebalance_once(container.uow_factory, container.snapshot_reader)


def _drop_old(container: Container) -> int:
    """In many short transactions; what one run leaves, the next one takes."""
    retention = timedelta(hours=container.settings.cycle_retention_hours)

    def keys(uow: UnitOfWork) -> int:
        return uow.tenancy.drop_idempotency_keys(uow.now - timedelta(days=IDEMPOTENCY_KEY_DAYS), BATCH)

    def cycles(uow: UnitOfWork) -> int:
        return uow.planning.drop_cycles_before(uow.now - retention, BATCH)

    def traces(uow: UnitOfWork) -> int:
        return uow.planning.drop_traces_before(uow.now - retention, BATCH)

    total = 0
    for drop in (keys, cycles, traces):
        for _ in range(DROP_BATCHES_MAX):
            with container.uow_factory() as uow:
                dropped = drop(uow)
            total += dropped
            if not dropped:
                break
    return total


PERIODIC: tuple[Job, ...] = (
    Job("check-attempts", 1, _check_attempts, "a verdict or a passed budget waits for the next run"),
    Job("check-clusters", 1, _check_clusters, "a silent cluster is called suspect later; nothing is evicted by it"),
    Job("check-nodes", 2, _check_nodes, "a lost node's gang is requeued later"),
    Job("check-drains", 1, _check_drains, "what a drain stops at its deadline, and a removal, come later"),
    Job("expire-cordons", 1, _expire_cordons, "what was cordoned for a while takes work again later"),
    Job("end-recovery", 2, _end_recovery, "a recovery in which nobody is awaited any more ends later"),
    Job("expire-earmarks", 5, _expire_earmarks, "freed room is kept for its asker a little longer"),
    Job("poke-pools", 1, _poke_pools, "planners find due pools by their own sweep"),
    Job("number-directives", 2, _number_directives, "directives that a crash left unnumbered reach agents later"),
    Job("sync-accounts", 10, _sync_accounts, "quota that counts what clusters own follows later"),
    Job("roll-up-usage", 300, _roll_up_usage, "hourly usage is folded later; nothing is counted twice"),
    Job("seal-audit", 60, _seal_audit, "the hash chain over audit rows closes later"),
    Job("rebalance", 60, _rebalance, "the last report stays the newest"),
    Job("drop-old", 3_600, _drop_old, "old cycles, reports and idempotency keys stay longer"),
)

BY_NAME = {job.name: job for job in PERIODIC}
# They decide on rows, which speak of a past while the plane recovers from a backup.
PAUSED_IN_RECOVERY = frozenset({"check-attempts", "check-clusters", "check-nodes", "check-drains"})


def run_due(container: Container, names: list[str] | None = None) -> int:
    """Claim and run every job (or those of `names`) whose time has come; returns the rows worked."""
    jobs = [job for job in PERIODIC if names is None or job.name in names]
    with container.uow_factory() as uow:
        claimed = frozenset(uow.planning.claim_periodic({job.name: job.every_seconds for job in jobs}))
        is_recovering = uow.agents.plane().recovering_since is not None
    paused = PAUSED_IN_RECOVERY if is_recovering else frozenset()
    return sum(
        _run(job, container) for job in jobs if job.name in claimed - paused
    )  # the long ones stand last in the table


def _run(job: Job, container: Container) -> int:
    """One job's failure is told and must not keep the others from their turn; its next run tries again."""
    try:
        return job.run(container)
    except Exception:
        log.exception("periodic job failed", job=job.name)
        return 0
