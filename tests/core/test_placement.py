"""Where gangs go, seen through one cycle."""

from dataclasses import replace

import pytest

from controlplane.core.demand import PodNeeds, PodSet, TopologyMode
from controlplane.core.ids import NodeId
from controlplane.core.lifecycle import ClusterState
from controlplane.core.plan import Admit
from controlplane.core.tenancy import Quota
from tests.builders.core import A100, H100, AWorld, a_pod_set, a_workload, a_world
from tests.builders.plans import admitted, planned, sentences, where


def rich(world: AWorld) -> AWorld:
    """Quota is no question here."""
    return world.queue("team", 10_000)


def east(racks: int = 4, nodes: int = 4) -> AWorld:
    return rich(a_world().cluster("east").racks(racks, nodes))


def test_a_gang_goes_into_the_smallest_hole_that_holds_it() -> None:
    world = east()
    for name in ("b0-r2-n0", "b0-r2-n1"):
        world.runs(f"on-{name}", "team", {name: 8})
    plan = planned(world.waits(a_workload().asking(2)))
    assert where(world, plan, "job") == ["b0-r2-n2", "b0-r2-n3"]


def test_a_small_pod_shares_the_fullest_node() -> None:
    world = east().runs("x", "team", {"b0-r1-n2": 6})
    plan = planned(world.waits(a_workload().asking(1, 2)))
    assert where(world, plan, "job") == ["b0-r1-n2"]


def test_the_last_pod_stays_with_the_domain_already_begun() -> None:
    """T55: s0{n1,n2} s1{n3,n4} s2{n5,n6}; four pods are n1 n2 n3 n4, not n5."""
    world = rich(a_world().cluster("east", ("switch", "host")))
    for number in range(1, 7):
        world.node(f"n{number}", (f"s{(number - 1) // 2}",))
    plan = planned(world.waits(a_workload().asking(4)))
    assert where(world, plan, "job") == ["n1", "n2", "n3", "n4"]


def test_a_gang_over_domains_takes_the_fewest_and_the_last_one_tightly() -> None:
    world = east(4, 4).runs("x", "team", {"b0-r1-n0": 8, "b0-r1-n1": 8, "b0-r1-n2": 8})
    plan = planned(world.waits(a_workload().asking(9)))
    racks = [name.split("-")[1] for name in where(world, plan, "job")]
    assert racks == ["r0"] * 4 + ["r1"] + ["r2"] * 4


def test_ranks_follow_the_order_of_the_fabric() -> None:
    world = east(2, 4)
    plan = planned(world.waits(a_workload().asking(8)))
    assert where(world, plan, "job") == [f"b0-r{rack}-n{node}" for rack in range(2) for node in range(4)]


def test_a_required_level_is_one_domain_or_nothing() -> None:
    world = east(2, 4).waits(
        a_workload("fits").asking(4).required("rack"), a_workload("not").asking(5).required("rack")
    )
    plan = planned(world)
    assert admitted(plan) == ["fits"]
    assert len({name.split("-")[1] for name in where(world, plan, "fits")}) == 1
    assert sentences(planned(east(2, 4).waits(a_workload("not").asking(5).required("rack"))), "not") == [
        "east's largest rack holds 4 of 5 pods of 8 nvidia-h100-80gb each, were it empty."
    ]


def test_a_preferred_level_climbs_until_it_fits() -> None:
    world = east(2, 4).waits(a_workload().asking(5).preferred("rack"))
    assert len(where(world, planned(world), "job")) == 5


def test_a_preferred_level_that_a_cluster_does_not_have_is_no_obstacle() -> None:
    world = east(2, 4).waits(a_workload().asking(5).preferred("nvlink-domain"))
    assert admitted(planned(world)) == ["job"]


def test_the_cluster_that_reaches_the_level_wins() -> None:
    world = rich(a_world().cluster("west").racks(4, 2).cluster("east").racks(1, 4, block="b9"))
    plan = planned(world.waits(a_workload().asking(4).preferred("rack")))
    assert {name.split("-")[0] for name in where(world, plan, "job")} == {"b9"}


