"""What PodSets in slices, and those that sit with others, lack in a cluster, in numbers that are true."""

from collections.abc import Sequence

from controlplane.core.demand import PodSet, StrategyName
from controlplane.core.ids import ClusterId
from controlplane.core.index import PodSize
from controlplane.core.placement.counters import counters_of
from controlplane.core.placement.groups import Group, sets_of, units_of
from controlplane.core.placement.registry import STRATEGIES
from controlplane.core.placement.search import roomiest
from controlplane.core.reasons import Reason, ReasonCode, reason
from controlplane.core.scenario import Scenario


def lacks_slices(
    scenario: Scenario, pod_set: PodSet, cluster: ClusterId, tried: Sequence[PodSize]
) -> tuple[int, Reason]:
    """(missing pods, the Reason) for the size of which most slices fit into the best domain it may use."""
    index, found = scenario.index, []
    for size in tried:
        domain, fits = _best(scenario, pod_set, cluster, size)
        found.append((fits, domain, size))
    fits, domain, size = max(found, key=lambda each: each[0])
    slices = pod_set.least // pod_set.slice_size
    why = reason(
        ReasonCode.SLICES_TOO_FRAGMENTED,
        cluster=scenario.snapshot.clusters[cluster].name,
        fits=fits // pod_set.slice_size,
        slices=slices,
        size=pod_set.slice_size,
        devices=size.devices,
        flavor=size.flavor or "flavor",
        level=pod_set.slice_level,
        domain=index.tree.label[domain],
        free=index.free_units(domain, size.flavor),
    )
    return pod_set.least - fits, why


def _best(scenario: Scenario, pod_set: PodSet, cluster: ClusterId, size: PodSize) -> tuple[int, int]:
    """(domain, pods) where most slices fit; exact counters are made only where devices alone do not say no already."""
    index = scenario.index
    found = index.tree.root[cluster], 0
    for counted in dict.fromkeys((size.devices_only, size)) if size.devices else (size,):
        strategy = STRATEGIES[StrategyName.SPREAD]
        counters = counters_of(index, strategy, pod_set, index.size_class(counted), cluster)
        if counters is None:
            break
        domain = roomiest(counters, pod_set, cluster)
        found = (found[0], 0) if domain is None else (domain, counters.room(domain))
        if found[1] < pod_set.least:
            break
    return found


def lacks_company(scenario: Scenario, order: Sequence[PodSet], pod_set: PodSet, cluster: ClusterId) -> Reason | None:
    """The Reason where a PodSet has room, and only no box for all that sit with it; None if nothing must."""
    for unit in units_of(order):
        if isinstance(unit, Group) and pod_set in (sets := sets_of(unit)):
            return reason(
                ReasonCode.TOGETHER_TOO_FRAGMENTED,
                cluster=scenario.snapshot.clusters[cluster].name,
                level=unit.level or "domain",
                pods=sum(each.least for each in sets),
                pod_sets=", ".join(each.name for each in sets),
            )
    return None
