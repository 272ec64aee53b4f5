"""One cycle of every Pool of a world, told in people's words. The same files give the same bytes."""

from controlplane.contract.rest.planning import PoolPlan, WorldPlan
from controlplane.core.cycle import explain_all, plan_cycle
from controlplane.core.index import FleetIndex
from controlplane.services.plan_told import told
from controlplane.worlds.building import PoolWorld, World


def plan(world: World) -> WorldPlan:
    """What planners would decide at the world's moment, and every Reason of those that would wait."""
    return WorldPlan(now=world.now, pools=[_planned(each, world) for each in world.pools])


def _planned(pool: PoolWorld, world: World) -> PoolPlan:
    snapshot, policy = pool.snapshot, pool.policy
    index = FleetIndex(snapshot.clusters, snapshot.nodes)
    made = plan_cycle(snapshot, policy, world.now, index)
    # Asked apart: a planner looks for no more Reasons than it stores, and looking is work that it counts.
    reasons = explain_all(snapshot, policy, world.now, index) if made.reasons else {}
    return told(snapshot, policy, made, reasons)
