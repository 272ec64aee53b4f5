"""Figures of the core alone, without a database: D, one large gang; I, a cycle over very many Queues; J, fair shares.

The fleet is that of figure A (98,304 GPUs in 12 clusters, 8 to a node), three quarters held in a bimodal way by a fixed
seed: most nodes are full, most of the others free. Index and quota tree are warm, as a planner's are.
"""

import gc
import random
import statistics
import time
from datetime import UTC, datetime, timedelta

from controlplane.core.capacity import Cluster, Node
from controlplane.core.cycle import plan_cycle
from controlplane.core.demand import NodeShare, PodSet, RunningAttempt, TopologyMode, Workload
from controlplane.core.facts.planning import Change, Table
from controlplane.core.ids import AttemptNumber, ClusterId, NodeId, PoolId, QueueId, WorkloadId
from controlplane.core.lifecycle import AttemptState, ClusterState
from controlplane.core.plan import Admit, Plan
from controlplane.core.policy import Policy
from controlplane.core.records import World
from controlplane.core.tenancy import Queue, Quota
from tests.bench.figures import Result, at_least, at_most
from tests.bench.fleets import DEVICES, GANGS, NODES_PER_CLUSTER, RACK, SPINE
from tests.builders.core import H100
from tests.support.fair_shares import RandomTree

CLUSTERS = 12
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SEED = 7
FULL_PERCENT, FREE_OF_THE_REST_PERCENT = 72, 67
LARGE = 1_024 // DEVICES  # pods of the large gang
PLACED = 100
WIDTHS = (40, 50, 50)  # children of the root, of each of those, of each of those: 100,000 leaves in 4 levels
PENDING = 1_000
CYCLES = 5
TREES = 1_000


def large_gang_placed() -> list[Result]:
    """D: one gang of 1,024 GPUs, preferring one rack, placed and taken back again a hundred times."""
    world = _fleet([Queue(QueueId(1), "org", None, 1, (Quota(H100, None),))], [QueueId(1)])
    shape = PodSet("main", LARGE, DEVICES, (H100,), topology_mode=TopologyMode.PREFERRED, topology_level="rack")
    seconds, cpu = list[float](), 0.0
    for number in range(PLACED + 1):
        if number == 1:  # the first one counts the size classes
            cpu = -time.process_time()
        world.apply([_waits(f"large-{number}", QueueId(1), shape)])
        took, plan = _cycle(world)
        assert [type(each) for each in plan.decisions] == [Admit], plan.reasons
        seconds.append(took)
        world.apply([Change(Table.WAITING, f"large-{number}", None)])
    cpu += time.process_time()
    value = statistics.median(seconds[1:])
    parameters = {
        "gpus": _gpus(), "gang": LARGE * DEVICES, "runs": PLACED, "worst_ms": _ms(max(seconds[1:])),
        "cpu_ms": _ms(cpu / PLACED), "seed": SEED,
    }  # fmt: skip
    return [Result("D", _ms(value), "ms", at_most(10), parameters)]


def cycle_over_many_queues() -> list[Result]:
    """I: a warm cycle, from the changes read to the Plan, with 100,000 leaf Queues and 1,000 pending gangs."""
    queues = _tree()
    leaves = [queue.id for queue in queues[-WIDTHS[0] * WIDTHS[1] * WIDTHS[2] :]]
    chance = random.Random(SEED)
    world = _fleet(queues, chance.sample(leaves, 5_000))
    _cycle(world)
    rounds = []
    for number in range(CYCLES):
        gangs = chance.choices(GANGS, [share for _, _, share in GANGS], k=PENDING)
        changes = [
            _waits(f"{number}-{at}", queue, PodSet("main", pods, devices, (H100,)))
            for at, (queue, (pods, devices, _)) in enumerate(zip(chance.sample(leaves, PENDING), gangs, strict=True))
        ]
        gc.collect()
        started, cpu = time.perf_counter(), time.process_time()
        world.apply(changes)
        took, plan = _cycle(world)
        rounds.append((time.perf_counter() - started, time.process_time() - cpu, took, len(plan.decisions)))
        world.apply(Change(Table.WAITING, change.key, None) for change in changes)
    value, cpu, planning, admitted = (statistics.median(column) for column in zip(*rounds, strict=True))
    parameters = {
        "gpus": _gpus(), "queues": len(queues), "leaves": len(leaves), "levels": len(WIDTHS) + 1, "pending": PENDING,
        "admitted": admitted, "cycles": CYCLES, "planning_ms": _ms(planning), "cpu_ms": _ms(cpu),
        "seed": SEED,
    }  # fmt: skip
    return [Result("I", _ms(value), "ms", at_most(300), parameters)]


