"""Generated worlds for the laws: small enough to fail readably, mixed enough to fail."""

import os
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st

from controlplane.core.budgets import HOUR, period_of
from controlplane.core.capacity import Taint
from controlplane.core.demand import (
    LabelRule,
    NodeRules,
    PodNeeds,
    PodSet,
    StrategyName,
    Toleration,
    TopologyMode,
)
from controlplane.core.lifecycle import ClusterState
from controlplane.core.tenancy import Budget, Period, Queue, Quota, Spent
from tests.builders.core import A100, H100, NOW, AWorld, a_workload, a_world

FLAVORS = (H100, A100)
# No deadline: a busy machine breaks no law. LAW_EXAMPLES=2000 looks deeper.
LAW = settings(max_examples=int(os.environ.get("LAW_EXAMPLES", "50")), deadline=None)
PATHS = ("org", "org/x", "org/x/1", "org/x/2", "org/y", "org/y/1", "lab", "lab/1")
LEAVES = ("org/x/1", "org/x/2", "org/y/1", "lab/1")

RULES = (
    NodeRules(),
    NodeRules(),
    NodeRules(),
    NodeRules(selector=(("zone", "a"),)),
    NodeRules(terms=((LabelRule("age", "Gt", ("2",)),), (LabelRule("zone", "In", ("b",)),))),
    NodeRules(tolerations=(Toleration("team", "Exists"),)),
)

_limits = st.one_of(st.none(), st.integers(0, 16))


@st.composite
def quotas(draw: st.DrawFn) -> tuple[Quota, ...]:
    """Up to one Quota per Flavor."""
    listed = draw(st.lists(st.sampled_from(FLAVORS), unique=True))
    return tuple(Quota(flavor, draw(st.integers(0, 24)), draw(_limits), draw(_limits)) for flavor in listed)


@st.composite
def trees(draw: st.DrawFn) -> AWorld:
    """Eight Queues in two roots; sometimes the first root owns what is left."""
    world = a_world()
    for path in PATHS:
        limits = draw(quotas())
        if path == "org" and draw(st.booleans()):
            limits = tuple(replace(quota, nominal=None) for quota in limits)
        world.queue_of(path, *limits, weight=draw(st.integers(0, 3)))
    return world


@st.composite
def budgeted(draw: st.DrawFn, world: AWorld) -> AWorld:
    """The same with a few budgets, some of them used up, and with bounds on what is under way."""
    for path in draw(st.lists(st.sampled_from(PATHS), max_size=2, unique=True)):
        queue, flavor = world.queues[path], draw(st.sampled_from(("*", *FLAVORS)))
        per, hours = draw(st.sampled_from(Period)), draw(st.integers(0, 2))
        budget = Budget(flavor, hours, per, is_hard=draw(st.booleans()))
        world.queues[path] = replace(queue, budgets=(budget,))
        world.spent.append(Spent(queue.id, flavor, per, draw(st.integers(0, 2)) * HOUR, period_of(per, NOW)[0]))
    for path in draw(st.lists(st.sampled_from(PATHS), max_size=2, unique=True)):
        world.queues[path] = replace(world.queues[path], most_running=draw(st.integers(0, 3)))
    return world


def is_spent(world_spent: Sequence[Spent], queue: Queue, flavor: str) -> bool:
    """Whether a hard budget of this very Queue has nothing left for a Flavor; what runs adds nothing here."""
    used = {(each.queue, each.flavor, each.per): each.device_seconds for each in world_spent}
    return any(
        budget.is_hard
        and budget.flavor in {"*", flavor}
        and used.get((queue.id, budget.flavor, budget.per), 0) >= budget.device_hours * HOUR
        for budget in queue.budgets
    )


@st.composite
def pod_sets(draw: st.DrawFn, name: str) -> PodSet:
    """Devices or none, one Flavor or two, sometimes together, sometimes hungry for CPU."""
    devices = draw(st.sampled_from((0, 1, 2, 4, 8)))
    flavors = draw(st.lists(st.sampled_from(FLAVORS), min_size=1, max_size=2, unique=True)) if devices else []
    mode = draw(st.sampled_from(TopologyMode))
    level = draw(st.sampled_from(("rack", "block", "host", "no-such-level"))) if mode is not TopologyMode.NONE else ""
    needs = PodNeeds(
        draw(st.sampled_from((0, 0, 4_000, 40_000))),
        draw(st.sampled_from((0, 0, 2**38))),
        rdma=draw(st.sampled_from((0, 0, 0, 1))),
        hugepages_bytes=draw(st.sampled_from((0, 0, 0, 2**30))),
        local_storage_bytes=draw(st.sampled_from((0, 0, 0, 2**34))),
    )
    rules = draw(st.sampled_from(RULES))
    return PodSet(name, draw(st.integers(1, 6)), devices, tuple(flavors), needs, mode, level, rules=rules)


