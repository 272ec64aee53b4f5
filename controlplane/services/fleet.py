"""Clusters and their machines: what inventories say, who fell silent, which nodes are lost or taken out.

Silence changes a Cluster's state and nothing else: under `hold` its pods run on and stay charged. It counts only
while agents could reach us, so an outage of the plane starts every clock again.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from controlplane.contract.agent.inventory import InventoryDelta, NodeReport, inventory_digest
from controlplane.core.catalog import flavor_of
from controlplane.core.facts.fleet import (
    LISTENING_GAP_SECONDS,
    ClusterChange,
    ClusterFact,
    Document,
    NodeFact,
    NodeWrite,
)
from controlplane.core.ids import ClusterId, FlavorName, NodeId
from controlplane.core.lifecycle import ClusterEvent, ClusterState, advance_cluster
from controlplane.core.policy import Policy
from controlplane.services import accounting, attempt_batch, attempts, wire
from controlplane.services.errors import Conflict
from controlplane.services.ports.unit_of_work import UnitOfWork

PLANE = "plane"
SUSPECT_SECONDS, UNREACHABLE_SECONDS = 30, 300  # where the Cluster's document names none
_SPOT_LABELS = (
    ("karpenter.sh/capacity-type", "spot"),
    ("cloud.google.com/gke-spot", "true"),
    ("eks.amazonaws.com/capacitytype", "spot"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)
_HEARS = frozenset({ClusterState.ACCEPTED, ClusterState.SUSPECT, ClusterState.UNREACHABLE})


@dataclass(frozen=True, slots=True)
class Applied:
    """What an inventory led to: whether the plane's picture differs from the agent's, and who has new directives."""

    differs: bool = False
    clusters: set[ClusterId] = field(default_factory=set)


def create_cluster(uow: UnitOfWork, name: str, pool: str, labels: Document, spec: Document, actor: str) -> ClusterId:
    """Make a Cluster that an agent can enrol for; raises Conflict where one has its name."""
    made = uow.fleet.add_cluster(name, uow.fleet.ensure_pool(pool), labels, spec)
    if made is None:
        raise Conflict(f"there is a cluster {name} already", slug="name-conflict")
    uow.audit.record(
        actor=actor,
        action="cluster.create",
        object_kind="cluster",
        object_id=str(made),
        state_to=ClusterState.CREATED,
        facts={"name": name, "pool": pool},
    )
    return made


def apply_inventory(uow: UnitOfWork, cluster: ClusterFact, delta: InventoryDelta) -> Applied:
    """Store what changed of a cluster's nodes, and draw what follows for accounts, planners and Attempts.

    An unready node's gangs are judged now; lost it is called only by `check_nodes`.
    """
    reports = list({report.uid: report for report in delta.nodes}.values())
    cordoned = uow.cordons.cordoned_devices(cluster.id)
    writes = _unique_devices([wire.node_write(report, flavors_of(report), uow.now, cordoned) for report in reports])
    changes_owned = delta.whole or bool(delta.removed) or _owns_otherwise(uow, cluster.id, writes)
    if changes_owned:
        uow.ledger.lock_all_accounts()  # before the nodes' counters, as everywhere
    signals = uow.fleet.write_nodes(cluster.id, writes)
    there = set(delta.uids) | {report.uid for report in reports}
    gone = uow.fleet.remove_nodes(cluster.id, there if delta.whole else delta.removed, keep=delta.whole)
    uow.fleet.set_inventory(cluster.id, delta.revision, delta.digest, delta.levels)
    if changes_owned:
        accounting.sync_accounts(uow)
    if signals.capacity_changed or signals.rose or gone.removed:
        uow.wake_pool(cluster.pool)
    removed = (*signals.removed, *gone.removed)
    clusters = attempts.lose_nodes(uow, (), removed) if removed else set()
    news = (*signals.fell, *signals.unhealthy)
    if news:
        clusters |= attempts.rejudge(uow, news)
    differs = delta.digest != "" and delta.digest != inventory_digest(uow.fleet.digests(cluster.id))
    return Applied(differs, clusters)


def flavors_of(report: NodeReport) -> dict[str, FlavorName]:
    """Each device's Flavor. A partition's memory is its own, so its card's says which model it is cut from."""
    memory = {device.device_key: device.memory_mib for device in report.devices}
    is_spot = any(report.labels.get(label, "").lower() == value for label, value in _SPOT_LABELS)
    return {
        device.device_key: flavor_of(
            device.vendor,
            device.model_raw,
            memory.get(device.parent_key) if device.parent_key is not None else device.memory_mib,
            device.profile,
            "spot" if is_spot else None,
        )
        for device in report.devices
    }


def hear(uow: UnitOfWork, cluster: ClusterFact) -> ClusterFact:
    """A locked Cluster's agent spoke of what it sees: both are there, and the clock of silence starts again."""
    heard = cluster
    if cluster.state in _HEARS:
        heard = move(uow, replace(cluster, lost_at=None), ClusterEvent.HEARD, f"agent:{cluster.name}")
        uow.wake_pool(cluster.pool)
    uow.fleet.heard(cluster.id, uow.now + timedelta(seconds=seconds_of(cluster, "suspectSeconds", SUSPECT_SECONDS)))
    return heard