def shares_of_random_trees() -> list[Result]:
    """J: of 1,000 random trees, on how many every Queue's fair share is exactly the oracle's."""
    trees = [RandomTree(seed, H100) for seed in range(TREES)]
    exact = sum(tree.shares() == tree.expected() for tree in trees)
    parameters = {"trees": TREES, "queues": sum(len(tree.queues) for tree in trees)}
    return [Result("J", exact, "exact trees", at_least(TREES), parameters)]


def _cycle(world: World) -> tuple[float, Plan]:
    """One warm cycle; the seconds are those of freezing, following and planning together."""
    started = time.perf_counter()
    snapshot = world.freeze()
    index = world.warm_index(snapshot)
    plan = plan_cycle(snapshot, Policy(), NOW, index, world.warm_tree(snapshot, index))
    return time.perf_counter() - started, plan


def _tree() -> list[Queue]:
    """Parents first, the leaves last; every leaf owns one GPU, everything may be lent."""
    queues = [Queue(QueueId(1), "org", None, 1, (Quota(H100, None),))]
    above = queues
    for level, width in enumerate(WIDTHS):
        nominal = 1 if level == len(WIDTHS) - 1 else 0
        above = [
            Queue(QueueId(0), f"{parent.path}/{number}", parent.id, 1 + number % 3, (Quota(H100, nominal),))
            for parent in above
            for number in range(width)
        ]
        above = [
            Queue(QueueId(len(queues) + at), each.path, each.parent, each.weight, each.quotas)
            for at, each in enumerate(above, start=1)
        ]
        queues.extend(above)
    return queues


def _fleet(queues: list[Queue], users: list[QueueId]) -> World:
    """The fleet with these Queues; whole nodes are held by one attempt each, of one of `users` after the other."""
    chance = random.Random(SEED)
    world = World(PoolId(1))
    changes = [Change(Table.QUEUES, queue.id, queue) for queue in queues]
    for number in range(CLUSTERS):
        cluster = ClusterId(number + 1)
        levels = ("spine", "rack", "host")
        value = Cluster(cluster, f"c{number}", ClusterState.READY, levels, (), frozenset({"team"}), NOW)
        changes.append(Change(Table.CLUSTERS, cluster, value))
        for at in range(NODES_PER_CLUSTER):
            name, node = f"c{number}-n{at}", NodeId(number * NODES_PER_CLUSTER + at + 1)
            held = DEVICES if chance.randrange(100) < FULL_PERCENT else 0
            if not held and chance.randrange(100) >= FREE_OF_THE_REST_PERCENT:
                held = chance.randrange(1, 5)
            changes.append(Change(Table.NODES, node, _node(node, cluster, name, at, held)))
            if held:
                changes.append(_runs(f"run-{node}", users[node % len(users)], cluster, NodeShare(node, H100, held)))
    world.apply(changes)
    return world


def _node(node: NodeId, cluster: ClusterId, name: str, at: int, held: int) -> Node:
    owned = {H100: DEVICES}
    domains = (f"s{at // SPINE}", f"r{at // RACK}", name)
    return Node(node, cluster, name, domains, True, owned, owned, {H100: held}, 192_000, 2**41, 0, 0)


def _runs(name: str, queue: QueueId, cluster: ClusterId, share: NodeShare) -> Change:
    attempt = RunningAttempt(
        WorkloadId(name), name, AttemptNumber(1), queue, 0, AttemptState.RUNNING, NOW - timedelta(hours=3), (cluster,),
        ((share.flavor, share.amount),), (share,),
    )  # fmt: skip
    return Change(Table.RUNNING, name, attempt)


def _waits(name: str, queue: QueueId, pod_set: PodSet) -> Change:
    workload = Workload(WorkloadId(name), name, queue, "ann", 0, NOW, AttemptNumber(1), (pod_set,), namespace="team")
    return Change(Table.WAITING, name, workload)


def _gpus() -> int:
    return CLUSTERS * NODES_PER_CLUSTER * DEVICES


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
