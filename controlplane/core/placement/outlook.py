"""What a cycle settles once, before it places anything: the strategy of each Flavor, and what places cost.

Settled at its start and not with each placement, so that no decision depends on which others came before it.
"""

from controlplane.core.demand import StrategyName
from controlplane.core.ids import FlavorName
from controlplane.core.index import PodSize
from controlplane.core.lifecycle import ClusterState
from controlplane.core.placement.strategies.dynamic import pick
from controlplane.core.policy import Policy
from controlplane.core.scenario import Scenario


def settle(scenario: Scenario, policy: Policy) -> None:
    """Fill in `picks` and `preference` of a Scenario that nothing was placed in yet."""
    clusters = scenario.snapshot.clusters.values()
    if policy.cluster_preference:
        scenario.preference = {each.id: policy.cluster_preference.get(each.name, 0) for each in clusters}
    waiting = scenario.snapshot.waiting.values()
    if any(each.strategy is StrategyName.DYNAMIC for each in waiting):
        limits = policy.dynamic_spread_below_permille, policy.dynamic_pack_from_permille, policy.dynamic_large_permille
        large = _large_permille(scenario, policy)
        scenario.picks = {flavor: pick(_used_permille(scenario, flavor), large[flavor], limits) for flavor in large}


def _used_permille(scenario: Scenario, flavor: FlavorName) -> int:
    """Of what the clusters own that take work: how much is not free."""
    index, owned, free = scenario.index, 0, 0
    single = index.size_class(PodSize(flavor, 1))
    for cluster in scenario.snapshot.clusters.values():
        if cluster.state is ClusterState.READY:
            owned += index.owned[cluster.id].get(flavor, 0)
            free += single.count[index.tree.root[cluster.id]]
    return 1000 * max(0, owned - free) // owned if owned else 1000


def _large_permille(scenario: Scenario, policy: Policy) -> dict[FlavorName, int]:
    """Of the units that wait for each Flavor as their first choice: how much large gangs ask for."""
    units: dict[FlavorName, int] = {}
    large: dict[FlavorName, int] = {}
    for workload in scenario.snapshot.waiting.values():
        for pod_set in workload.pod_sets:
            wanted = pod_set.devices * pod_set.replicas
            for flavor in pod_set.flavors[:1]:
                units[flavor] = units.get(flavor, 0) + wanted
                if wanted >= policy.dynamic_large_devices:
                    large[flavor] = large.get(flavor, 0) + wanted
            for flavor in pod_set.flavors[1:]:
                units.setdefault(flavor, 0)
    return {flavor: 1000 * large.get(flavor, 0) // amount if amount else 0 for flavor, amount in units.items()}
