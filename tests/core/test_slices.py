"""Slices: groups of pods that share a finer domain each, inside whatever the whole PodSet asks for."""

from dataclasses import replace

from controlplane.core.demand import PodNeeds, PodSet, StrategyName, TopologyMode
from controlplane.core.index import FleetIndex, PodSize, Take
from controlplane.core.placement.counters import SlicedCounters
from controlplane.core.placement.registry import STRATEGIES
from tests.builders.core import H100, AWorld, a_pod_set, a_workload, a_world
from tests.builders.plans import admitted, planned, sentences, where


def rich(world: AWorld) -> AWorld:
    return world.queue("team", 10_000)


def sliced(replicas: int, size: int, level: str = "rack", devices: int = 8, **changes: object) -> PodSet:
    pod_set = replace(a_pod_set(replicas, devices), slice_size=size, slice_level=level)
    return replace(pod_set, **changes)  # type: ignore[arg-type]  # a test names real fields


def racks_of(names: list[str]) -> list[str]:
    return [name.rpartition("-")[0] for name in names]


def test_each_slice_is_in_one_rack_and_ranks_of_a_slice_are_consecutive() -> None:
    """Racks of three hosts: a slice of two fits into each once, and a third host stays free."""
    world = rich(a_world().cluster("east").racks(4, 3))
    plan = planned(world.waits(a_workload().with_sets(sliced(8, 2))))
    racks = racks_of(where(world, plan, "job"))
    assert racks == ["b0-r0"] * 2 + ["b0-r1"] * 2 + ["b0-r2"] * 2 + ["b0-r3"] * 2


def test_a_slice_never_straddles_its_domain_although_all_pods_would_fit() -> None:
    world = rich(a_world().cluster("east").racks(4, 3))
    assert admitted(planned(world.waits(a_workload("job").with_sets(sliced(10, 2))))) == []
    world = rich(a_world().cluster("east").racks(4, 3))
    assert admitted(planned(world.waits(a_workload("job").with_sets(a_pod_set(10))))) == ["job"]


def test_the_whole_pod_set_holds_its_own_level_besides() -> None:
    """Block b0 has the two slices that fit tightly, yet not the third."""
    world = rich(a_world().cluster("east").racks(2, 2).racks(4, 2, block="b1"))
    whole = sliced(6, 2, topology_mode=TopologyMode.REQUIRED, topology_level="block")
    plan = planned(world.waits(a_workload().with_sets(whole)))
    assert racks_of(where(world, plan, "job")) == ["b1-r0"] * 2 + ["b1-r1"] * 2 + ["b1-r2"] * 2
    too_large = replace(whole, replicas=10)
    assert admitted(planned(world.waits(a_workload("large").with_sets(too_large)))) == ["job"]


def test_a_level_finer_than_the_slices_holds_them_by_itself() -> None:
    world = rich(a_world().cluster("east").racks(2, 2))
    one_host = sliced(4, 2, devices=2, topology_mode=TopologyMode.REQUIRED, topology_level="host")
    plan = planned(world.waits(a_workload().with_sets(one_host)))
    assert where(world, plan, "job") == ["b0-r0-n0"] * 4


def test_slices_of_a_host_are_whole_on_each_host() -> None:
    world = rich(a_world().cluster("east").racks(1, 3)).runs("x", "team", {"b0-r0-n0": 4})
    plan = planned(world.waits(a_workload().with_sets(sliced(6, 3, level="host", devices=2))))
    assert where(world, plan, "job") == ["b0-r0-n1"] * 3 + ["b0-r0-n2"] * 3


def test_slices_are_spread_whole() -> None:
    world = rich(a_world().cluster("east").racks(4, 4))
    plan = planned(world.waits(a_workload().with_sets(sliced(8, 4)).spread()))
    assert racks_of(where(world, plan, "job")) == ["b0-r0"] * 4 + ["b0-r1"] * 4


