"""Laws of the fleet index: counters equal a recount, and whatever was done can be undone."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.ids import FlavorName
from controlplane.core.index import NO_FLAVOR, FleetIndex, PodSize, SizeClass, Take
from tests.builders.core import A100, H100, AWorld
from tests.laws.worlds import LAW, fleets

SIZES = (
    PodSize(H100, 1),
    PodSize(H100, 4),
    PodSize(A100, 8),
    PodSize(H100, 2, 9_000, 2**37),
    PodSize(NO_FLAVOR, 0, 7_000),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(("take", "close", "mark", "back")),
        st.integers(0, 30),
        st.sampled_from((H100, A100)),
        st.integers(-4, 9),
        st.sampled_from((0, 5_000)),
    ),
    max_size=25,
)


def state(index: FleetIndex) -> list[tuple[list[int], list[int], list[dict[int, int]]]]:
    return [_of(index.size_class(size)) for size in SIZES]


def _of(size_class: SizeClass) -> tuple[list[int], list[int], list[dict[int, int]]]:
    return list(size_class.count), list(size_class.mask), [dict(group) for group in size_class.at]


def recounted(index: FleetIndex) -> None:
    """Every counter and bucket is what walking the nodes gives."""
    tree = index.tree
    for size in SIZES:
        size_class = index.size_class(size)
        for domain in range(tree.domains):
            assert size_class.count[domain] == sum(index.fits(size, node) for node in index.nodes_of(domain))
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
    world: AWorld, todo: list[tuple[str, int, FlavorName, int, int]]
) -> None:
    snapshot = world.build()
    index = FleetIndex(snapshot.clusters, snapshot.nodes)
    before, marks = state(index), [0]
    for what, number, flavor, amount, cpu in todo:
        node = number % len(index.tree.nodes)
        if what == "take":
            index.take([Take(node, flavor, amount, cpu), Take((node + 1) % len(index.tree.nodes), flavor, 1)])
        elif what == "close":
            index.close(node)
        elif what == "mark":
            marks.append(index.checkpoint())
        else:
            index.rollback(marks.pop() if len(marks) > 1 else marks[0])
            marks = [mark for mark in marks if mark <= index.checkpoint()]
    recounted(index)
    index.rollback(0)
    assert state(index) == before
    recounted(index)


@LAW
@given(fleets(), st.data())
def test_a_refreshed_index_equals_a_new_one(world: AWorld, data: st.DataObject) -> None:
    first = world.build()
    index = FleetIndex(first.clusters, first.nodes)
    state(index)
    for node in data.draw(st.lists(st.sampled_from(list(world.nodes.values())), max_size=4)):
        flavor = data.draw(st.sampled_from((H100, A100)))
        world.change_node(
            node.name,
            held={flavor: data.draw(st.integers(0, 9))},
            is_schedulable=data.draw(st.booleans()),
            cpu_milli_held=data.draw(st.sampled_from((0, 50_000, 90_000))),
        )
    now = world.build()
    warm = index.refreshed(now.clusters, now.nodes)
    cold = FleetIndex(now.clusters, now.nodes)
    assert state(warm) == state(cold)
    assert (warm.owned, warm.cpu, warm.memory) == (cold.owned, cold.cpu, cold.memory)
    recounted(warm)