def check_clusters(uow: UnitOfWork, limit: int) -> int:
    """Look at Clusters whose time has come: ready → suspect → unreachable by silence alone."""
    since = uow.agents.plane().clocks_from(uow.now)
    due = uow.fleet.due_clusters(limit)
    for cluster in due:
        if since is None or since == uow.now:
            _look_again(uow, cluster, uow.now + timedelta(seconds=1))
        else:
            _judge_silence(uow, cluster, since)
    return len(due)


def check_nodes(uow: UnitOfWork, limit: int) -> int:
    """Look at nodes that are not ready: after the Policy's time they are lost, and the gangs on them end whole.

    A node of a Cluster that is silent, or that we cannot hear, is not judged: its status is old, not bad.
    """
    due = uow.fleet.due_nodes(limit)
    since = uow.agents.plane().clocks_from(uow.now)
    policies = uow.attempts.policies({node.pool for node in due})
    later: dict[NodeId, datetime] = {}
    lost: list[NodeId] = []
    for node in due:
        seconds = timedelta(seconds=policies.get(node.pool, Policy()).node_lost_seconds)
        at = _unready_since(node, since, uow.now) + seconds
        if node.cluster_state is not ClusterState.READY:
            later[node.id] = uow.now + seconds
        elif at > uow.now:
            later[node.id] = at
        else:
            lost.append(node.id)
    clusters = attempts.lose_nodes(uow, lost, ()) if lost else set()
    uow.fleet.mark_lost(lost)
    uow.fleet.check_nodes_at(later)
    for pool in {node.pool for node in due if node.id in lost}:
        uow.wake_pool(pool)
    attempt_batch.number(uow, clusters)
    return len(due)


def note_listening(uow: UnitOfWork) -> None:
    """Agents can reach us now; whoever serves them says so every few seconds."""
    uow.agents.note_listening(LISTENING_GAP_SECONDS)


def move(
    uow: UnitOfWork,
    cluster: ClusterFact,
    event: ClusterEvent,
    actor: str,
    request_id: str = "",
    facts: Document | None = None,
) -> ClusterFact:
    """Advance a locked Cluster, with its audit row; `lost_at` is written as given. Raises ImpossibleTransition."""
    state = advance_cluster(cluster.state, event)
    seconds = seconds_of(cluster, "suspectSeconds", SUSPECT_SECONDS)
    check = uow.now + timedelta(seconds=seconds) if state is ClusterState.READY else None
    if state is ClusterState.SUSPECT:
        check = uow.now + timedelta(seconds=1)
    written = uow.fleet.write_clusters([ClusterChange(cluster.id, cluster.version, state, cluster.lost_at, check)])
    assert written == 1, "a cluster is moved under its lock"
    uow.audit.record(
        actor=actor,
        action=f"cluster.{event}",
        object_kind="cluster",
        object_id=str(cluster.id),
        state_from=cluster.state,
        state_to=state,
        facts={"name": cluster.name, **(facts or {})},
        request_id=request_id,
    )
    return replace(cluster, state=state, version=cluster.version + 1)


def seconds_of(cluster: ClusterFact, name: str, default: int) -> int:
    """A time-out of the Cluster's own document, at least 1 s."""
    value = cluster.spec.get(name)
    return max(1, value) if isinstance(value, int) else default


def _owns_otherwise(uow: UnitOfWork, cluster: ClusterId, writes: Sequence[NodeWrite]) -> bool:
    """Whether these nodes own other units than is stored of them."""
    told: Counter[FlavorName] = Counter()
    for write in writes:
        for count in write.flavors:
            told[count.flavor] += count.owned
    stored = uow.fleet.owned_by(cluster, [write.uid for write in writes])
    return {flavor: units for flavor, units in told.items() if units} != stored


def _judge_silence(uow: UnitOfWork, cluster: ClusterFact, listening_since: datetime) -> None:
    heard = max(cluster.last_heard_at or listening_since, listening_since)
    suspect_at = heard + timedelta(seconds=seconds_of(cluster, "suspectSeconds", SUSPECT_SECONDS))
    if cluster.state is ClusterState.READY and uow.now >= suspect_at:
        cluster = move(uow, replace(cluster, lost_at=heard), ClusterEvent.SILENT, PLANE)
        uow.wake_pool(cluster.pool)
    if cluster.state is ClusterState.READY:
        _look_again(uow, cluster, suspect_at)
    elif cluster.state is ClusterState.SUSPECT:
        lost = max(cluster.lost_at or heard, listening_since)
        lapse_at = lost + timedelta(seconds=seconds_of(cluster, "unreachableSeconds", UNREACHABLE_SECONDS))
        if uow.now >= lapse_at:
            move(uow, cluster, ClusterEvent.LAPSED, PLANE)
        else:
            _look_again(uow, cluster, lapse_at)
    else:
        _look_again(uow, cluster, None)


def _look_again(uow: UnitOfWork, cluster: ClusterFact, at: datetime | None) -> None:
    uow.fleet.write_clusters([ClusterChange(cluster.id, cluster.version, cluster.state, cluster.lost_at, at)])


def _unready_since(node: NodeFact, listening_since: datetime | None, now: datetime) -> datetime:
    told = node.ready_changed_at or now
    return told if listening_since is None else max(told, listening_since)


def _unique_devices(writes: Sequence[NodeWrite]) -> list[NodeWrite]:
    """A device stands on one node; of two that claim it, the later report has it."""
    homes = {str(device["device_key"]): write.uid for write in writes for device in write.devices}
    return [
        replace(
            write, devices=tuple(device for device in write.devices if homes[str(device["device_key"])] == write.uid)
        )
        for write in writes
    ]