def test_slices_that_cpu_has_no_room_for_go_to_another_rack() -> None:
    world = rich(a_world().cluster("east").racks(2, 2)).change_node("b0-r0-n1", cpu_milli_held=60_000)
    plan = planned(world.waits(a_workload().with_sets(sliced(2, 2, needs=PodNeeds(cpu_milli=16_000)))))
    assert racks_of(where(world, plan, "job")) == ["b0-r1"] * 2


def test_a_cluster_without_the_level_of_the_slices_says_so() -> None:
    world = rich(a_world().cluster("east", ("host",)).node("n0").node("n1"))
    plan = planned(world.waits(a_workload().with_sets(sliced(2, 2))))
    assert sentences(plan, "job") == ["east has no topology level rack."]


def test_slices_that_no_rack_could_hold_were_it_empty_are_told_so() -> None:
    world = rich(a_world().cluster("east").racks(4, 2))
    plan = planned(world.waits(a_workload().with_sets(sliced(6, 3))))
    assert sentences(plan, "job") == [
        "east's largest rack holds 2 of 3 pods of 8 nvidia-h100-80gb each, were it empty."
    ]


def test_what_slices_lack_is_told_in_slices() -> None:
    world = rich(a_world().cluster("east").racks(2, 3))
    world.runs("x", "team", {"b0-r0-n0": 8, "b0-r0-n1": 8})
    plan = planned(world.waits(a_workload().with_sets(sliced(4, 2))))
    (told,) = sentences(plan, "job")
    assert told.startswith("east has room for 1 of 2 slices of 2 pods of 8 nvidia-h100-80gb each, ")
    assert told.endswith(", every slice in one rack of east (32 free).")


def test_an_old_place_that_breaks_a_slice_is_not_used() -> None:
    world = rich(a_world().cluster("east").racks(2, 2))
    old = tuple(world.node_named(name).id for name in ("b0-r0-n1", "b0-r1-n1"))
    plan = planned(world.waits(a_workload().with_sets(sliced(2, 2)).having(preferred_nodes=old)))
    assert len(set(racks_of(where(world, plan, "job")))) == 1


def test_counters_of_slices_that_a_cycle_did_not_ask_for_are_made_again_when_needed() -> None:
    world = a_world().cluster("east").racks(2, 4)
    snapshot = world.build()
    index = FleetIndex(snapshot.clusters, snapshot.nodes)
    root = index.tree.root[min(snapshot.clusters)]

    def room() -> int:
        pods = index.size_class(PodSize(H100, 8))
        return SlicedCounters(index.tree, STRATEGIES[StrategyName.PACK], pods, sliced(4, 2), 1).room(root)

    assert room() == 8
    for _ in range(2):
        index.refreshed(snapshot.clusters, snapshot.nodes)
    assert not index.size_class(PodSize(H100, 8)).followers
    index.take([Take(0, H100, 8)])
    assert room() == 6


def test_counters_of_slices_follow_every_change_and_every_way_back() -> None:
    world = a_world().cluster("east").racks(2, 4)
    snapshot = world.build()
    index = FleetIndex(snapshot.clusters, snapshot.nodes)
    (cluster,) = snapshot.clusters
    root, level = index.tree.root[cluster], index.tree.level_index(cluster, "rack")
    assert level is not None
    pods = index.size_class(PodSize(H100, 8))
    counters = SlicedCounters(index.tree, STRATEGIES[StrategyName.PACK], pods, sliced(4, 2), level)
    assert counters.room(root) == 8
    mark = index.checkpoint()
    index.take([Take(0, H100, 1), Take(4, H100, 8), Take(5, H100, 8)])
    assert counters.room(root) == 4
    assert [counters.room(index.tree.ancestor(node, level)) for node in (0, 4)] == [2, 2]
    index.close(1)
    assert counters.room(root) == 4
    index.close(2)
    assert counters.room(root) == 2
    index.rollback(mark)
    assert counters.room(root) == 8
