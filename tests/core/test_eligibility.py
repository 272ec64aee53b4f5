"""Where selectors and taints are what keeps a gang waiting, and what is said of it."""

from dataclasses import replace

from controlplane.core.capacity import Taint
from controlplane.core.cycle import explain, plan_cycle
from controlplane.core.demand import LabelRule, NodeRules, PodSet, Toleration
from controlplane.core.ids import WorkloadId
from controlplane.core.plan import Admit
from controlplane.core.policy import Policy
from tests.builders.core import H100, NOW, AWorld, a_workload, a_world

TOLERANT = NodeRules(tolerations=(Toleration("team", "Exists"),))


def fleet() -> AWorld:
    """Four nodes of eight: two in zone a, one of them tainted; two in zone b."""
    world = a_world().cluster("east").queue("team", 64)
    for number, zone in enumerate("aabb"):
        world.node(f"n{number}", labels={"zone": zone})
    return world.change_node("n0", taints=(Taint("team", "ml"),))


def asking(replicas: int, rules: NodeRules, devices: int = 8) -> AWorld:
    """The fleet with a gang that asks for such nodes."""
    flavors = (H100,) if devices else ()
    return fleet().waits(a_workload("job").with_sets(PodSet("main", replicas, devices, flavors, rules=rules)))


def nodes_of(world: AWorld) -> list[str]:
    """Where it starts."""
    snapshot = world.build()
    plan = plan_cycle(snapshot, Policy(), NOW)
    admits = [one for one in plan.decisions if isinstance(one, Admit)]
    return sorted({snapshot.nodes[pod.node].name for one in admits for pod in one.placements[0].pods})


def told(world: AWorld) -> list[str]:
    return [why.sentence() for why in explain(world.build(), Policy(), NOW, WorkloadId("job"))]


def test_a_gang_goes_to_nodes_that_its_rules_allow() -> None:
    assert nodes_of(asking(2, NodeRules(selector=(("zone", "b"),)))) == ["n2", "n3"]
    assert nodes_of(asking(3, NodeRules())) == ["n1", "n2", "n3"]
    assert nodes_of(asking(4, TOLERANT)) == ["n0", "n1", "n2", "n3"]
    either = NodeRules(terms=((LabelRule("zone", "In", ("a",)),), (LabelRule("zone", "DoesNotExist"),)))
    assert nodes_of(asking(1, either)) == ["n1"]
    assert nodes_of(asking(2, replace(either, tolerations=TOLERANT.tolerations))) == ["n0", "n1"]


def test_rules_that_could_never_be_met_are_said_with_how_many_nodes_they_leave() -> None:
    words = "and empty they would hold 1 of 2 pods of 8 nvidia-h100-80gb each."
    zone_a = told(asking(2, NodeRules(selector=(("zone", "a"),))))
    assert zone_a == [f"east has 1 nodes that its selector and taints allow, {words}"]
    assert told(asking(1, NodeRules(selector=(("zone", "c"),)), devices=0)) == [
        "east has 0 nodes that its selector and taints allow, and empty they would hold 0 of 1 pods of 0 flavor each."
    ]


def test_where_only_the_allowed_nodes_are_full_the_rules_are_what_is_in_the_way() -> None:
    world = asking(2, NodeRules(selector=(("zone", "b"),))).runs("other", "team", {"n2": 8})
    words = "and they have room for 1 of 2 pods of 8 nvidia-h100-80gb each."
    assert told(world) == [f"east has 2 nodes that its selector and taints allow, {words}"]


def test_where_all_nodes_are_full_the_rules_are_not_in_the_way() -> None:
    world = asking(2, NodeRules(selector=(("zone", "b"),))).runs("other", "team", {f"n{at}": 8 for at in range(4)})
    assert told(world) == ["east has room for 0 of 2 pods of 8 nvidia-h100-80gb each (0 free)."]


def test_reclaim_frees_only_nodes_that_the_asker_may_use() -> None:
    world = a_world().cluster("east").queue("org").queue("org/mine", 8).queue("org/theirs", 8)
    for number, zone in enumerate("ab"):
        world.node(f"n{number}", labels={"zone": zone})
    world.runs("old", "org/theirs", {"n1": 8}, minutes=1).runs("new", "org/theirs", {"n0": 8}, minutes=2)
    rules = NodeRules(selector=(("zone", "b"),))
    world.waits(a_workload("job").in_queue("org/mine").with_sets(PodSet("main", 1, 8, (H100,), rules=rules)))
    plan = plan_cycle(world.build(), Policy(), NOW)
    assert [decision.workload for decision in plan.decisions] == ["old", "job"]
