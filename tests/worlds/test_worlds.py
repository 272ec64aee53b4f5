"""What a planner is shown of described documents, and what the plan of them says."""

import itertools
from datetime import timedelta

import pytest
import yaml

from controlplane.core.demand import TopologyMode
from controlplane.core.ids import FlavorName
from controlplane.core.lifecycle import ClusterState
from controlplane.worlds.building import world_from
from controlplane.worlds.planning import plan
from controlplane.worlds.reading import read
from controlplane.worlds.sources import Source
from tests.worlds.described import A100, H100, LAB, NOW, cluster, document, planned, queue, running, workload, world


def test_groups_of_nodes_become_nodes_in_boxes() -> None:
    fast = {"count": 3, "name": "fast", "topology": [{"level": "block", "of": 2}, {"level": "rack", "of": 1}]}
    made = cluster("north", 3)
    made["spec"]["nodes"].append({**made["spec"]["nodes"][0], **fast})
    (pool,) = world(made).pools
    (north,) = pool.snapshot.clusters.values()
    assert north.levels == ("block", "rack", "host"), "an order that contradicts neither group"
    assert [(node.name, node.domains) for node in pool.snapshot.nodes.values()] == [
        ("north-0-0", ("", "rack-0-0", "north-0-0")),
        ("north-0-1", ("", "rack-0-0", "north-0-1")),
        ("north-0-2", ("", "rack-0-1", "north-0-2")),
        ("fast-0", ("block-1-0", "rack-1-0", "fast-0")),
        ("fast-1", ("block-1-0", "rack-1-1", "fast-1")),
        ("fast-2", ("block-1-1", "rack-1-2", "fast-2")),
    ]


def test_a_node_has_all_that_its_group_says() -> None:
    taints = [{"key": "nvidia.com/gpu"}, {"key": "team", "value": "x", "effect": "NoExecute"}]
    group = {
        "labels": {"zone": "a"}, "taints": taints, "pods": 30, "rdma": 4, "hugepages": "64Gi", "localStorage": "2Ti",
        "cordon": "new kernel",
    }  # fmt: skip
    (pool,) = world(cluster(count=1, group=group)).pools
    (node,) = pool.snapshot.nodes.values()
    assert (node.labels["zone"], node.labels["kubernetes.io/hostname"]) == ("a", "north-0")
    assert [(each.key, each.effect, each.is_for_devices) for each in node.taints] == [
        ("nvidia.com/gpu", "NoSchedule", True),
        ("team", "NoExecute", False),
    ]
    assert (node.cpu_milli, node.memory_bytes, node.pods, node.rdma) == (192_000, 2 * 2**40, 30, 4)
    assert (node.hugepages_bytes, node.local_storage_bytes) == (64 * 2**30, 2 * 2**40)
    assert (node.is_schedulable, node.cordon, node.owned) == (False, "new kernel", {FlavorName(H100): 8})


def test_a_cluster_has_what_its_agent_would_have_told() -> None:
    silent = cluster("north", state="suspect", inventoryAge="5m", cordon="moving", drain="", namespaces=["a"])
    (pool,) = world(silent, cluster("south"), queue("lab", namespace="vision")).pools
    north, south = pool.snapshot.clusters.values()
    assert (north.state, north.cordon, north.namespaces) == (ClusterState.SUSPECT, "moving", frozenset({"a"}))
    assert north.inventory_at == NOW - timedelta(minutes=5)
    assert (south.state, south.namespaces, south.inventory_at) == (ClusterState.READY, frozenset({"vision"}), NOW)


def test_what_runs_holds_its_nodes_and_its_quota() -> None:
    plan_of = planned(*LAB, cluster(count=2), running("a", {"north-0": 1}), workload("b", 2))
    assert [each.workload for each in plan_of.waits] == ["b"]
    assert "north has room for 1 of 2 pods of 8" in " ".join(why.sentence for why in plan_of.waits[0].reasons)
    used = {(each.queue, each.flavor): (each.used, each.after) for each in plan_of.shares}
    assert used["lab/speech", H100] == (8, 8)


def test_a_queue_is_entitled_to_its_fair_share_of_what_is_wanted_now() -> None:
    borrower = running("a", {f"north-{n}": 1 for n in range(4)})
    made = planned(*LAB, queue("lab/idle", 0), cluster(), borrower, workload("b", 1), workload("c", 2))
    entitled = {each.queue: each.entitled for each in made.shares if each.flavor == H100}
    assert entitled == {"lab": 32, "lab/vision": 16, "lab/speech": 16, "lab/idle": None}


