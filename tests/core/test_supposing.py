"""What if it asked otherwise: the answer is what the next cycle would do with it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from controlplane.core.demand import PodSet, TopologyMode
from controlplane.core.ids import AttemptNumber, QueueId, WorkloadId
from controlplane.core.plan import Admit
from controlplane.core.policy import Policy
from controlplane.core.reasons import ReasonCode
from controlplane.core.supposing import (
    ImpossibleSupposition,
    OtherClustersMax,
    OtherFlavors,
    OtherPriority,
    OtherQueue,
    OtherReplicas,
    OtherTopology,
    Supposition,
    supposed,
    supposing,
    text_of,
    what_if,
)
from tests.builders.core import A100, H100, NOW, AWorld, a_workload, a_world

TEAMS = {"org": 64, "org/a": 0, "org/b": 0}


def teams(world: AWorld) -> AWorld:
    for path, nominal in TEAMS.items():
        world.queue(path, nominal)
    return world


def asked(world: AWorld, *suppositions: Supposition) -> list[str]:
    """The clusters that `job` would start in, or the codes of what would be in its way."""
    found = what_if(world.build(), Policy(), NOW, WorkloadId("job"), suppositions)
    if isinstance(found, Admit):
        return [f"cluster {part.cluster}" for part in found.placements]
    return [each.code.value for each in found]


def two_nodes_and_two_that_want_both() -> AWorld:
    world = teams(a_world().cluster("c0").racks(1, 2))
    first = a_workload("first").in_queue("org/a").asking(2).with_priority(5)
    return world.waits(first, a_workload("job").in_queue("org/a").asking(2).at(1))


def test_a_priority_above_who_comes_first_would_start_it_and_one_below_would_not() -> None:
    world = two_nodes_and_two_that_want_both()
    assert asked(world) == [ReasonCode.NOT_ENOUGH_FREE]
    assert asked(world, OtherPriority(6)) == ["cluster 1"]
    assert asked(world, OtherPriority(4)) == [ReasonCode.NOT_ENOUGH_FREE]


def test_with_another_priority_it_stays_the_workload_that_it_is() -> None:
    world = two_nodes_and_two_that_want_both()
    assert asked(world, OtherPriority(5)) == [ReasonCode.NOT_ENOUGH_FREE], "the younger of equals"
    older = a_workload("job").in_queue("org/a").asking(2).at(-1)
    assert asked(world.waits(older), OtherPriority(5)) == ["cluster 1"], "it keeps its age"


def test_whatever_takes_another_submit_comes_after_its_equals() -> None:
    world = two_nodes_and_two_that_want_both()
    world.waits(a_workload("job").in_queue("org/a").asking(3).at(-1))
    assert asked(world, OtherPriority(5), OtherReplicas(2)) == [ReasonCode.NOT_ENOUGH_FREE]
    assert asked(world, OtherPriority(6), OtherReplicas(2)) == ["cluster 1"]


def test_another_flavor_starts_it_where_that_one_is_free() -> None:
    world = a_world().queue_of("team").cluster("c0").node("full", ("b0", "r0"), {H100: 8}, held={H100: 8})
    world.cluster("c1").node("free", ("b1", "r0"), {A100: 8})
    world.queue("team", 16).waits(a_workload("job"))
    assert asked(world, OtherFlavors((A100,)))[0] == ReasonCode.QUOTA_BEYOND_POTENTIAL, "the queue has none of it"
    world.queue_of("team", *world.queues["team"].quotas, replace(world.queues["team"].quotas[0], flavor=A100))
    world.waits(a_workload("job"))
    assert asked(world, OtherFlavors((H100, A100))) == ["cluster 2"]


def test_fewer_pods_start_where_not_all_have_room() -> None:
    world = teams(a_world().cluster("c0").racks(1, 3)).waits(a_workload("job").in_queue("org/a").asking(4))
    assert asked(world, OtherReplicas(4)) == [ReasonCode.CLUSTER_TOO_SMALL]
    assert asked(world, OtherReplicas(3)) == ["cluster 1"]


def test_a_level_that_is_only_preferred_starts_over_two_racks() -> None:
    world = teams(a_world().cluster("c0").racks(2, 2))
    world.waits(a_workload("job").in_queue("org/a").asking(3).required("rack"))
    assert asked(world) == [ReasonCode.TOPOLOGY_TOO_SMALL]
    assert asked(world, OtherTopology(TopologyMode.PREFERRED, "rack")) == ["cluster 1"]
    assert asked(world, OtherTopology(TopologyMode.NONE)) == ["cluster 1"]


def test_two_clusters_of_one_network_hold_what_neither_does() -> None:
    world = teams(a_world())
    for name in ("c0", "c1"):
        world.cluster(name, network_domain="lan").racks(1, 1, block=name)
    sets = (PodSet("one", 1, 8, (H100,)), PodSet("two", 1, 8, (H100,)))
    world.waits(a_workload("job").in_queue("org/a").with_sets(*sets))
    assert "cluster" not in asked(world)[0]
    assert asked(world, OtherClustersMax(2)) == ["cluster 1", "cluster 2"]


def test_in_another_queue_its_limits_and_its_namespace_count() -> None:
    world = a_world().cluster("c0").racks(1, 1).queue("org", 8)
    world.queue_of("org/a", replace(world.queues["org"].quotas[0], nominal=0, borrow=0), namespace="team")
    world.queue_of("org/b", replace(world.queues["org"].quotas[0], nominal=8), namespace="elsewhere")
    world.queue_of("org/c", replace(world.queues["org"].quotas[0], nominal=8), namespace="team")
    world.waits(a_workload("job").in_queue("org/a"))
    number = {path: queue.id for path, queue in world.queues.items()}
    assert asked(world) == [ReasonCode.QUOTA_BEYOND_POTENTIAL]
    assert asked(world, OtherQueue(number["org/b"], "org/b")) == [ReasonCode.CLUSTER_WITHOUT_NAMESPACE]
    assert asked(world, OtherQueue(number["org/c"], "org/c")) == ["cluster 1"]


def test_several_things_are_supposed_together() -> None:
    world = two_nodes_and_two_that_want_both()
    world.waits(a_workload("job").in_queue("org/a").asking(3))
    assert asked(world, OtherPriority(6)) == [ReasonCode.CLUSTER_TOO_SMALL]
    assert asked(world, OtherReplicas(2)) == [ReasonCode.NOT_ENOUGH_FREE]
    assert asked(world, OtherPriority(6), OtherReplicas(2)) == ["cluster 1"]


def test_another_submit_leaves_earmark_back_off_and_old_place_behind() -> None:
    job = a_workload("job").having(
        not_before=NOW + timedelta(hours=1), next_attempt=AttemptNumber(3), is_repair=True, disturbances=2
    )
    world = a_world().queue("team", 8).cluster("c0").racks(1, 1).waits(job).keeps("job", {"b0-r0-n0": 8})
    snapshot = supposing(world.build(), WorkloadId("job"), (OtherReplicas(1),), NOW)
    new = snapshot.waiting[WorkloadId("job")]
    assert snapshot.earmarks == {}
    assert (new.not_before, new.next_attempt, new.is_repair, new.submitted_at) == (None, 1, False, NOW)
    assert asked(world, OtherReplicas(1)) == ["cluster 1"], "nobody else waits for the room that was kept"


def test_what_no_submit_would_take_cannot_be_supposed() -> None:
    sliced = PodSet("main", 4, 8, (H100,), slice_size=2, slice_level="rack")
    leader = PodSet("head", 1, 0, (), with_pod_set="main")
    workload = a_workload("job").with_sets(sliced, leader).build(QueueId(1))
    for impossible in (
        OtherReplicas(3, "main"),
        OtherReplicas(2),  # of which?
        OtherReplicas(2, "tail"),
        OtherFlavors((A100,), "head"),
        OtherFlavors(("amd-mi300x-192gb",)),  # type: ignore[arg-type]  # a name is a name
        OtherTopology(TopologyMode.REQUIRED, "rack", "head"),
    ):
        with pytest.raises(ImpossibleSupposition):
            supposed(workload, (impossible,), NOW)
    changed = supposed(workload, (OtherTopology(TopologyMode.REQUIRED, "block"),), NOW)
    assert [each.topology_level for each in changed.pod_sets] == ["block", ""], "a leader goes where its group is"


def test_an_elastic_set_starts_with_no_more_than_is_supposed() -> None:
    elastic = PodSet("main", 8, 8, (H100,), min_replicas=4)
    workload = a_workload("job").with_sets(elastic).build(QueueId(1))
    (main,) = supposed(workload, (OtherReplicas(2),), NOW).pod_sets
    assert (main.replicas, main.least) == (2, 2)
    (main,) = supposed(workload, (OtherReplicas(6),), NOW).pod_sets
    assert (main.replicas, main.least) == (6, 4)


def test_suppositions_are_written_as_people_ask_them() -> None:
    assert [
        text_of(each)
        for each in (
            OtherPriority(600),
            OtherQueue(QueueId(7), "org/a"),
            OtherFlavors((H100, A100)),
            OtherReplicas(4, "trainer"),
            OtherTopology(TopologyMode.PREFERRED, "rack"),
            OtherTopology(TopologyMode.NONE, "", "trainer"),
            OtherClustersMax(2),
        )
    ] == [
        "priority=600", "queue=org/a", f"flavor={H100},{A100}", "replicas=trainer/4", "topology=preferred:rack",
        "topology=trainer/none", "clusters.max=2",
    ]  # fmt: skip
