"""Laws of the fleet index: counters equal a recount, and whatever was done can be undone."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.capacity import Taint
from controlplane.core.demand import LabelRule, NodeRules, Toleration
from controlplane.core.ids import FlavorName, NodeId
from controlplane.core.index import NO_FLAVOR, FleetIndex, PodSize, SizeClass, Take
from controlplane.core.nodes import is_eligible
from controlplane.core.snapshot import Snapshot
from tests.builders.core import A100, H100, AWorld
from tests.laws.worlds import LAW, fleets

SIZES = (
    PodSize(H100, 1),
    PodSize(H100, 4),
    PodSize(A100, 8),
    PodSize(H100, 2, 9_000, 2**37),
    PodSize(NO_FLAVOR, 0, 7_000),
    PodSize(NO_FLAVOR, 0),
    PodSize(H100, 1, rdma=1),
    PodSize(A100, 2, hugepages_bytes=2**30, local_storage_bytes=2**33),
    PodSize(H100, 1, rules=NodeRules(selector=(("zone", "a"),))),
    PodSize(H100, 2, 9_000, rules=NodeRules(terms=((LabelRule("zone", "NotIn", ("a",)),),))),
    PodSize(NO_FLAVOR, 0, rules=NodeRules(tolerations=(Toleration("team", "Exists"),))),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(("take", "close", "mark", "back")),
        st.integers(0, 30),
        st.sampled_from((H100, A100)),
        st.integers(-4, 9),
        st.sampled_from(SIZES),
    ),
    max_size=25,
)


def state(index: FleetIndex) -> list[tuple[list[int], list[int], list[dict[int, int]]]]:
    return [_of(index.size_class(size)) for size in SIZES]


def _of(size_class: SizeClass) -> tuple[list[int], list[int], list[dict[int, int]]]:
    return list(size_class.count), list(size_class.mask), [dict(group) for group in size_class.at]


def fits(index: FleetIndex, snapshot: Snapshot, size: PodSize, node: int) -> int:
    """Counted otherwise than the index does: pods are added until something is short."""
    if size.devices and size.flavor not in index.free:
        return 0
    rules = size.rules or NodeRules()
    now = snapshot.nodes[index.tree.nodes[node].id]
    if not is_eligible(now, rules, asks_devices=size.devices > 0) or index.is_closed(node):
        return 0
    pods = 0
    while (
        pods < index.slots[node]
        and index.holds(size, node, pods + 1)
        and (not size.devices or (pods + 1) * size.devices <= index.free[size.flavor].get(node, 0))
    ):
        pods += 1
    return pods


def recounted(index: FleetIndex, snapshot: Snapshot) -> None:
    """Every counter and bucket is what walking the nodes gives."""
    tree = index.tree
    for cluster, root in tree.root.items():
        for flavor in (H100, A100):
            assert index.open_units[cluster].get(flavor, 0) == index.free_units(root, flavor)
    for size in SIZES:
        size_class = index.size_class(size)
        for domain in range(tree.domains):
            assert size_class.count[domain] == sum(fits(index, snapshot, size, node) for node in index.nodes_of(domain))
        for group, members in enumerate(tree.members):
            held: dict[int, int] = {}
            for position, domain in enumerate(members):
                if size_class.count[domain]:
                    held[size_class.count[domain]] = held.get(size_class.count[domain], 0) | 1 << position
            assert size_class.at[group] == held
            assert size_class.mask[group] == sum(1 << count for count in held)


@LAW
@given(fleets(), steps)
def test_counters_equal_a_recount_and_rollback_restores(
    world: AWorld, todo: list[tuple[str, int, FlavorName, int, PodSize]]
) -> None:
    snapshot = world.build()
    index = FleetIndex(snapshot.clusters, snapshot.nodes)
    before, marks = state(index), [0]
    for what, number, flavor, amount, size in todo:
        node = number % len(index.tree.nodes)
        if what == "take":
            units = amount if flavor in index.tree.nodes[node].usable else 0
            beside = (node + 1) % len(index.tree.nodes)
            has_it = not size.devices or beside in index.free.get(size.flavor, {})  # none holds what it never had
            index.take([Take(node, flavor, units), size.take(beside, amount if has_it else 0)])
        elif what == "close":
            index.close(node)
        elif what == "mark":
            marks.append(index.checkpoint())
        else:
            index.rollback(marks.pop() if len(marks) > 1 else marks[0])
            marks = [mark for mark in marks if mark <= index.checkpoint()]
    recounted(index, snapshot)
    index.rollback(0)
    assert state(index) == before
    recounted(index, snapshot)


@LAW
@given(fleets(), st.data())
def test_a_refreshed_index_equals_a_new_one(world: AWorld, data: st.DataObject) -> None:
    first = world.build()
    index = FleetIndex(first.clusters, first.nodes)
    state(index)
    touched = set[NodeId]()
    for node in data.draw(st.lists(st.sampled_from(list(world.nodes.values())), max_size=4)):
        flavor = data.draw(st.sampled_from((H100, A100)))
        world.change_node(
            node.name,
            held={flavor: data.draw(st.integers(0, 9))},
            is_schedulable=data.draw(st.booleans()),
            cpu_milli_held=data.draw(st.sampled_from((0, 50_000, 90_000))),
            pods_held=data.draw(st.sampled_from((0, 5, 200))),
            rdma_held=data.draw(st.integers(0, 3)),
            labels=data.draw(st.sampled_from(({}, {"zone": "a"}, {"zone": "b"}))),
            taints=data.draw(st.sampled_from(((), (Taint("team"),)))),
        )
        touched.add(node.id)
    now = world.build()
    warm = index.refreshed(now.clusters, now.nodes, touched)
    cold = FleetIndex(now.clusters, now.nodes)
    assert state(warm) == state(cold)
    assert (warm.owned, warm.cpu, warm.memory) == (cold.owned, cold.cpu, cold.memory)
    assert (warm.slots, warm.rdma) == (cold.slots, cold.rdma)
    recounted(warm, now)
