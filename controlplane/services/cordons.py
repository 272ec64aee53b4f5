"""Cordons by hand: a Cluster, a Node or a Device takes nothing new for a reason, until a time or somebody's word.

What runs there runs on. Each is a command that says what must hold: a second time changes and audits nothing. A cordon
stands before its answer is given: a commit under way is waited for, and the next one sees it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from controlplane.core.facts.fleet import ClusterFact, Cordon, DeviceFact, NodeFact
from controlplane.core.ids import ClusterId, NodeId
from controlplane.services import wire
from controlplane.services.attempt_batch import By
from controlplane.services.errors import NotFound
from controlplane.services.ports.unit_of_work import UnitOfWork, UnitOfWorkFactory, run
from controlplane.services.preconditions import UNCONDITIONAL, Expected

PLANE = By("plane")


@dataclass(frozen=True, slots=True)
class Wish:
    """A cordon as asked for: why, and for how many seconds; None: until somebody puts it back."""

    reason: str
    seconds: int | None = None


def cordon_cluster(
    uow: UnitOfWork, name: str, wish: Wish | None, by: By, expected: Expected = UNCONDITIONAL
) -> ClusterFact:
    """Let a Cluster take nothing new, or (None) take work again. Raises NotFound, PreconditionFailed."""
    cluster = locked(uow, name)
    expected.check(str(cluster.version), f"cluster {name}")
    wanted = _cordon(uow, wish, by, cluster.cordon)
    if wanted != cluster.cordon:
        uow.cordons.cordon_cluster(cluster.id, wanted)
        if wanted is not None:
            uow.cordons.end_earmarks(cluster.id)
        _audit(uow, by, "cluster", str(cluster.id), wanted, {"name": name})
        uow.wake_pool(cluster.pool)
    return cluster


def cordon_node(
    uow: UnitOfWork, cluster: str, name: str, wish: Wish | None, by: By, expected: Expected = UNCONDITIONAL
) -> NodeFact:
    """Take a Node out of planning, or (None) put it back. Raises NotFound, PreconditionFailed."""
    at = _found(uow, cluster)
    uow.fleet.lock_cluster(at.id)
    node = node_in(uow, at, name)
    expected.check(str(node.cordon_version), f"node {name} of {cluster}")
    return _cordon_node(uow, node, at.name, wish, by)


def cordon_node_numbered(uow: UnitOfWork, number: NodeId, wish: Wish | None, by: By) -> NodeFact:
    """The same by its number."""
    seen = uow.cordons.node(number)
    at = None if seen is None else uow.fleet.lock_cluster(seen.cluster)
    node = uow.cordons.node(number)
    if node is None or at is None:
        raise NotFound("there is no such node")
    return _cordon_node(uow, node, at.name, wish, by)


def cordon_device(
    uow: UnitOfWork, number: int, wish: Wish | None, by: By, expected: Expected = UNCONDITIONAL
) -> DeviceFact:
    """Take one Device out of planning: its node may give one unit less. Raises NotFound, PreconditionFailed.

    Where a device plugin hands out cards, it may still hand out this one; what is sold is one fewer.
    """
    seen = uow.cordons.device(number)
    if seen is not None:
        uow.fleet.lock_cluster(seen.cluster)
    device = uow.cordons.device(number)
    if device is None:
        raise NotFound(f"there is no device {number}")
    expected.check(str(device.cordon_version), f"device {number}")
    wanted = _cordon(uow, wish, by, device.cordon)
    if wanted != device.cordon:
        _write_device(uow, device, wanted, by)
    return device


def node_in(uow: UnitOfWork, cluster: ClusterFact, name: str) -> NodeFact:
    """The Node of this name; raises NotFound."""
    node = uow.cordons.node_named(cluster.id, name)
    if node is None:
        raise NotFound(f"{cluster.name} has no node {name}")
    return node


def locked(uow: UnitOfWork, name: str) -> ClusterFact:
    """The Cluster of this name, its row locked and its Pool's commits held off; raises NotFound."""
    found = _found(uow, name)
    uow.cordons.hold_planning(found.pool)  # before the Cluster, as everywhere
    cluster = uow.fleet.lock_cluster(found.id)
    if cluster is None:
        raise NotFound(f"there is no cluster {name}")
    return cluster


