"""Topology and the fleet index by example."""

from controlplane.core.capacity import Taint
from controlplane.core.demand import NodeRules, StrategyName, Toleration
from controlplane.core.ids import NodeId
from controlplane.core.index import NO_FLAVOR, PODS_PER_NODE_MAX, FleetIndex, PodSize, Take
from controlplane.core.placement.counters import SliceClass
from controlplane.core.placement.registry import STRATEGIES
from controlplane.core.topology import natural
from tests.builders.core import A100, H100, AWorld, a_world


def index_of(world: AWorld) -> FleetIndex:
    snapshot = world.build()
    return FleetIndex(snapshot.clusters, snapshot.nodes)


def test_slots_bind_also_where_more_is_given_back_than_is_usable() -> None:
    """A node whose free units pass its usable ones: the counter did not follow its slots."""
    index = index_of(a_world().cluster("east").node("n", devices={H100: 3}, pods=3))
    ones = index.size_class(PodSize(H100, 1))
    index.take([Take(0, H100, -2)])
    assert ones.count[0] == 3
    index.take([Take(0, NO_FLAVOR, 0, pods=-1)])
    assert ones.count[0] == index.fits(PodSize(H100, 1), 0) == 4
    index.rollback(0)
    assert ones.count[0] == 3


def test_names_sort_as_people_count() -> None:
    names = ["r²", "rack-10", "rack-2", "rack-1", "rack"]
    assert sorted(names, key=natural) == ["rack", "rack-1", "rack-2", "rack-10", "r²"]


def test_nodes_are_numbered_in_the_order_of_the_fabric_whatever_their_ids() -> None:
    world = a_world().cluster("east")
    for name, rack in (("n3", "r2"), ("n10", "r10"), ("n1", "r2"), ("n2", "r10")):
        world.node(name, ("b", rack))
    assert [node.name for node in index_of(world).tree.nodes] == ["n1", "n3", "n2", "n10"]


def test_a_node_without_a_label_is_a_domain_of_its_own() -> None:
    world = a_world().cluster("east").node("bare", ("", "")).node("bare2", ("", "")).racks(1, 2)
    index = index_of(world)
    racks = index.tree.group_of_level[max(world.clusters), 1]
    ones = index.size_class(PodSize(H100, 8))
    assert sorted(ones.count[domain] for domain in index.tree.members[racks]) == [1, 1, 2]


def test_equal_labels_under_different_parents_are_different_domains() -> None:
    world = a_world().cluster("east").racks(1, 2, block="b0").racks(1, 2, block="b1")
    index = index_of(world)
    assert len(index.tree.members[index.tree.group_of_level[max(world.clusters), 1]]) == 2


def test_counts_are_by_node_and_not_by_total() -> None:
    """T59: 8 free cards on two nodes hold no pod of 8, and a pod that fits nowhere fills nothing."""
    world = a_world().cluster("east").racks(1, 2)
    for name in ("b0-r0-n0", "b0-r0-n1"):
        world.change_node(name, held={H100: 4})
    index = index_of(world)
    root = index.tree.root[max(world.clusters)]
    assert index.size_class(PodSize(H100, 8)).count[root] == 0
    assert index.size_class(PodSize(H100, 4)).count[root] == 2
    assert index.free_units(root, H100) == 8


def test_cpu_and_memory_bind_too() -> None:
    world = a_world().cluster("east").node("n", devices={H100: 8}, cpu_milli=10_000, memory_bytes=100)
    index = index_of(world)
    root = index.tree.root[max(world.clusters)]
    assert index.size_class(PodSize(H100, 1)).count[root] == 8
    assert index.size_class(PodSize(H100, 1, 3_000)).count[root] == 3
    assert index.size_class(PodSize(H100, 1, 3_000, 60)).count[root] == 1
    assert index.size_class(PodSize(NO_FLAVOR, 0, 4_000)).count[root] == 2
    assert index.size_class(PodSize(NO_FLAVOR, 0)).count[root] == 110


def test_what_the_kubelet_takes_binds_pods_with_and_without_devices() -> None:
    world = a_world().cluster("east").node("few", pods=8, pods_held=5).node("many", pods=250, pods_held=3)
    index = index_of(world)
    few, many = (index.tree.label.index(name) for name in ("few", "many"))
    with_devices, without = index.size_class(PodSize(H100, 1)), index.size_class(PodSize(NO_FLAVOR, 0, 100))
    assert (with_devices.count[few], without.count[few]) == (3, 3)
    assert (with_devices.count[many], without.count[many]) == (8, 247)
    index.take([Take(few, NO_FLAVOR, 0, cpu_milli=200, pods=2)])
    assert (with_devices.count[few], without.count[few]) == (1, 1)
    index.take([PodSize(H100, 1).take(few, 1)])
    assert (with_devices.count[few], without.count[few]) == (0, 0)
    index.rollback(0)
    assert (with_devices.count[few], without.count[few]) == (3, 3)