@st.composite
def fleets(draw: st.DrawFn, base: st.SearchStrategy[AWorld] | None = None) -> AWorld:
    """One to three clusters of uneven racks, partly used by pods that are not ours, partly out of planning."""
    world = a_world() if base is None else draw(base)
    for number in range(draw(st.integers(1, 3))):
        state = draw(
            st.sampled_from((ClusterState.READY, ClusterState.READY, ClusterState.READY, ClusterState.SUSPECT))
        )
        levels = draw(st.sampled_from((("block", "rack", "host"), ("rack", "host"), ("host",))))
        out = draw(st.sampled_from(({}, {}, {}, {}, {"drain": "moving"}, {"cordon": "new switch"})))
        world.cluster(f"c{number}", levels, state=state, **out)
        for node in range(draw(st.integers(1, 8))):
            labels = (f"b{draw(st.integers(0, 1))}", draw(st.sampled_from(("r0", "r1", ""))))
            owned = {draw(st.sampled_from(FLAVORS)): draw(st.sampled_from((4, 8)))}
            usable = {flavor: max(0, units - draw(st.integers(0, 3))) for flavor, units in owned.items()}
            cordon = draw(st.sampled_from(("", "", "", "loud")))
            is_cordoned = bool(cordon) and draw(st.booleans())
            withheld = {flavor: draw(st.integers(0, owned[flavor] - usable[flavor])) for flavor in usable if cordon}
            world.node(
                f"c{number}-n{node}",
                labels[len(labels) - len(levels) + 1 :],
                owned,
                usable=usable,
                is_schedulable=not is_cordoned and draw(st.sampled_from((True, True, True, False))),
                is_cordoned=is_cordoned,
                cordon=cordon,
                withheld=withheld,
                labels=draw(st.sampled_from(({}, {"zone": "a"}, {"zone": "b"}, {"zone": "a", "age": "3"}))),
                taints=draw(st.sampled_from(((), (), (), (Taint("team"),), (Taint("wish", "", "PreferNoSchedule"),)))),
                pods=draw(st.sampled_from((110, 110, 110, 250, 3))),
                rdma=draw(st.sampled_from((0, 0, 4))),
                hugepages_bytes=draw(st.sampled_from((0, 2**31))),
                local_storage_bytes=draw(st.sampled_from((0, 2**35))),
            )
    return world


@st.composite
def worlds(draw: st.DrawFn, strategy: StrategyName | None = None) -> AWorld:
    """A fleet, a tree, something running, something waiting, an earmark and an exclusion."""
    world = draw(budgeted(draw(fleets(trees()))))
    for number in range(draw(st.integers(0, 5))):
        node = draw(st.sampled_from(list(world.nodes.values())))
        flavor = next(iter(node.usable))
        units = draw(st.integers(0, max(0, node.usable[flavor] - world.nodes[node.id].held.get(flavor, 0))))
        if units:
            world.runs(
                f"run-{number}", draw(st.sampled_from(LEAVES)), {node.name: units}, minutes=number, flavor=flavor
            )
    for number in range(draw(st.integers(1, 8))):
        sets = [draw(pod_sets(f"set-{index}")) for index in range(draw(st.integers(1, 2)))]
        old = tuple(draw(st.lists(st.sampled_from(list(world.nodes)), max_size=2)))
        world.waits(
            a_workload(f"job-{number}")
            .in_queue(draw(st.sampled_from(LEAVES)))
            .with_sets(*sets)
            .with_priority(draw(st.integers(0, 2)))
            .at(draw(st.integers(0, 3)))
            .having(
                strategy=strategy or draw(st.sampled_from(StrategyName)),
                shape=draw(st.sampled_from(("", "odd"))),
                preferred_nodes=old,
                is_repair=draw(st.booleans()),
            )
        )
    for number in draw(st.lists(st.sampled_from(list(world.nodes)), max_size=2, unique=True)):
        world.excludes("odd", world.nodes[number].name)
    if draw(st.booleans()):
        node = draw(st.sampled_from(list(world.nodes.values())))
        world.keeps("job-0", {node.name: draw(st.integers(1, 8))}, flavor=next(iter(node.usable)))
    return world


@st.composite
def crowded(draw: st.DrawFn) -> AWorld:
    """Clusters that are full of borrowers, and others who want their own back."""
    world = a_world().queue("org", 0)
    for path in ("org/x", "org/y"):
        world.queue(path, draw(st.sampled_from((0, 8))))
    for path in ("org/x/1", "org/x/2", "org/y/1", "org/y/2"):
        world.queue(path, draw(st.sampled_from((0, 8, 16))), weight=draw(st.integers(0, 2)))
    leaves = [path for path in world.queues if path.count("/") == 2]
    for number in range(draw(st.integers(1, 2))):
        world.cluster(f"c{number}").racks(draw(st.integers(1, 2)), 2, block=f"b{number}")
    for node in list(world.nodes.values()):
        for number, units in enumerate(draw(st.sampled_from(((8,), (4, 4), (4,), (2, 6))))):
            queue = draw(st.sampled_from(leaves))
            world.runs(f"{node.name}-{number}", queue, {node.name: units}, minutes=draw(st.integers(0, 9)))
    for number in range(draw(st.integers(1, 5))):
        job = a_workload(f"job-{number}").in_queue(draw(st.sampled_from(leaves))).at(number)
        job = job.asking(draw(st.integers(1, 2)), draw(st.sampled_from((2, 4, 8))))
        world.waits(job.required("rack") if draw(st.booleans()) else job)
    return world
