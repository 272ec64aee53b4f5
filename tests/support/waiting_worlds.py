"""Worlds by a seed in which somebody waits for every reason there is: full racks, limits, order, budgets, levels.

Larger and more alike to real ones than what hypothesis draws, and the same each time.
"""

import random
from dataclasses import replace

from controlplane.core.demand import PodSet, TopologyMode
from controlplane.core.ids import FlavorName
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Budget, Period, Quota, Spent
from tests.builders.core import A100, H100, AWorld, a_workload, a_world

DEVICES = 8
SIZES = ((1, 1), (1, 4), (1, 8), (2, 8), (4, 8), (6, 8), (8, 8))  # pods, devices each
TEAMS = ("org/a", "org/b", "org/b/1", "org/b/2", "org/c")
LEAVES = ("org/a", "org/b/1", "org/b/2", "org/c")


def waiting_world(seed: int) -> Snapshot:
    """One to four clusters of racks of eight-device nodes, a tree of three levels, and eight to twenty that wait."""
    chance = random.Random(seed)
    world = a_world()
    nodes = _fleet(world, chance)
    _tree(world, chance, sum(nodes.values()) * DEVICES)
    _running(world, chance)
    for number in range(chance.randint(8, 20)):
        job = a_workload(f"job-{number}").in_queue(chance.choice(LEAVES)).at(number)
        job = job.with_priority(chance.choice((100, 500, 500, 500, 1_000))).with_sets(
            *_pod_sets(chance, nodes[A100] > 0)
        )
        world.waits(job.having(owner=chance.choice(("ann", "bob", "eve"))))
    used = (Spent(world.queues["org/c"].id, "*", Period.WEEK, chance.choice((0, 500)) * 3_600),)
    return replace(world.build(), spent=used)


def _fleet(world: AWorld, chance: random.Random) -> dict[FlavorName, int]:
    nodes = {H100: 0, A100: 0}
    for number in range(chance.randint(1, 4)):
        world.cluster(f"c{number}", network_domain=chance.choice(("", "lan", "lan")))
        flavor = H100 if number == 0 else chance.choice((H100, H100, A100))
        for block in range(chance.randint(1, 2)):
            racks, size = chance.randint(1, 3), chance.choice((2, 4))
            world.racks(racks, size, flavor=flavor, block=f"c{number}b{block}")
            nodes[flavor] += racks * size
    return nodes


def _tree(world: AWorld, chance: random.Random, units: int) -> None:
    roots = (Quota(H100, None), Quota(A100, None)) if chance.random() < 0.5 else (Quota(H100, units), Quota(A100, 0))
    world.queue_of("org", *roots)
    for path in TEAMS:
        limits = []
        for flavor in (H100, A100):
            borrow = chance.choice((None, None, 0, 16))
            limits.append(Quota(flavor, chance.choice((0, 0, 8, 16)), borrow, chance.choice((None, None, 8))))
        world.queue_of(path, *limits[: chance.randint(1, 2)], weight=chance.randint(1, 3))
    if chance.random() < 0.3:
        world.queues["org/a"] = replace(world.queues["org/a"], most_running=chance.randint(0, 3))
    if chance.random() < 0.3:
        budget = Budget("*", 400, Period.WEEK, is_hard=True)
        world.queues["org/c"] = replace(world.queues["org/c"], budgets=(budget,))


def _running(world: AWorld, chance: random.Random) -> None:
    full = chance.choice((0.4, 0.7, 0.95))
    for node in list(world.nodes.values()):
        if chance.random() < full:
            ((flavor, _),) = node.owned.items()
            units = chance.choice((8, 8, 8, 4, 3))
            queue, minutes = chance.choice(LEAVES), chance.randrange(200)
            world.runs(f"run-{node.name}", queue, {node.name: units}, flavor=flavor, minutes=minutes)


def _pod_sets(chance: random.Random, has_a100: bool) -> list[PodSet]:
    pods, devices = chance.choice(SIZES)
    flavors = chance.choice(((H100,), (H100,), (A100,), (H100, A100))) if has_a100 else (H100,)
    main = PodSet("main", pods, devices, flavors)
    form = chance.random()
    if form < 0.3:
        mode = chance.choice((TopologyMode.REQUIRED, TopologyMode.REQUIRED, TopologyMode.PREFERRED))
        main = replace(main, topology_mode=mode, topology_level=chance.choice(("rack", "rack", "block", "host")))
    elif form < 0.4 and pods % 2 == 0:
        main = replace(main, slice_size=2, slice_level="rack")
    elif form < 0.5 and pods > 1:
        main = replace(main, min_replicas=pods // 2)
    if chance.random() < 0.2:
        return [main, PodSet("side", chance.randint(1, 2), chance.choice((0, 1, 8)), flavors)]
    return [main]
