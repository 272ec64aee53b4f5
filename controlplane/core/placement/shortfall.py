"""Why a cluster that passed every filter has no room now, in numbers that are true.

Counting free units walks a cluster's nodes, so it is done for the Workloads that a Plan speaks of and
when somebody asks, not in the search for a place.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.core.demand import Earmark, Exclusion, PodSet, TopologyMode, Workload
from controlplane.core.entitlement import quota_reason
from controlplane.core.ids import ClusterId, QueueId
from controlplane.core.index import FleetIndex, PodSize
from controlplane.core.placement.asking import Room, asked_level, hardest_first, sizes
from controlplane.core.placement.clusters import Ranked
from controlplane.core.placement.lacking import lacks_company, lacks_slices
from controlplane.core.placement.pieces import joined, place_divided
from controlplane.core.placement.workload import place_in_cluster, place_in_order
from controlplane.core.policy import Policy
from controlplane.core.reasons import Fact, Reason, ReasonCode, reason
from controlplane.core.scenario import Scenario
from controlplane.core.topology import WHOLE_CLUSTER


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why one cluster has no room; `missing` pods order the nearest cluster first."""

    missing: int
    reason: Reason


def why_nowhere(
    scenario: Scenario,
    workload: Workload,
    ranked: Ranked,
    room: Room,
    excluded: tuple[Exclusion, ...],
    policy: Policy,
    *,
    most: int | None,
) -> tuple[Reason, ...]:
    """The Reason of each cluster, the nearest first; none if it would fit somewhere.

    With `most`, only the nearest cluster by its counters is looked into, and no more Reasons are given.
    """
    tried = ranked.open
    if most is not None and tried:
        tried = (max(tried, key=lambda cluster: (_nearness(scenario, workload, cluster, room), -cluster)),)
    found = [(shortfall(scenario, workload, cluster, room, excluded, policy), cluster) for cluster in tried]
    if any(each is None for each, _ in found):
        return ()
    fitting = [(each.missing, cluster, each.reason) for each, cluster in found if each is not None]
    reasons = [why for _, _, why in sorted(fitting, key=lambda each: each[:2])]
    if workload.clusters_max > 1 and _fits_divided(scenario, workload, ranked, room, excluded):
        return ()
    if workload.clusters_max > 1:
        together = joined(scenario, ranked.partly)
        facts = {"most": workload.clusters_max, "clusters": len(ranked.partly), "joined": len(together)}
        reasons.insert(0, reason(ReasonCode.CLUSTERS_NOT_TOGETHER, **facts))
    return tuple([*reasons, *ranked.refused.values()][:most])


def _fits_divided(
    scenario: Scenario, workload: Workload, ranked: Ranked, room: Room, excluded: tuple[Exclusion, ...]
) -> bool:
    mark, position = scenario.checkpoint(), scenario.index.tree.position
    scenario.close_nodes(position[at.node] for at in excluded if at.node in position)
    fits = place_divided(scenario, workload, ranked.partly, room) is not None
    scenario.rollback(mark)
    return fits


def _nearness(scenario: Scenario, workload: Workload, cluster: ClusterId, room: Room) -> int:
    root = scenario.index.tree.root[cluster]
    tried = sizes(hardest_first(workload.pod_sets)[0], room) if workload.pod_sets else []
    counted = [size.devices_only if size.devices else size for _, size in tried]
    return max((scenario.index.size_class(size).count[root] for size in counted), default=0)


def shortfall(
    scenario: Scenario,
    workload: Workload,
    cluster: ClusterId,
    room: Room,
    excluded: tuple[Exclusion, ...],
    policy: Policy,
) -> Shortfall | None:
    """Asked with the excluded nodes open. What would fit but for them, or but for Earmarks, is said to be so."""
    index = scenario.index
    mark = scenario.checkpoint()
    here = [at for at in excluded if at.node in index.tree.position and _cluster_of(scenario, at) == cluster]
    scenario.close_nodes(index.tree.position[at.node] for at in here)
    if place_in_cluster(scenario, workload, cluster, room) is not None:
        scenario.rollback(mark)
        return None
    kept = _earmarked(scenario, workload, cluster, room)
    found = Shortfall(0, kept) if kept is not None else _first_that_does_not_fit(scenario, workload, cluster, room)
    scenario.rollback(mark)
    if here and place_in_cluster(scenario, workload, cluster, room) is not None:
        scenario.rollback(mark)
        return Shortfall(0, _excluded(scenario, cluster, here, policy))
    return found


