"""Removing a Cluster: what it would do to the work there, asked beforehand and chosen by whoever removes it.

`refuse` takes an empty one only; `stop` empties it first, and a sweep removes it once every end is proven; `lost` is an
admin's word for a Cluster that nobody hears any more. Its name is free afterwards; its agent is banned, and only a new
Cluster, with a new token and a new key, can speak for the same machines again.
"""

from collections.abc import Sequence
from functools import partial

from controlplane.contract.rest.cordons import QueueThere, RemovalChoice, RemovalView, WorkChoice
from controlplane.core.facts.fleet import ClusterFact, Document, Drain, QueueLoad
from controlplane.core.ids import ClusterId
from controlplane.core.lifecycle import LIVE_ATTEMPT, ClusterEvent, ClusterState
from controlplane.services import accounting, attempt_batch, attempts, cordons, drains, fleet
from controlplane.services.attempt_batch import By
from controlplane.services.errors import Conflict, Fault, NotFound
from controlplane.services.ports.unit_of_work import UnitOfWork, UnitOfWorkFactory, run
from controlplane.services.preconditions import UNCONDITIONAL, Expected

PLANE = By("plane")
WHY = "it is being removed"


def consequences(uow: UnitOfWork, name: str) -> RemovalView:
    """What removing a Cluster would do, for each choice; raises NotFound."""
    cluster = uow.fleet.cluster_named(name)
    if cluster is None:
        raise NotFound(f"there is no cluster {name}")
    load = uow.cordons.load(cluster.id)
    return RemovalView(
        cluster=name,
        state=cluster.state,
        attempts=sum(each.attempts for each in load),
        devices=sum(each.devices for each in load),
        queues=[QueueThere(queue=each.queue, attempts=each.attempts, devices=each.devices) for each in load],
        choices=_choices(cluster, load, may_be_lost=_may_be_lost(uow, cluster)),
    )


def remove(uow: UnitOfWork, name: str, work: WorkChoice, by: By, expected: Expected = UNCONDITIONAL) -> bool:
    """Remove a Cluster; False where that goes on until it is empty. Raises NotFound, PreconditionFailed, Conflict."""
    cluster = cordons.locked(uow, name)
    expected.check(str(cluster.version), f"cluster {name}")
    load = uow.cordons.load(cluster.id)
    if not load:
        _remove(uow, cluster, by, work)
        return True
    if work == "refuse":
        raise Conflict(
            f"{name} is in use: {_counted(load)}; choose what happens to it",
            slug="cluster-in-use",
            faults=_faults(load),
        )
    if work == "stop":
        if cluster.drain is not None and cluster.drain.then_remove and cluster.drain.deadline_at <= uow.now:
            return False  # it goes on already
        drains.begin(uow, cluster, Drain(WHY, uow.now, by.actor, then_remove=True), by)
        return False
    if not _may_be_lost(uow, cluster):
        raise Conflict(
            f"{name} is {cluster.state} and its agent may still speak: only an unreachable cluster, or one whose agent"
            " is banned, can be declared lost",
            slug="cluster-not-lost",
        )
    _remove(uow, cluster, by, work)
    return True


def check(factory: UnitOfWorkFactory, limit: int) -> int:
    """Carry on with every drain, each in a transaction of its own; returns how many orders and removals there were."""
    with factory() as uow:
        draining = uow.cordons.draining(limit)
    return sum(run(factory, partial(_check, cluster_id=each)) for each in draining)


def _check(uow: UnitOfWork, cluster_id: ClusterId) -> int:
    seen = uow.fleet.cluster(cluster_id)
    if seen is None or seen.drain is None:
        return 0
    may_go = seen.drain.then_remove and not uow.cordons.load(cluster_id)
    if may_go:
        uow.cordons.hold_planning(seen.pool)  # before the Cluster, as everywhere
    cluster = uow.cordons.lock_if_free(cluster_id)
    if cluster is None or cluster.drain is None:
        return 0
    told = drains.carry_on(uow, cluster, cluster.drain, PLANE)
    if may_go and cluster.drain.then_remove and not uow.cordons.load(cluster_id):
        _remove(uow, cluster, By(cluster.drain.by), "stop")
        return told + 1
    return told


def _remove(uow: UnitOfWork, cluster: ClusterFact, by: By, work: WorkChoice) -> None:
    """Of a locked Cluster, whose planner is held off. Whatever still lives there is lost."""
    keys = uow.cordons.live_in(cluster.id, LIVE_ATTEMPT)
    uow.ledger.lock_all_accounts()  # before the nodes' counters, as everywhere
    uow.fleet.remove_nodes(cluster.id, (), keep=True)
    others = attempts.lose_cluster(uow, cluster.id, keys, by) if keys else set()
    uow.attempts.release_holds(uow.attempts.held_on(uow.cordons.nodes_of(cluster.id)))
    uow.cordons.end_earmarks(cluster.id)
    facts: Document = {"work": work, "attempts_lost": len(keys)}
    fleet.move(uow, cluster, ClusterEvent.REMOVED, by.actor, by.request_id, facts)
    uow.agents.ban_keys(cluster.id)  # after the move: a ban raises the row's version, too
    uow.agents.end_sessions(cluster.id)
    uow.agents.revoke_tokens(cluster.id)
    uow.cordons.remove(cluster.id)
    accounting.sync_accounts(uow)  # what it owned counts no more
    uow.notify_cluster(cluster.id)  # its agent may wait for an answer
    attempt_batch.number(uow, others)
    uow.wake_pool(cluster.pool)


def _may_be_lost(uow: UnitOfWork, cluster: ClusterFact) -> bool:
    return cluster.state is ClusterState.UNREACHABLE or not uow.cordons.has_agent(cluster.id)


def _choices(cluster: ClusterFact, load: Sequence[QueueLoad], *, may_be_lost: bool) -> list[RemovalChoice]:
    if not load:
        at_once = "Nothing of ours lives there, so it is removed at once."
        return [RemovalChoice(work=work, allowed=True, sentence=at_once) for work in ("refuse", "stop", "lost")]
    there = _counted(load)
    waits = "" if cluster.state is ClusterState.READY else f" It is {cluster.state}, so that waits until it is heard."
    lost = (
        f"What lives there ({there}) ends as lost, without proof, and is tried again elsewhere, whatever its"
        " onClusterLoss says. Should it still run there, it runs twice until somebody stops it there."
        if may_be_lost
        else f"Only an unreachable cluster, or one whose agent is banned, can be declared lost; it is {cluster.state}."
    )
    return [
        RemovalChoice(work="refuse", allowed=False, sentence=f"Refused while something lives there: {there}."),
        RemovalChoice(
            work="stop",
            allowed=True,
            sentence=f"What lives there ({there}) is stopped now and goes elsewhere from its old place in the queue;"
            f" the cluster goes once its agent has proven that nothing is left.{waits}",
        ),
        RemovalChoice(work="lost", allowed=may_be_lost, sentence=lost),
    ]


def _counted(load: Sequence[QueueLoad]) -> str:
    live, devices = sum(each.attempts for each in load), sum(each.devices for each in load)
    return f"attempts: {live}, devices held: {devices}, queues: {len(load)}"


def _faults(load: Sequence[QueueLoad]) -> tuple[Fault, ...]:
    return tuple(
        Fault("", f"{each.queue}: attempts: {each.attempts}, devices held: {each.devices}", "cluster-in-use")
        for each in load[:20]
    )
