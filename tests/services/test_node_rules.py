"""Selectors, affinity, taints, pods, RDMA, huge pages and disk from an agent's report and a template to a placement."""

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from controlplane.contract.agent.inventory import NodeReport
from controlplane.contract.rest.workloads import WorkloadDocument
from controlplane.core.cycle import explain
from controlplane.core.facts.queries import FleetFilter, Scope
from controlplane.core.facts.tenancy import Binding, Principal, Role
from controlplane.core.records import World
from controlplane.services import attempt_batch
from controlplane.services.authz import Caller
from controlplane.services.documents import document_from
from controlplane.services.errors import Invalid
from controlplane.services.submission import Submission, Submitted, submit
from tests.api.bodies import IMAGE, workload
from tests.services.agents import Agent, node, plan, ready
from tests.services.planes import H100, Plane

ADMIN = Caller(Principal(1, "person", "root", (Binding(Role.PLATFORM_ADMIN),)), "request-1")
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
TEAM_TAINT = {"key": "team", "value": "ml", "effect": "NoSchedule"}


@pytest.fixture
def team(plane: Plane) -> Plane:
    plane.queue("team", nominal=64)
    return plane


def told(name: str, **more: object) -> NodeReport:
    """A node as its agent tells it."""
    usual: dict[str, object] = {"pods": 110, "rdma": 0, "hugepages_bytes": 0, "local_storage_bytes": 2**40}
    return node(name).model_copy(update={**usual, **more})


def asked(
    plane: Plane, name: str, *, pods: int = 1, asks: Mapping[str, object] | None = None, **spec: object
) -> Submitted:
    """Submit a gang of pods with these requests, by default eight devices each."""
    limits = {"nvidia.com/gpu": 8} if asks is None else dict(asks)
    container = {"name": "main", "image": IMAGE, "resources": {"limits": limits}}
    template: dict[str, Any] = {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}
    flavors = [{"name": H100}] if "nvidia.com/gpu" in limits else []
    body = workload(name, {"replicas": pods, "template": template, "flavors": flavors}, queue="team")
    document, manifest = document_from(body)
    assert isinstance(document, WorkloadDocument)
    with plane.uow() as uow:
        return submit(uow, ADMIN, Submission(document, manifest), lambda: str(uuid.uuid4()))


def nodes_of(plane: Plane, submitted: Submitted) -> list[str]:
    """Where its pods were placed."""
    rows = plane.rows(
        """SELECT node.name FROM hold JOIN node ON node.id = hold.node_id
           WHERE workload_id = CAST(:id AS uuid) AND released_at IS NULL ORDER BY node.name""",
        id=submitted.id,
    )
    return [row.name for row in rows]


def why_not(plane: Plane, submitted: Submitted) -> list[str]:
    """What it is told, from everything read anew."""
    reading = plane.tools.reader.read(plane.pool, None)
    world = World(plane.pool)
    world.apply(reading.changes)
    return [why.code.value for why in explain(world.freeze(), reading.policy, reading.now, submitted.id)]


def end(plane: Plane, agent: Agent, submitted: Submitted) -> None:
    """It runs to its end, as its agent tells it."""
    with plane.uow() as uow:
        attempt_batch.number(uow, {agent.cluster})
    agent.sync()
    agent.run(f"{submitted.id}.1")
    agent.finish(f"{submitted.id}.1")


def needs_of(submitted: Submitted) -> tuple[int, int, int]:
    needs = submitted.view.pod_sets[0].needs
    return needs.rdma, needs.hugepages_bytes, needs.local_storage_bytes


def held(plane: Plane, name: str) -> tuple[int, int, int]:
    (row,) = plane.rows(
        "SELECT rdma_held, hugepages_bytes_held, local_storage_bytes_held FROM node WHERE name = :name", name=name
    )
    return row.rdma_held, row.hugepages_bytes_held, row.local_storage_bytes_held