def test_a_hard_budget_counts_what_was_spent_and_what_runs() -> None:
    budgets = [{"flavor": "*", "deviceHours": 100, "per": "month", "hard": True}]
    teams = (queue("lab/vision", 16), queue("lab/speech", 16))
    for hours, starts in ((75, 1), (76, 0)):  # eight devices have run for three hours, so that is 24 more
        lab = queue("lab", budgets=budgets, spent=[{"flavor": "*", "per": "month", "deviceHours": hours}])
        made = planned(lab, *teams, cluster(), running("a", {"north-0": 1}), workload("b"))
        assert len(made.starts) == starts, hours
    assert next(why.code for wait in made.waits for why in wait.reasons) == "budget-spent"


def test_facts_of_clusters_decide_where_work_may_go() -> None:
    facts = {"storage": ["nvme"], "data": ["s3://corpus"]}
    made = planned(*LAB, cluster("east"), cluster("west", facts=facts), workload("a", requires=facts))
    assert [place.cluster for start in made.starts for place in start.placements] == ["west"]


def test_pods_of_one_node_are_held_together_whatever_entries_name_it() -> None:
    place = [{"cluster": "north", "nodes": {"north-0": 1}}, {"cluster": "north", "nodes": {"north-0": 1, "north-1": 2}}]
    pod_set = {"name": "m", "replicas": 4, "devices": 2, "flavors": [{"name": H100}]}
    spec = running("a", {"north-0": 4}, podSets=[pod_set], placement=place)
    spec["spec"] |= {"owner": "ada", "attempts": 3, "state": "starting"}
    (pool,) = world(*LAB, cluster(), spec).pools
    (attempt,) = pool.snapshot.running.values()
    assert (attempt.owner, attempt.attempt, attempt.state) == ("ada", 3, "starting")
    assert [(each.amount, each.pods) for each in attempt.shares] == [(4, 2), (4, 2)]
    assert dict(attempt.charges) == {FlavorName(H100): 8}
    held = [node.held.get(FlavorName(H100), 0) for node in pool.snapshot.nodes.values()]
    pods = [node.pods_held for node in pool.snapshot.nodes.values()]
    assert (held, pods) == ([4, 4, 0, 0], [2, 2, 0, 0])


def test_what_waits_is_read_as_a_submit_reads_it() -> None:
    template = {
        "spec": {"containers": [{"name": "m", "image": "a/b:1", "resources": {"limits": {"nvidia.com/gpu": 4}}}]}
    }
    pods = {"name": "main", "replicas": 2, "topology": {"preferred": "rack"}, "template": template}
    asking = document("Workload", "a", {"queue": "lab/vision", "podSets": [pods], "priorityClass": "high"})
    (pool,) = world(*LAB, cluster(), cluster("south", flavor=A100), asking).pools
    (waiting,) = pool.snapshot.waiting.values()
    (pod_set,) = waiting.pod_sets
    assert (pod_set.devices, pod_set.flavors) == (4, (A100, H100)), "every flavor of that resource that is known"
    assert (pod_set.topology_mode, pod_set.topology_level) == (TopologyMode.PREFERRED, "rack")
    assert (waiting.priority, waiting.next_attempt, waiting.owner) == (10_000, 1, "somebody")


def test_a_job_manifest_waits_like_a_workload() -> None:
    container = {"name": "m", "image": "a/b:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    labels = {"muster.dev/queue": "lab.vision"}
    job = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "labels": labels},
        "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [container]}}},
    }  # fmt: skip
    (start,) = planned(*LAB, cluster(), job).starts
    assert (start.workload, start.queue, start.pods, start.charges) == ("j", "lab/vision", 2, {H100: 16})


def test_workloads_wait_in_the_order_of_the_files_unless_they_say_since_when() -> None:
    late = workload("late", submittedAt="2026-03-01T11:59:59.500000Z")
    early = workload("early", submittedAt="2026-02-01T00:00:00Z")
    waiting = world(*LAB, cluster(), late, workload("b"), workload("a"), early).pools[0].snapshot.waiting.values()
    assert [each.name for each in sorted(waiting, key=lambda each: each.submitted_at)] == ["early", "b", "a", "late"]