def test_rdma_huge_pages_and_local_disk_bind_too() -> None:
    world = a_world().cluster("east").node("n", rdma=4, hugepages_bytes=640, local_storage_bytes=7_000)
    index = index_of(world)
    assert index.size_class(PodSize(H100, 1, rdma=1)).count[0] == 4
    assert index.size_class(PodSize(H100, 1, hugepages_bytes=100)).count[0] == 6
    storing = index.size_class(PodSize(NO_FLAVOR, 0, local_storage_bytes=1_000))
    assert storing.count[0] == 7
    index.take([PodSize(H100, 1, rdma=3, local_storage_bytes=1_500).take(0, 1)])
    assert storing.count[0] == 5
    assert index.size_class(PodSize(H100, 1, rdma=1)).count[0] == 1
    assert not index.holds(PodSize(H100, 1, rdma=1), 0, 2)


def test_rules_leave_only_their_nodes_and_cost_no_counters_where_they_leave_all() -> None:
    world = a_world().cluster("east")
    for number in range(4):
        world.node(f"n{number}", labels={"zone": "a" if number < 3 else "b", "gpu": "h100"})
    index = index_of(world)
    everywhere = PodSize(H100, 8, rules=NodeRules(selector=(("gpu", "h100"),)))
    in_b = PodSize(H100, 8, rules=NodeRules(selector=(("zone", "b"),)))
    nowhere = PodSize(H100, 8, rules=NodeRules(selector=(("zone", "c"),)))
    root = index.tree.root[max(world.clusters)]
    assert index.size_class(everywhere) is index.size_class(PodSize(H100, 8))
    assert index.size_class(in_b).count[root] == 1
    assert index.size_class(nowhere).count[root] == 0
    assert (index.eligible(in_b, root), index.eligible(everywhere, root)) == (1, 4)
    world.change_node("n0", labels={"zone": "b"})
    snapshot = world.build()
    index.refreshed(snapshot.clusters, snapshot.nodes)
    assert index.size_class(in_b).count[root] == 2
    assert index.size_class(everywhere).count[root] == 3


def test_a_tainted_node_takes_those_who_put_up_with_it_and_those_who_ask_for_its_devices() -> None:
    own = Taint("nvidia.com/gpu", "present", is_for_devices=True)
    world = a_world().cluster("east").node("gpu", taints=(own,)).node("ours", taints=(Taint("team", "ml"),))
    index = index_of(world)
    root = index.tree.root[max(world.clusters)]
    tolerant = NodeRules(tolerations=(Toleration("team", "Equal", "ml", "NoSchedule"),))
    assert index.size_class(PodSize(H100, 8)).count[root] == 1
    assert index.size_class(PodSize(H100, 8, rules=tolerant)).count[root] == 2
    assert index.size_class(PodSize(NO_FLAVOR, 0, 1_000)).count[root] == 0
    assert index.size_class(PodSize(NO_FLAVOR, 0, 1_000, rules=tolerant)).count[root] == 64


def test_a_node_that_is_tainted_later_is_left_from_then_on() -> None:
    world = a_world().cluster("east").racks(1, 3)
    index = index_of(world)
    ones = index.size_class(PodSize(H100, 8))
    world.change_node("b0-r0-n1", taints=(Taint("failing"),))
    snapshot = world.build()
    index.refreshed(snapshot.clusters, snapshot.nodes, {world.node_named("b0-r0-n1").id})
    assert ones.count[:3] == [1, 0, 1]
    world.change_node("b0-r0-n1", taints=())
    snapshot = world.build()
    index.refreshed(snapshot.clusters, snapshot.nodes, {world.node_named("b0-r0-n1").id})
    assert ones.count[:3] == [1, 1, 1]


def test_counters_and_what_follows_them_are_true_whenever_somebody_looks() -> None:
    world = a_world().cluster("east").racks(2, 2)
    index = index_of(world)
    pods, rack = index.size_class(PodSize(H100, 8)), index.tree.ancestor(0, 1)
    slices = pods.followers["pairs"] = SliceClass(index.tree, pods, 2, {max(world.clusters): 1})
    assert (slices.count[rack], pods.count[rack]) == (1, 2)
    index.take([PodSize(H100, 8).take(0, 1)])
    assert (slices.count[rack], pods.count[rack]) == (0, 1)
    index.close(1)
    assert (slices.largest(index.tree.group_of_level[max(world.clusters), 1]), pods.count[rack]) == (1, 0)
    index.rollback(0)
    assert (slices.count[rack], pods.count[rack]) == (1, 2)