def test_pods_go_where_selector_affinity_and_taints_let_them(team: Plane) -> None:
    young_a = told("n1", labels={"zone": "a", "age": "3"}, taints=[GPU_TAINT])
    tainted_b = told("n2", labels={"zone": "b"}, taints=[GPU_TAINT, TEAM_TAINT])
    ready(team, "eu", young_a, tainted_b, told("n3", labels={"zone": "b", "age": "9"}))
    in_b = asked(team, "in-b", nodeSelector={"zone": "b"})
    terms = [{"matchExpressions": [{"key": "age", "operator": "Lt", "values": ["5"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    young = asked(team, "young", affinity={"nodeAffinity": required})
    too_old = asked(team, "too-old", nodeSelector={"zone": "a", "age": "9"})
    plan(team)
    assert (nodes_of(team, in_b), nodes_of(team, young), nodes_of(team, too_old)) == (["n3"], ["n1"], [])
    assert why_not(team, too_old) == ["nodes-not-eligible"]
    another = asked(team, "another")
    plan(team)
    assert why_not(team, another) == ["eligible-nodes-full"]
    tolerant = asked(team, "tolerant", tolerations=[{"key": "team", "operator": "Exists"}])
    plan(team)
    assert nodes_of(team, tolerant) == ["n2"]
    assert tolerant.view.pod_sets[0].nodes == "tolerating team"
    with team.uow() as uow:
        shown = uow.queries.workload(Scope(), young.id)
    assert shown is not None
    assert shown.pod_sets[0].nodes == "age < 5"


def test_a_node_for_devices_takes_no_pod_without_any(team: Plane) -> None:
    ready(team, "eu", told("n1", taints=[GPU_TAINT]))
    plain = asked(team, "plain", asks={"cpu": "1"})
    with_devices = asked(team, "with-devices")
    plan(team)
    assert (nodes_of(team, plain), nodes_of(team, with_devices)) == ([], ["n1"])


def test_labels_and_taints_that_change_are_heeded_by_a_planner_that_is_warm(team: Plane) -> None:
    agent = ready(team, "eu", told("n1", labels={"zone": "a"}))
    planner = team.planner()
    in_b = asked(team, "in-b", nodeSelector={"zone": "b"})
    planner.step()
    assert nodes_of(team, in_b) == []
    agent.report(told("n1", labels={"zone": "b"}, taints=[TEAM_TAINT]))
    planner.step()
    assert nodes_of(team, in_b) == []
    agent.report(told("n1", labels={"zone": "b"}))
    planner.step()
    assert nodes_of(team, in_b) == ["n1"]
    planner.let_go()


def test_rdma_huge_pages_and_disk_are_held_and_given_back_and_never_oversold(team: Plane) -> None:
    agent = ready(team, "eu", told("n1", rdma=4, hugepages_bytes=2**31, local_storage_bytes=10**10))
    needs = {"nvidia.com/gpu": 1, "rdma/hca": 2, "hugepages-2Mi": "1Gi", "ephemeral-storage": "1G"}
    first, third = (
        asked(team, "first", pods=2, asks=needs),
        asked(team, "third", asks={"nvidia.com/gpu": 1, "rdma/hca": 1}),
    )
    disk = asked(team, "disk", asks={"cpu": "1", "ephemeral-storage": "9G"})
    assert needs_of(first) == (2, 2**30, 10**9)
    planner = team.planner()
    planner.step()
    assert (nodes_of(team, first), nodes_of(team, third), nodes_of(team, disk)) == (["n1", "n1"], [], [])
    assert held(team, "n1") == (4, 2**31, 2 * 10**9)
    end(team, agent, first)
    team.wake()
    planner.step()
    assert (nodes_of(team, third), nodes_of(team, disk)) == (["n1"], ["n1"])
    assert held(team, "n1") == (1, 0, 9 * 10**9)
    planner.let_go()


def test_a_kubelet_gets_no_more_pods_than_it_takes(team: Plane) -> None:
    agent = ready(team, "eu", told("n1", pods=3))
    planner = team.planner()
    two, one, more = (asked(team, name, pods=pods, asks={}) for name, pods in (("two", 2), ("one", 1), ("more", 1)))
    planner.step()
    assert [len(nodes_of(team, each)) for each in (two, one, more)] == [2, 1, 0]
    with_devices = asked(team, "with-devices", asks={"nvidia.com/gpu": 1})
    team.wake()
    planner.step()
    assert nodes_of(team, with_devices) == []
    end(team, agent, two)
    team.wake()
    planner.step()
    assert nodes_of(team, more) + nodes_of(team, with_devices) == ["n1", "n1"]
    planner.let_go()


def test_foreign_pods_that_came_first_take_the_place_of_ours(team: Plane) -> None:
    agent = ready(team, "eu", told("n1", pods=3))
    planner = team.planner()
    asked(team, "two", pods=2, asks={})
    planned = planner.plan()
    assert planned is not None
    agent.report(told("n1", pods=1))
    planner.commit(planned)
    assert team.rows("SELECT FROM hold") == []
    planner.let_go()


def test_a_node_is_shown_with_what_it_has_what_is_held_and_what_keeps_pods_out(team: Plane) -> None:
    ready(team, "eu", told("n1", rdma=4, pods=9, labels={"zone": "a"}, taints=[TEAM_TAINT]), node("n2"))
    tolerations = [{"key": "team", "operator": "Exists"}]
    asked(
        team,
        "gang",
        pods=2,
        asks={"nvidia.com/gpu": 1, "rdma/hca": 1},
        nodeSelector={"zone": "a"},
        tolerations=tolerations,
    )
    plan(team)
    with team.uow() as uow:
        (shown,) = uow.queries.nodes(FleetFilter(node="n1"), 0, 10).items
        listed = uow.queries.nodes(FleetFilter(), 0, 10).items
    assert (shown.pods_held, shown.pods, shown.rdma_held, shown.rdma) == (2, 9, 2, 4)
    assert (shown.labels, shown.taints) == ({"zone": "a"}, [TEAM_TAINT])
    assert [each.labels for each in listed] == [{}, {}]
    assert (listed[1].pods, listed[1].rdma, listed[1].local_storage_bytes) == (110, None, None)


def test_what_an_older_agent_does_not_tell_is_not_what_is_short(team: Plane) -> None:
    ready(team, "eu", node("n1"))
    needs = {"nvidia.com/gpu": 8, "rdma/hca": 8, "hugepages-1Gi": "64Gi", "ephemeral-storage": "1Ti"}
    gang = asked(team, "gang", asks=needs)
    plan(team)
    assert nodes_of(team, gang) == ["n1"]


def test_preferred_affinity_is_not_obeyed_and_said_to_be_so(team: Plane) -> None:
    ready(team, "eu", told("n1"))
    preference = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
    wish = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    wishing = asked(team, "wishing", affinity=wish)
    assert any("preferred" in warning.detail for warning in wishing.warnings)
    assert wishing.view.pod_sets[0].nodes == ""
    plan(team)
    assert nodes_of(team, wishing) == ["n1"]


@pytest.mark.parametrize(
    ("spec", "slug"),
    [
        ({"nodeSelector": {"feature.node.kubernetes.io/cpu-cpuid.AVX512F": "true"}}, "pod-policy"),
        ({"nodeSelector": {"zone": 7}}, "invalid-value"),
        ({"nodeSelector": ["zone"]}, "invalid-value"),
        ({"tolerations": [{"key": "team", "operator": "Maybe"}]}, "invalid-value"),
        ({"tolerations": "all"}, "invalid-value"),
        ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}, "invalid-value"),
        ({"terms": [{"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["a"]}]}]}, "invalid-value"),
        ({"terms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": []}]}]}, "invalid-value"),
        ({"terms": [{"matchExpressions": [{"key": "age", "operator": "Gt", "values": ["1", "2"]}]}]}, "invalid-value"),
        ({"terms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}, "pod-policy"),
        ({"terms": [{"matchExpressions": []}] * 65}, "too-long"),
    ],
)
def test_rules_that_mean_nothing_are_refused(team: Plane, spec: dict[str, Any], slug: str) -> None:
    if "terms" in spec:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": spec["terms"]}}
        spec = {"affinity": {"nodeAffinity": required}}
    with pytest.raises(Invalid) as refused:
        asked(team, "odd", **spec)
    assert refused.value.slug == slug


@pytest.mark.parametrize(
    ("spec", "slug"),
    [
        ({"tolerations": [{"key": "team", "operator": "Exists", "effect": "NoScheduling"}]}, "invalid-value"),
        ({"tolerations": [{"key": "team", "operator": "Exists", "value": "ml"}]}, "invalid-value"),
        ({"tolerations": [{"key": f"team-{at}", "operator": "Exists"} for at in range(257)]}, "too-long"),
        ({"nodeSelector": {f"team-{at}": "ml" for at in range(257)}}, "too-long"),
        ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "age", "operator": "Gt", "values": ["old"]}]}]}}}}, "invalid-value"),
    ],
)  # fmt: skip
def test_rules_that_no_cluster_would_take_or_that_are_endless_are_refused(
    team: Plane, spec: dict[str, Any], slug: str
) -> None:
    with pytest.raises(Invalid) as refused:
        asked(team, "gang", **spec)
    assert {fault.slug for fault in refused.value.faults} == {slug}