def test_the_cluster_that_promises_most_by_its_devices_does_not_win_where_cpu_binds() -> None:
    world = rich(a_world().cluster("west"))
    for name in ("w0", "w1"):
        world.node(name, ("b0", "r0"), cpu_milli=1_000)
    world.cluster("east").node("e0", ("b0", "r0")).node("e1", ("b0", "r0"))
    plan = planned(world.waits(a_workload().asking(2, 4).needing(cpu_milli=1_000)))
    assert where(world, plan, "job") == ["e0", "e0"], "in west, no host has CPU for both"


def test_the_cluster_with_fewer_domains_wins() -> None:
    world = rich(a_world().cluster("west", ("rack", "host")))
    for number in range(6):
        world.node(f"w{number}", (f"r{number}",))
    world.cluster("east", ("rack", "host"))
    for number in range(6):
        world.node(f"e{number}", (f"r{number // 3}",))
    plan = planned(world.waits(a_workload().asking(6).preferred("host")))
    assert where(world, plan, "job")[0].startswith("e")


def test_small_gangs_leave_the_large_hole_alone() -> None:
    world = rich(a_world().cluster("west").racks(1, 8).cluster("east").racks(1, 2, block="b9"))
    plan = planned(world.waits(a_workload().asking(2)))
    assert where(world, plan, "job") == ["b9-r0-n0", "b9-r0-n1"]


def test_equal_clusters_are_chosen_by_load_and_then_by_id() -> None:
    world = rich(a_world().cluster("west").racks(1, 2).cluster("east").racks(1, 2, block="b9"))
    plan = planned(world.waits(a_workload("one").at(0), a_workload("two").at(1), a_workload("three").at(2)))
    first = [where(world, plan, name)[0] for name in ("one", "two", "three")]
    assert first == ["b0-r0-n0", "b9-r0-n0", "b0-r0-n1"]


def test_spread_takes_the_emptiest_and_shares_evenly() -> None:
    world = east(2, 4).runs("x", "team", {"b0-r0-n0": 4, "b0-r0-n1": 4})
    plan = planned(world.waits(a_workload().asking(4, 4).spread()))
    assert where(world, plan, "job") == ["b0-r0-n2", "b0-r0-n3", "b0-r1-n0", "b0-r1-n1"]


def test_spread_within_a_required_domain_stays_inside_it() -> None:
    world = east(2, 4).runs("x", "team", {"b0-r0-n0": 4})
    plan = planned(world.waits(a_workload().asking(6, 4).spread().required("rack")))
    assert [name[3:] for name in where(world, plan, "job")] == ["r1-n0", "r1-n0", "r1-n1", "r1-n1", "r1-n2", "r1-n3"]


def test_all_pod_sets_are_in_one_cluster_or_none_starts() -> None:
    world = rich(a_world().cluster("west").racks(1, 2).cluster("east").racks(1, 2, block="b9"))
    big, small = a_pod_set(2), replace(a_pod_set(1), name="eval")
    plan = planned(world.waits(a_workload().with_sets(big, small)))
    assert admitted(plan) == []
    assert sentences(plan, "job")[0] == "west has room for 0 of 1 pods of 8 nvidia-h100-80gb each (0 free)."
    world.node("extra", ("b9", "r0"))
    assert set(where(world, planned(world), "job")) == {"b9-r0-n0", "b9-r0-n1", "extra"}


def test_a_pod_set_takes_its_first_flavor_that_has_room() -> None:
    world = a_world().cluster("east").racks(1, 2).racks(1, 2, flavor=A100, block="b1")
    world.queue_of("team", Quota(H100, 64), Quota(A100, 64))
    plan = planned(
        world.waits(a_workload("a").asking(2, 8, H100, A100), a_workload("b").asking(2, 8, H100, A100).at(1))
    )
    assert where(world, plan, "a") == ["b0-r0-n0", "b0-r0-n1"]
    assert where(world, plan, "b") == ["b1-r0-n0", "b1-r0-n1"]


def test_cpu_pods_beside_devices_are_placed_and_never_charged() -> None:
    """T54: quota lists devices only; CPU is placed and counted by nothing."""
    world = east(1, 2)
    leader = PodSet("leader", 1, 0, (), PodNeeds(cpu_milli=1000))
    plan = planned(world.waits(a_workload().with_sets(leader, a_pod_set(2))))
    assert admitted(plan) == ["job"]
    assert isinstance(plan.decisions[0], Admit)
    assert plan.decisions[0].charges == ((H100, 16),)