def _cluster_of(scenario: Scenario, exclusion: Exclusion) -> ClusterId:
    return scenario.snapshot.nodes[exclusion.node].cluster


def _excluded(scenario: Scenario, cluster: ClusterId, here: list[Exclusion], policy: Policy) -> Reason:
    name = scenario.snapshot.clusters[cluster].name
    last = max(here, key=lambda at: (at.until, at.node))
    if len(here) >= policy.exclusions_before_reason:
        node = scenario.snapshot.nodes[last.node].name
        return reason(ReasonCode.UNMODELLED_CONSTRAINT, cluster=name, node=node, words=last.words)
    until = last.until.isoformat(timespec="seconds")
    return reason(ReasonCode.NODES_EXCLUDED, cluster=name, count=len(here), until=until)


def _earmarked(scenario: Scenario, workload: Workload, cluster: ClusterId, room: Room) -> Reason | None:
    """The Reason if it would fit were the Earmarks of others in this cluster not there."""
    others = [
        earmark
        for earmark in scenario.earmarks.values()
        if earmark.cluster == cluster and earmark.workload != workload.id
    ]
    if not others:
        return None
    mark = scenario.checkpoint()
    for earmark in others:
        scenario.open_earmark(earmark.workload)
    fits = place_in_cluster(scenario, workload, cluster, room) is not None
    scenario.rollback(mark)
    return _kept_for(scenario, cluster, workload, others) if fits else None


def _kept_for(scenario: Scenario, cluster: ClusterId, workload: Workload, others: list[Earmark]) -> Reason | None:
    wanted = [flavor for pod_set in workload.pod_sets for flavor in pod_set.flavors]
    for flavor in wanted:
        for earmark in sorted(others, key=lambda at: at.workload):
            amount = sum(share.amount for share in earmark.shares if share.flavor == flavor)
            if amount:
                waiting = scenario.snapshot.waiting.get(earmark.workload)
                return reason(
                    ReasonCode.EARMARKED_FOR_ANOTHER,
                    amount=amount,
                    flavor=flavor,
                    cluster=scenario.snapshot.clusters[cluster].name,
                    workload=waiting.name if waiting is not None else earmark.workload,
                )
    return None


def _first_that_does_not_fit(scenario: Scenario, workload: Workload, cluster: ClusterId, room: Room) -> Shortfall:
    """Place PodSet after PodSet, as the search first did, and say what the first one lacks that has no place."""
    order = hardest_first(workload.pod_sets)
    for upto in range(1, len(order) + 1):
        mark = scenario.checkpoint()
        if place_in_order(scenario, workload, order[:upto], cluster, room) is not None:
            scenario.rollback(mark)
            continue
        before = place_in_order(scenario, workload, order[: upto - 1], cluster, room)
        left = dict(room)
        for flavor, amount in before.charges() if before is not None else ():
            left[flavor] -= amount
        pod_set = order[upto - 1]
        if not sizes(pod_set, left):
            return _lacks_quota(scenario, workload.queue, pod_set, room, left)
        return _lacks(scenario, order[:upto], cluster, left)
    raise AssertionError("a Workload that fits has no shortfall")


def _lacks_quota(scenario: Scenario, queue: QueueId, pod_set: PodSet, room: Room, left: Room) -> Shortfall:
    """Several PodSets share one Flavor, each alone within quota: all that they ask for is told."""
    flavor = max(pod_set.flavors, key=lambda name: (left.get(name, 0), name))
    available = room.get(flavor, 0)
    wanted = available - left.get(flavor, 0) + pod_set.devices * pod_set.least
    return Shortfall(pod_set.least, quota_reason(scenario.tree, queue, flavor, (available, wanted)))