def test_a_start_says_cluster_node_flavor_and_ranks() -> None:
    pods = {"devices": 4, "topology": {"required": "rack"}}
    (start,) = planned(*LAB, cluster(), running("x", {"north-0": 1}), workload("a", 4, pods=pods)).starts
    (place,) = start.placements
    assert (place.cluster, place.pods) == ("north", 4)
    assert [(each.node, each.pods, each.flavor, each.units, each.ranks) for each in place.nodes] == [
        ("north-2", 2, H100, 8, "0-1"),
        ("north-3", 2, H100, 8, "2-3"),
    ]


def test_who_borrowed_has_to_leave_for_an_owner_and_what_it_frees_is_kept() -> None:
    made = planned(*LAB, cluster(count=4), running("x", {f"north-{n}": 1 for n in range(4)}), workload("a", 2))
    assert [(each.workload, each.asker, each.reason.code) for each in made.leaves] == [("x", "a", "reclaimed")]
    assert [(each.workload, each.cluster, each.units) for each in made.keeps] == [("a", "north", {H100: 16})]
    assert [each.workload for each in made.waits] == ["a"]
    after = {each.queue: each.after for each in made.shares if each.flavor == H100}
    assert (after["lab/speech"], after["lab/vision"]) == (0, 0)


def test_every_reason_is_told_the_nearest_first() -> None:
    clusters = [cluster(f"c{n}", 2, group={"cordon": "moving"}) for n in range(4)]
    (wait,) = planned(*LAB, *clusters, cluster("north", 2), running("x", {"north-0": 1}), workload("a", 2)).waits
    assert [why.code for why in wait.reasons] == ["not-enough-free", *["capacity-cordoned"] * 4], "north lacks one pod"


def test_pools_are_planned_apart_on_one_tree() -> None:
    documents = (*LAB, cluster("north", 2), cluster("south", 2, pool="batch"), workload("a", 2, pool="batch"))
    made = plan(world(*documents, running("x", {"north-0": 1, "north-1": 1}, at="lab/vision"))).pools
    assert [(each.pool, [start.workload for start in each.starts]) for each in made] == [
        ("batch", ["a"]),
        ("default", []),
    ]
    shares = {each.queue: (each.owns, each.used, each.after) for each in made[0].shares}
    assert shares["lab/vision"] == (16, 16, 32), "what runs in the other pool is charged too"


def test_a_policy_of_its_pool_is_obeyed() -> None:
    stingy = document("Policy", "default", {"admissionsMax": 1})
    made = planned(*LAB, cluster(), stingy, workload("a"), workload("b"))
    assert (made.policy_version, len(made.starts), made.left_over) == (1, 1, 1)
    assert planned(*LAB, cluster(), workload("a"), workload("b")).policy_version == 0


def test_the_world_says_what_time_it_is_unless_the_caller_does() -> None:
    text = yaml.safe_dump_all([document("World", "w", {"now": "2026-01-01T00:00:00Z"}), cluster()])
    members, present = read([Source("w.yaml", text)]), NOW + timedelta(days=1)
    assert world_from(members, None, present).now.isoformat() == "2026-01-01T00:00:00+00:00"
    assert world_from(members, NOW, present).now == NOW
    assert world_from(read([Source("w.yaml", yaml.safe_dump(cluster()))]), None, present).now == present


def test_the_plan_does_not_depend_on_the_order_of_documents() -> None:
    at = "2026-03-01T10:00:00Z"
    work = [workload(name, 2, at=path, submittedAt=at) for name, path in (("a", "lab/vision"), ("b", "lab/speech"))]
    documents = [*LAB, cluster("north", 2), cluster("south", 1), *work]
    plans = {plan(world(*shuffled)).model_dump_json() for shuffled in itertools.islice(_shuffles(documents), 40)}
    assert len(plans) == 1


def _shuffles(documents: list[dict[str, object]]) -> itertools.chain[tuple[dict[str, object], ...]]:
    """Every rotation of the list and of its reverse, and permutations of its end."""
    turned = [tuple(each[at:] + each[:at]) for each in (documents, documents[::-1]) for at in range(len(each))]
    ends = (tuple(documents[:-4]) + end for end in itertools.permutations(documents[-4:]))
    return itertools.chain(turned, ends)


@pytest.mark.parametrize("kind", ["Flavor", "Pool"])
def test_what_says_nothing_of_a_plan_is_taken_all_the_same(kind: str) -> None:
    assert planned(*LAB, cluster(), document(kind, "batch", {}), workload("a")).starts