def test_what_cpu_leaves_no_room_for_goes_elsewhere() -> None:
    world = east(1, 3).change_node("b0-r0-n0", cpu_milli_held=60_000)
    plan = planned(world.waits(a_workload().asking(2).needing(cpu_milli=16_000)))
    assert where(world, plan, "job") == ["b0-r0-n1", "b0-r0-n2"]


def test_what_memory_has_no_room_for_waits_with_numbers() -> None:
    world = east(1, 2).change_node("b0-r0-n0", memory_bytes_held=2**40)
    plan = planned(world.waits(a_workload().asking(2).needing(memory_bytes=2**39)))
    assert sentences(plan, "job") == ["east has room for 1 of 2 pods of 8 nvidia-h100-80gb each (16 free)."]


def test_a_requeued_gang_gets_its_old_place_when_it_is_free() -> None:
    world = east(4, 4)
    old = tuple(world.node_named(name).id for name in ("b0-r3-n1", "b0-r3-n2"))
    plan = planned(world.waits(a_workload().asking(2).having(preferred_nodes=old)))
    assert where(world, plan, "job") == ["b0-r3-n1", "b0-r3-n2"]


@pytest.mark.parametrize("gone", ["taken", "removed"])
def test_a_requeued_gang_goes_elsewhere_when_its_old_place_is_not(gone: str) -> None:
    """T99: the old node belongs to the old attempt; what is left of it binds nothing."""
    world = east(4, 4)
    old = (world.node_named("b0-r3-n1").id, NodeId(999))
    if gone == "taken":
        world.runs("x", "team", {"b0-r3-n1": 8})
    plan = planned(world.waits(a_workload().asking(2).having(preferred_nodes=old)))
    assert len(where(world, plan, "job")) == 2


def test_an_old_place_that_breaks_a_required_level_is_not_used() -> None:
    world = east(2, 2)
    old = tuple(world.node_named(name).id for name in ("b0-r0-n1", "b0-r1-n1"))
    plan = planned(world.waits(a_workload().asking(2).required("rack").having(preferred_nodes=old)))
    assert where(world, plan, "job") == ["b0-r0-n0", "b0-r0-n1"]


def test_twenty_jobs_for_two_small_clusters_are_two_and_two() -> None:
    """T41: two clusters of 2 CPUs, 20 jobs of one CPU at once: 2 + 2 start, 16 wait."""
    world = rich(a_world())
    for name in ("west", "east"):
        world.cluster(name, ("host",)).node(f"{name}-0", devices={}, cpu_milli=2_000)
    job = PodSet("main", 1, 0, (), PodNeeds(cpu_milli=1_000))
    world.waits(*[a_workload(f"job-{number:02}").with_sets(job) for number in range(20)])
    plan = planned(world)
    places = [where(world, plan, name)[0] for name in admitted(plan)]
    assert (places.count("west-0"), places.count("east-0"), len(plan.reasons)) == (2, 2, 16)


def test_pods_that_fit_nowhere_do_not_fill_a_cluster() -> None:
    """T59: 50 pods of 20 CPUs that nothing can hold leave room for one of 2 CPUs."""
    world = rich(a_world().cluster("east", ("host",)).node("n0", devices={}, cpu_milli=16_000))
    large, small = (PodSet("main", 1, 0, (), PodNeeds(cpu_milli=cpu)) for cpu in (20_000, 2_000))
    world.waits(*[a_workload(f"large-{number:02}").with_sets(large) for number in range(50)])
    plan = planned(world.waits(a_workload("small").with_sets(small).at(60)))
    assert admitted(plan) == ["small"]


def test_only_a_ready_cluster_gets_new_work() -> None:
    for state in ClusterState:
        world = rich(a_world().cluster("east", state=state).racks(1, 2).waits()).waits(a_workload())
        assert admitted(planned(world)) == (["job"] if state is ClusterState.READY else [])


def test_a_required_host_is_one_machine() -> None:
    world = east(1, 2).waits(a_workload().asking(2, 4).required("host"))
    assert where(world, planned(world), "job") == ["b0-r0-n0", "b0-r0-n0"]


def test_a_gang_wants_its_level_in_an_uneven_tree() -> None:
    world = rich(a_world().cluster("east").node("bare", ("", "")).racks(1, 2))
    plan = planned(world.waits(a_workload().asking(2).required("rack")))
    assert where(world, plan, "job") == ["b0-r0-n0", "b0-r0-n1"]