def _lacks(scenario: Scenario, order: Sequence[PodSet], cluster: ClusterId, room: Room) -> Shortfall:
    """What the last of these PodSets lacks once the others are placed, in numbers for the Flavor that comes nearest."""
    index, name, pod_set = scenario.index, scenario.snapshot.clusters[cluster].name, order[-1]
    tried = sizes(pod_set, room)
    if pod_set.slice_size:
        missing, why = lacks_slices(scenario, pod_set, cluster, [size for _, size in tried])
        if missing > 0:
            return Shortfall(missing, why)
    is_required = pod_set.topology_mode is TopologyMode.REQUIRED
    level = asked_level(index, pod_set, cluster) if is_required else WHOLE_CLUSTER
    assert level is not None, "a cluster without the required level was refused before"
    rooms = [(*_best_domain(index, size, cluster, level, pod_set.least), size) for _, size in tried]
    fits, domain, size = max(rooms, key=lambda room: room[0])
    if fits >= pod_set.least and (alone := lacks_company(scenario, order, pod_set, cluster)) is not None:
        return Shortfall(0, alone)
    facts: dict[str, Fact] = {
        "cluster": name,
        "fits": fits,
        "pods": pod_set.least,
        "devices": size.devices,
        "flavor": size.flavor or "flavor",
    }
    missing = pod_set.least - fits
    if size.devices and (cordoned := _cordoned(scenario, cluster, size, missing)) is not None:
        free = index.free_units(index.tree.root[cluster], size.flavor)
        why = reason(ReasonCode.CAPACITY_CORDONED, free=free, cordoned=cordoned[0], words=cordoned[1], **facts)
        return Shortfall(missing, why)
    if is_required:
        why = reason(ReasonCode.TOPOLOGY_TOO_FRAGMENTED, level=pod_set.topology_level, domain=domain, **facts)
        return Shortfall(missing, why)
    root = index.tree.root[cluster]
    if index.ruled_out(size, root) >= missing > 0:
        return Shortfall(missing, reason(ReasonCode.ELIGIBLE_NODES_FULL, count=index.eligible(size, root), **facts))
    free = index.free_units(root, size.flavor)
    return Shortfall(missing, reason(ReasonCode.NOT_ENOUGH_FREE, free=free, **facts))


def _cordoned(scenario: Scenario, cluster: ClusterId, size: PodSize, missing: int) -> tuple[int, str] | None:
    """Units that cordons by hand keep from use in a cluster, and why most of them on one node do.

    Only where the `missing` pods would fit, by their devices, were nothing cordoned; levels are not looked at.
    """
    index, more = scenario.index, 0
    found: list[tuple[int, int, str]] = []
    for node in scenario.snapshot.nodes.values():
        if node.cluster != cluster or not node.cordon or not (units := node.cordoned(size.flavor)):
            continue
        free = index.free_on(index.tree.position[node.id], size.flavor)
        more += (free + units) // size.devices - free // size.devices
        found.append((units, -node.id, node.cordon))
    return (sum(units for units, _, _ in found), max(found)[2]) if found and more >= missing else None


def _best_domain(index: FleetIndex, size: PodSize, cluster: ClusterId, level: int, pods: int) -> tuple[int, str]:
    """(pods, name) of a level's roomiest domain.

    Exact counters are made only where devices alone would do, for then it was looked for with them; where they would
    not, it is walked: what is told must be true of all that a pod needs.
    """
    found = _roomiest(index, size.devices_only if size.devices else size, cluster, level)
    if not size.devices or size == size.devices_only:
        return found
    return _roomiest(index, size, cluster, level) if found[0] >= pods else _walked(index, size, cluster, level)


def _roomiest(index: FleetIndex, size: PodSize, cluster: ClusterId, level: int) -> tuple[int, str]:
    size_class = index.size_class(size)
    group = index.tree.group_of_level.get((cluster, level))
    domain = None if group is None else size_class.emptiest(group)
    if level == WHOLE_CLUSTER:
        domain = index.tree.root[cluster]
    return (0, "none") if domain is None else (size_class.count[domain], index.tree.label[domain])


def _walked(index: FleetIndex, size: PodSize, cluster: ClusterId, level: int) -> tuple[int, str]:
    tree = index.tree
    group = tree.group_of_level.get((cluster, level))
    domains = [tree.root[cluster]] if level == WHOLE_CLUSTER else [] if group is None else tree.members[group]
    rooms = ((sum(index.fits(size, node) for node in index.nodes_of(at)), -at) for at in domains)
    fits, domain = max(rooms, default=(0, 0))
    return (fits, tree.label[-domain]) if fits else (0, "none")
