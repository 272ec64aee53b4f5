"""What clusters must have, and gangs that may be divided over several of them."""

from dataclasses import replace

import pytest

from controlplane.core.demand import PodNeeds, PodSet, StrategyName, TopologyMode
from controlplane.core.lifecycle import ClusterState
from controlplane.core.plan import Admit
from controlplane.core.tenancy import Quota
from tests.builders.core import A100, H100, AWorkload, AWorld, a_pod_set, a_workload, a_world
from tests.builders.plans import admitted, planned, sentences, where


def rich(world: AWorld) -> AWorld:
    return world.queue_of("team", Quota(H100, 10_000), Quota(A100, 10_000))


def three(first: int = 2, second: int = 3, third: int = 4, domain: str = "wan") -> AWorld:
    """Three clusters of one rack each; `domain` joins them."""
    world = a_world()
    for number, nodes in enumerate((first, second, third)):
        world.cluster(f"c{number}", network_domain=domain).racks(1, nodes, block=f"b{number}")
    return rich(world)


def sliced(replicas: int, size: int = 1, **changes: object) -> PodSet:
    made = replace(a_pod_set(replicas), slice_size=size, slice_level="host" if size == 1 else "rack")
    return replace(made, **changes)  # type: ignore[arg-type]  # a test names real fields


def divided(*sets: PodSet, most: int = 2) -> AWorkload:
    return a_workload().with_sets(*sets).having(clusters_max=most)


def parts(world: AWorld, workload: AWorkload) -> dict[str, list[int]]:
    """Indexes of the pods in each cluster."""
    plan = planned(world.waits(workload))
    decision = next((each for each in plan.decisions if isinstance(each, Admit)), None)
    placements = () if decision is None else decision.placements
    return {world.clusters[each.cluster].name: [pod.index for pod in each.pods] for each in placements}


def test_a_cluster_must_have_what_is_required() -> None:
    world = rich(a_world().cluster("west").racks(1, 2).cluster("east", facts=frozenset({"storage/nvme"})).racks(1, 2))
    world.waits(a_workload().having(requires=("storage/nvme",)), a_workload("no").having(requires=("data/s3://x",)))
    plan = planned(world)
    assert admitted(plan) == ["job"]
    assert where(world, plan, "job") == ["b0-r1-n0"]
    assert sorted(sentences(plan, "no")) == [
        "east does not have data/s3://x, which the workload requires.",
        "west does not have data/s3://x, which the workload requires.",
    ]


def test_slices_that_no_cluster_holds_go_into_the_fewest_that_do() -> None:
    found = parts(three(), divided(sliced(6), most=3))
    assert len(found) == 2
    assert sorted(index for indexes in found.values() for index in indexes) == list(range(6))
    assert len(parts(three(), divided(sliced(8), most=3))) == 3


def test_ranks_go_on_from_one_cluster_to_the_next() -> None:
    assert parts(three(2, 2, 0), divided(sliced(4))) == {"c0": [0, 1], "c1": [2, 3]}


def test_a_gang_that_fits_into_one_cluster_is_not_divided() -> None:
    assert parts(three(), divided(sliced(4), most=3)) == {"c2": [0, 1, 2, 3]}


def test_without_leave_nothing_is_divided() -> None:
    assert parts(three(), divided(sliced(6), most=1)) == {}


def test_no_more_clusters_than_allowed() -> None:
    assert parts(three(), divided(sliced(9), most=2)) == {}
    assert len(parts(three(), divided(sliced(9), most=3))) == 3


@pytest.mark.parametrize("domains", [("", "", ""), ("a", "b", "c"), ("a", "", "b")])
def test_clusters_that_share_no_network_domain_take_no_gang_together(domains: tuple[str, str, str]) -> None:
    world = three()
    for cluster, domain in zip(list(world.clusters), domains, strict=True):
        world.clusters[cluster] = replace(world.clusters[cluster], network_domain=domain)
    plan = planned(world.waits(divided(sliced(6))))
    assert sentences(plan, "job")[0] == (
        "No 2 clusters of one network domain have room for all of it together:"
        " of 3 that could hold a part, 0 share one."
    )


def test_whole_pod_sets_are_pieces() -> None:
    first, second = a_pod_set(3), replace(a_pod_set(3), name="second")
    found = parts(three(3, 3, 0), divided(first, second))
    assert found == {"c0": [0, 1, 2], "c1": [0, 1, 2]}


def test_a_pod_set_without_slices_is_never_torn_apart() -> None:
    assert parts(three(), divided(a_pod_set(6))) == {}


def test_a_pod_set_that_needs_one_domain_is_never_torn_apart() -> None:
    together = sliced(6, topology_mode=TopologyMode.REQUIRED, topology_level="block")
    assert parts(three(), divided(together)) == {}


def test_a_leader_goes_where_its_group_goes() -> None:
    group, leader = a_pod_set(2), PodSet("leader", 1, 8, (H100,), with_pod_set="main")
    other = replace(a_pod_set(3), name="other")
    world = three(3, 3, 0)
    plan = planned(world.waits(divided(leader, group, other)))
    (decision,) = [each for each in plan.decisions if isinstance(each, Admit)]
    sets = [sorted({pod.pod_set for pod in each.pods}) for each in decision.placements]
    assert sorted(sets) == [["leader", "main"], ["other"]]


def test_slices_stay_whole_in_every_cluster() -> None:
    assert parts(three(3, 3, 0), divided(sliced(4, 2))) == {"c0": [0, 1], "c1": [2, 3]}
    assert parts(three(3, 3, 0), divided(sliced(6, 2))) == {}


def test_all_slices_are_of_one_flavor() -> None:
    world = rich(a_world())
    world.cluster("h", network_domain="wan").racks(1, 2).racks(1, 2, flavor=A100, block="b9")
    world.cluster("a", network_domain="wan").racks(1, 2, flavor=A100, block="b1")
    plan = planned(world.waits(divided(sliced(4, flavors=(H100, A100)))))
    (decision,) = [each for each in plan.decisions if isinstance(each, Admit)]
    assert decision.charges == ((A100, 32),)


def test_what_cpu_has_no_room_for_in_one_cluster_goes_to_the_next() -> None:
    world = three(3, 3, 0)
    world.change_node("b0-r0-n0", cpu_milli_held=60_000)
    found = parts(world, divided(sliced(5, needs=PodNeeds(cpu_milli=16_000))))
    assert {name: len(indexes) for name, indexes in found.items()} == {"c0": 2, "c1": 3}


def test_an_elastic_pod_set_grows_over_its_clusters() -> None:
    assert {name: len(at) for name, at in parts(three(2, 3, 0), divided(sliced(9, min_replicas=4))).items()} == {
        "c0": 2,
        "c1": 3,
    }


def test_a_cluster_that_takes_nothing_new_takes_no_piece() -> None:
    world = three(2, 2, 0)
    first = min(world.clusters)
    world.clusters[first] = replace(world.clusters[first], state=ClusterState.SUSPECT)
    assert parts(world, divided(sliced(4))) == {}


@pytest.mark.parametrize("strategy", StrategyName)
def test_quota_bounds_all_pieces_together(strategy: StrategyName) -> None:
    world = three(2, 2, 0)
    world.queue("team", 24)
    plan = planned(world.waits(divided(sliced(4)).having(strategy=strategy)))
    assert admitted(plan) == []
    assert sentences(plan, "job")[0].startswith("team can never use more than 24")
