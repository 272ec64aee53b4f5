"""Emptying a Cluster: nothing new at once, what runs may end by itself until a deadline, then it goes elsewhere.

A drain stands beside the Cluster's state, because one that is drained may fall silent, too. What was placed there and
has not started is given back at once; the rest is stopped at the deadline as `moved`: it keeps its place in the queue,
and no attempt is counted. A silent agent's Attempts wait, stopping, until it proves their end or is declared lost.
"""

from datetime import timedelta

from controlplane.core.facts.fleet import ClusterFact, Drain
from controlplane.core.ids import ClusterId
from controlplane.core.lifecycle import AttemptState, Outcome
from controlplane.core.reasons import ReasonCode, reason
from controlplane.services import attempt_batch, attempts, cordons
from controlplane.services.attempt_batch import By
from controlplane.services.ports.unit_of_work import UnitOfWork
from controlplane.services.preconditions import UNCONDITIONAL, Expected

UNSTARTED = frozenset({AttemptState.PLACED, AttemptState.PREPARED})
STARTED = frozenset({AttemptState.STARTING, AttemptState.RUNNING})
STOPPED_AT_ONCE_MAX = 500
"""How many Attempts one transaction tells to stop; its Cluster cannot speak, nor its Pool be planned, meanwhile."""


def drain(uow: UnitOfWork, name: str, wish: cordons.Wish, by: By, expected: Expected = UNCONDITIONAL) -> ClusterFact:
    """Empty a Cluster within `wish.seconds`; again with other words changes them. Raises NotFound, PreconditionFailed.

    A removal that waits for the Cluster to be empty goes on waiting.
    """
    cluster = cordons.locked(uow, name)
    expected.check(str(cluster.version), f"cluster {name}")
    then_remove = cluster.drain is not None and cluster.drain.then_remove
    deadline_at = uow.now + timedelta(seconds=wish.seconds or 0)
    begin(uow, cluster, Drain(wish.reason, deadline_at, by.actor, then_remove), by)
    return cluster


def undrain(uow: UnitOfWork, name: str, by: By, expected: Expected = UNCONDITIONAL) -> ClusterFact:
    """Let a Cluster take work again; what was told to stop still stops, and a removal that waited is called off."""
    cluster = cordons.locked(uow, name)
    expected.check(str(cluster.version), f"cluster {name}")
    if cluster.drain is not None:
        uow.cordons.drain_cluster(cluster.id, None)
        facts = {"name": name, "removal_called_off": cluster.drain.then_remove}
        uow.audit.record(
            actor=by.actor,
            action="cluster.undrain",
            object_kind="cluster",
            object_id=str(cluster.id),
            facts=facts,
            request_id=by.request_id,
        )
        uow.wake_pool(cluster.pool)
    return cluster


def begin(uow: UnitOfWork, cluster: ClusterFact, wanted: Drain, by: By) -> None:
    """Write a drain of a locked Cluster, whose planner is held off, and take its first steps."""
    uow.cordons.drain_cluster(cluster.id, wanted)
    uow.cordons.end_earmarks(cluster.id)
    facts = {
        "name": cluster.name,
        "why": wanted.reason,
        "deadline": wanted.deadline_at.isoformat(),
        "then_remove": wanted.then_remove,
    }
    uow.audit.record(
        actor=by.actor,
        action="cluster.drain",
        object_kind="cluster",
        object_id=str(cluster.id),
        facts=facts,
        request_id=by.request_id,
    )
    carry_on(uow, cluster, wanted, by)
    uow.wake_pool(cluster.pool)


def carry_on(uow: UnitOfWork, cluster: ClusterFact, drained: Drain, by: By, at_once: int = STOPPED_AT_ONCE_MAX) -> int:
    """Order what is due now of a locked Cluster's drain; returns how many Attempts were told to stop.

    Those of a large Cluster are told in pieces: what is left is the next sweep's.
    """
    why = reason(ReasonCode.CLUSTER_DRAINED, cluster=cluster.name, words=drained.reason)
    steps = [(UNSTARTED, Outcome.VOIDED)]
    if drained.deadline_at <= uow.now:
        steps.append((STARTED, Outcome.MOVED))
    told = 0
    clusters: set[ClusterId] = set()
    for states, outcome in steps:
        keys = uow.cordons.live_in(cluster.id, states, at_once - told)
        if keys:
            clusters |= attempts.stop_those(uow, keys, states, attempts.Ending(outcome, why), by)
            told += len(keys)
    attempt_batch.number(uow, clusters)
    return told