def test_the_pod_set_that_must_sit_together_is_placed_first() -> None:
    world = rich(a_world().cluster("east").racks(1, 3).racks(1, 1, block="b1"))
    world.runs("x", "team", {"b0-r0-n0": 4})
    loose = replace(a_pod_set(1), name="loose")
    together = replace(a_pod_set(2), name="together", topology_mode=TopologyMode.REQUIRED, topology_level="rack")
    plan = planned(world.waits(a_workload().with_sets(loose, together)))
    assert where(world, plan, "job") == ["b1-r0-n0", "b0-r0-n1", "b0-r0-n2"]


def test_a_pod_set_that_may_choose_leaves_the_only_flavor_to_one_that_may_not() -> None:
    world = a_world().cluster("east").node("h", ("b", "r"), {H100: 8}).node("a", ("b", "r"), {A100: 8})
    world.queue_of("team", Quota(H100, 8), Quota(A100, 8))
    sets = (PodSet("chooses", 1, 8, (H100, A100)), PodSet("needs", 1, 8, (H100,)))
    assert admitted(planned(world.waits(a_workload().in_queue("team").with_sets(*sets)))) == ["job"]


def test_one_that_sits_together_and_may_choose_gives_way_to_one_that_may_not_choose() -> None:
    world = a_world().cluster("east").node("h", ("b", "r"), {H100: 8}).node("a", ("b", "s"), {A100: 8})
    world.queue_of("team", Quota(H100, 8), Quota(A100, 8))
    together = PodSet("together", 1, 8, (H100, A100), topology_mode=TopologyMode.REQUIRED, topology_level="rack")
    sets = (together, PodSet("needs", 1, 8, (H100,)))
    assert admitted(planned(world.waits(a_workload().in_queue("team").with_sets(*sets)))) == ["job"]


def test_what_one_queue_lacks_for_two_pod_sets_is_not_said_of_another_that_has_it() -> None:
    world = a_world().cluster("east").racks(1, 4).queue("org", 64)
    world.queue_of("org/x", Quota(H100, 15, 0), Quota(A100, 0, 0)).queue_of("org/y", Quota(H100, 0), Quota(A100, 0, 0))
    sets = tuple(PodSet(name, 1, 8, (H100, A100)) for name in ("one", "two"))
    plan = planned(world.waits(*(a_workload(queue).in_queue(f"org/{queue}").with_sets(*sets) for queue in "xy")))
    assert admitted(plan) == ["y"]
    assert sentences(plan, "x") == ["org/x can never use more than 15 nvidia-h100-80gb, and 16 are asked for."]


def test_what_queues_with_as_much_left_lack_is_told_of_each_by_its_own_name() -> None:
    world = a_world().cluster("east").racks(1, 4).queue("org", 64)
    for name in "xy":
        world.queue_of(f"org/{name}", Quota(H100, 8, 0), Quota(A100, 0, 0))
    sets = tuple(PodSet(name, 1, 8, (H100, A100)) for name in ("one", "two"))
    plan = planned(world.waits(*(a_workload(queue).in_queue(f"org/{queue}").with_sets(*sets) for queue in "xy")))
    for name in "xy":
        told = f"org/{name} can never use more than 8 nvidia-h100-80gb, and 16 are asked for."
        assert sentences(plan, name) == [told]


def test_where_the_first_takes_what_only_the_last_could_use_the_other_way_round_is_tried() -> None:
    """Spread over the block, the pods that must sit together would take the CPU of the host with eight cards."""
    world = rich(a_world().cluster("east"))
    for name, cards, cpu in (("small", 2, 16_000), ("large", 8, 4_000), ("other", 4, 4_000)):
        world.node(name, ("b0", "r0"), {H100: cards}, cpu_milli=cpu)
    together = PodSet("together", 2, 1, (H100,), PodNeeds(cpu_milli=4_000), TopologyMode.REQUIRED, "block")
    heavy = PodSet("heavy", 2, 4, (H100,), PodNeeds(cpu_milli=2_000), TopologyMode.PREFERRED, "host")
    plan = planned(world.waits(a_workload().with_sets(together, heavy).spread()))
    assert where(world, plan, "job") == ["small", "small", "large", "other"]