def test_only_nodes_that_are_named_are_looked_at_again() -> None:
    world = a_world().cluster("east").racks(1, 2)
    index = index_of(world)
    world.change_node("b0-r0-n0", held={H100: 8}).change_node("b0-r0-n1", held={H100: 8})
    snapshot = world.build()
    index.refreshed(snapshot.clusters, snapshot.nodes, {world.node_named("b0-r0-n1").id})
    assert index.size_class(PodSize(H100, 8)).count[:2] == [1, 0]
    assert index.open_units[max(world.clusters)][H100] == 8


def test_a_cordoned_node_holds_nothing() -> None:
    world = a_world().cluster("east").node("n").change_node("n", is_schedulable=False)
    index = index_of(world)
    assert index.size_class(PodSize(H100, 1)).count[index.tree.root[max(world.clusters)]] == 0
    assert index.free_units(index.tree.root[max(world.clusters)], H100) == 0


def test_a_huge_count_of_slots_does_not_widen_the_buckets() -> None:
    """T03: 2^62 slots on one node are as good as the most pods a node may run, and 2^62 of those are not believed."""
    world = a_world().cluster("east").node("n", devices={H100: 2**62}).node("mad", devices={H100: 2**62}, pods=2**62)
    index = index_of(world)
    counts = {index.tree.label[node]: index.size_class(PodSize(H100, 1)).count[node] for node in (0, 1)}
    assert counts == {"n": 110, "mad": PODS_PER_NODE_MAX}


def test_units_kept_before_they_are_free_count_as_none() -> None:
    world = a_world().cluster("east").node("n").change_node("n", held={H100: 8})
    index = index_of(world)
    size_class = index.size_class(PodSize(H100, 1))
    index.take([Take(0, H100, 8)])
    assert size_class.count[0] == 0
    index.take([Take(0, H100, -8)])
    assert size_class.count[0] == 0
    index.take([Take(0, H100, -3)])
    assert size_class.count[0] == 3


def test_a_refreshed_index_is_a_new_one() -> None:
    world = a_world().cluster("east").racks(2, 4)
    index = index_of(world)
    sizes = [PodSize(H100, 1), PodSize(H100, 8), PodSize(H100, 2, 1000), PodSize(A100, 1)]
    for size in sizes:
        index.size_class(size)
    world.change_node("b0-r0-n1", held={H100: 5}, cpu_milli_held=63_500)
    world.change_node("b0-r1-n2", usable={H100: 2, A100: 4})
    snapshot = world.build()
    warm = index.refreshed(snapshot.clusters, snapshot.nodes)
    assert warm is index
    cold = index_of(world)
    for size in sizes:
        assert warm.size_class(size).count == cold.size_class(size).count
        assert warm.size_class(size).mask == cold.size_class(size).mask
        assert warm.size_class(size).at == cold.size_class(size).at


def test_counters_that_a_cycle_did_not_ask_for_are_made_again_when_needed() -> None:
    world = a_world().cluster("east").racks(1, 2)
    index, size = index_of(world), PodSize(H100, 2, 40_000)
    first = index.size_class(size)
    snapshot = world.build()
    assert index.refreshed(snapshot.clusters, snapshot.nodes).size_class(size) is first
    for _ in range(2):
        index.refreshed(snapshot.clusters, snapshot.nodes)
    again = index.size_class(size)
    assert again is not first
    assert again.count == first.count


def test_what_a_crashed_cycle_left_is_undone_before_the_next() -> None:
    world = a_world().cluster("east").racks(1, 2)
    index, snapshot = index_of(world), world.build()
    index.take([Take(0, H100, 8)])
    index.close(1)
    warm = index.refreshed(snapshot.clusters, snapshot.nodes)
    assert warm.size_class(PodSize(H100, 8)).count[:2] == [1, 1]


def test_a_node_that_comes_or_moves_makes_a_new_index() -> None:
    world = a_world().cluster("east").racks(2, 2)
    index = index_of(world)
    world.change_node("b0-r0-n1", domains=("b0", "r1", "b0-r0-n1"))
    moved = index.refreshed(world.build().clusters, world.build().nodes, {world.node_named("b0-r0-n1").id})
    assert moved is not index
    world.node("new", ("b0", "r0"))
    more = moved.refreshed(world.build().clusters, world.build().nodes, {world.node_named("new").id})
    assert more is not moved
    del world.nodes[world.node_named("new").id]
    assert more.refreshed(world.build().clusters, world.build().nodes) is not more


def test_every_strategy_has_a_name_in_the_documents() -> None:
    assert set(STRATEGIES) == set(StrategyName)


def test_positions_follow_nodes() -> None:
    world = a_world().cluster("east").racks(1, 3)
    index = index_of(world)
    assert [index.tree.position[node.id] for node in index.tree.nodes] == [0, 1, 2]
    assert NodeId(99) not in index.tree.position