def expire(factory: UnitOfWorkFactory, limit: int) -> int:
    """End the cordons whose time is over, each in a transaction of its own; returns how many."""
    with factory() as uow:
        ends = [partial(_end_of_cluster, cluster=each) for each in uow.cordons.ended_clusters(limit)]
        ends += [partial(_end_of_node, seen=each) for each in uow.cordons.ended_nodes(limit)]
        ends += [partial(_end_of_device, seen=each) for each in uow.cordons.ended_devices(limit)]
    return sum(run(factory, end) for end in ends)


def recount(uow: UnitOfWork, cluster: ClusterId, node: NodeId) -> None:
    """Make a node's counters again from what is stored of it and of its devices."""
    resources, cards = uow.cordons.cards(node)
    uow.cordons.write_counts(cluster, node, wire.flavor_counts(resources, cards))


def _found(uow: UnitOfWork, name: str) -> ClusterFact:
    found = uow.fleet.cluster_named(name)
    if found is None:
        raise NotFound(f"there is no cluster {name}")
    return found


def _end_of_cluster(uow: UnitOfWork, cluster: ClusterId) -> int:
    found = uow.fleet.lock_cluster(cluster)
    if found is None or not _is_over(found.cordon, uow.now):
        return 0
    uow.cordons.cordon_cluster(cluster, None)
    _audit(uow, PLANE, "cluster", str(cluster), None, {"name": found.name})
    uow.wake_pool(found.pool)
    return 1


def _end_of_node(uow: UnitOfWork, seen: NodeFact) -> int:
    at = uow.fleet.lock_cluster(seen.cluster)
    node = uow.cordons.node(seen.id)
    if at is None or node is None or not _is_over(node.cordon, uow.now):
        return 0
    _cordon_node(uow, node, at.name, None, PLANE)
    return 1


def _end_of_device(uow: UnitOfWork, seen: DeviceFact) -> int:
    uow.fleet.lock_cluster(seen.cluster)
    device = uow.cordons.device(seen.id)
    if device is None or not _is_over(device.cordon, uow.now):
        return 0
    _write_device(uow, device, None, PLANE)
    return 1


def _cordon_node(uow: UnitOfWork, node: NodeFact, cluster: str, wish: Wish | None, by: By) -> NodeFact:
    wanted = _cordon(uow, wish, by, node.cordon)
    if wanted == node.cordon:
        return node
    changed = uow.cordons.cordon_node(node.id, wanted)
    _audit(uow, by, "node", str(node.id), wanted, {"name": node.name, "cluster": cluster})
    uow.wake_pool(node.pool)
    return changed or node


def _write_device(uow: UnitOfWork, device: DeviceFact, wanted: Cordon | None, by: By) -> None:
    uow.cordons.cordon_device(device.id, wanted)
    recount(uow, device.cluster, device.node)
    names = {"name": device.device_key, "node": device.node_name, "cluster": device.cluster_name}
    _audit(uow, by, "device", str(device.id), wanted, names)
    uow.wake_pool(device.pool)


def _cordon(uow: UnitOfWork, wish: Wish | None, by: By, stands: Cordon | None) -> Cordon | None:
    """What shall stand. Said again without an end, it is the same whoever says it; with one, its end is new."""
    if wish is None:
        return None
    if stands is not None and wish.seconds is None and (stands.reason, stands.until) == (wish.reason, None):
        return stands
    until = None if wish.seconds is None else uow.now + timedelta(seconds=wish.seconds)
    return Cordon(wish.reason, until, by.actor)


def _is_over(cordon: Cordon | None, now: datetime) -> bool:
    return cordon is not None and cordon.until is not None and cordon.until <= now


def _audit(uow: UnitOfWork, by: By, kind: str, name: str, cordon: Cordon | None, facts: Mapping[str, object]) -> None:
    told = {} if cordon is None else {"why": cordon.reason, "until": cordon.until and cordon.until.isoformat()}
    uow.audit.record(
        actor=by.actor,
        action=f"{kind}.uncordon" if cordon is None else f"{kind}.cordon",
        object_kind=kind,
        object_id=name,
        facts={**facts, **told},
        request_id=by.request_id,
    )
