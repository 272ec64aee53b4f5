"""A gang over two clusters: told to both agents, started when both are prepared, else given back whole."""

import json
from typing import Any

import pytest

from agents.kube import manifests
from controlplane.contract.agent.attempts import ApplyBody
from controlplane.contract.rest.workloads import WorkloadDocument
from controlplane.core.facts.queries import Scope, WorkloadFilter
from controlplane.core.facts.tenancy import Binding, Principal, Role
from controlplane.core.ids import WorkloadId
from controlplane.services import queries
from controlplane.services.authz import Caller
from controlplane.services.documents import document_from
from controlplane.services.submission import Submission, submit
from tests.api.bodies import IMAGE, template
from tests.services.agents import Agent, node, plan, ready
from tests.services.planes import H100, Plane

ADMIN = Caller(Principal(1, "person", "root", (Binding(Role.PLATFORM_ADMIN),)), "request-1")
GANG = "0192f3a0-0000-7000-8000-000000000001"


def gang(pods: int = 4, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON as people send it
    pod_set = {"name": "main", "replicas": pods, "devices": 8, "flavors": [{"name": H100}], "template": template()}
    pod_set["topology"] = {"slices": {"size": 1, "required": "host"}}
    spec = {"queue": "team", "podSets": [pod_set], "clusters": {"max": 2}, **changes}
    return {"apiVersion": "muster.dev/v1", "kind": "Workload", "metadata": {"name": "gang"}, "spec": spec}


@pytest.fixture
def agents(plane: Plane) -> list[Agent]:
    """Two clusters of two nodes each, whose pods reach each other."""
    made = [ready(plane, name, node(f"{name}-1"), node(f"{name}-2")) for name in ("east", "west")]
    plane.do("UPDATE cluster SET spec = CAST(:spec AS jsonb)", spec=json.dumps({"networkDomain": "wan"}))
    plane.queue("team", nominal=32)
    return made


def submitted(plane: Plane, value: dict[str, Any]) -> str:
    document, manifest = document_from(value)
    assert isinstance(document, WorkloadDocument)
    with plane.uow() as uow:
        submit(uow, ADMIN, Submission(document, manifest), lambda: GANG)
    plan(plane)
    return GANG


def told(agents: list[Agent]) -> list[tuple[str, ApplyBody]]:
    found = []
    for agent in agents:
        agent.sync()
        body = agent.wanted[agent.only()].apply
        assert body is not None
        found.append((agent.only(), body))
    return found


def test_the_parts_without_rank_zero_are_told_where_it_is_if_its_cluster_says_how(
    plane: Plane, agents: list[Agent]
) -> None:
    said = {"networkDomain": "wan", "memberAddress": "{host}.{service}.{namespace}.svc.east.example"}
    plane.do("UPDATE cluster SET spec = CAST(:spec AS jsonb) WHERE name = 'east'", spec=json.dumps(said))
    submitted(plane, gang())
    first, second = told(agents)
    inside = manifests.master_address(agents[0].wanted[first[0]])
    assert second[1].environment["MUSTER_MASTER_ADDR"] == f"{inside}.east.example", "its own name there, and the zone"
    assert manifests.master_address(agents[1].wanted[second[0]]) == f"{inside}.east.example"
    assert "MUSTER_MASTER_ADDR" not in first[1].environment


def test_a_cluster_that_says_nothing_gives_others_no_address(plane: Plane, agents: list[Agent]) -> None:
    submitted(plane, gang())
    (_, (name, _)) = told(agents)
    assert manifests.master_address(agents[1].wanted[name]) == ""


def attempt_state(plane: Plane) -> tuple[str, str | None]:
    row = plane.rows("SELECT state, outcome FROM attempt ORDER BY attempt DESC LIMIT 1")[0]
    return row.state, row.outcome


def test_each_agent_is_told_its_part_of_one_gang(plane: Plane, agents: list[Agent]) -> None:
    submitted(plane, gang())
    (first, second) = [body for _, body in told(agents)]
    assert [[pin.index for pin in body.pins] for body in (first, second)] == [[0, 1], [2, 3]]
    assert [[pin.rank for pin in body.pins] for body in (first, second)] == [[0, 1], [2, 3]]
    assert {body.world_size for body in (first, second)} == {4}
    assert [[(each.replicas, each.kind) for each in body.pod_sets] for body in (first, second)] == [
        [(2, "Job")],
        [(2, "Pods")],
    ]
    [row] = plane.rows("SELECT sum(amount) AS held, count(DISTINCT cluster_id) AS clusters FROM hold")
    assert (int(row.held), row.clusters) == (32, 2)
    assert plane.rows("SELECT sum(pending) AS pending FROM account")[0].pending == 32


def test_nothing_starts_before_everything_is_prepared_everywhere(plane: Plane, agents: list[Agent]) -> None:
    submitted(plane, gang())
    names = [name for name, _ in told(agents)]
    agents[0].prepare(names[0])
    assert [agents[0].kinds[names[0]], attempt_state(plane)[0]] == [["apply"], "placed"]
    agents[1].prepare(names[1])
    agents[0].sync()
    assert [agent.kinds[name] for agent, name in zip(agents, names, strict=True)] == [["apply", "start"]] * 2
    agents[0].start(names[0])
    assert (plane.state(GANG), attempt_state(plane)[0]) == ("reserved", "starting")
    agents[1].start(names[1])
    assert (plane.state(GANG), attempt_state(plane)[0]) == ("running", "running")
    for agent, name in zip(agents, names, strict=True):
        agent.finish(name)
    assert plane.state(GANG) == "succeeded"


def test_what_one_cluster_refuses_is_given_back_whole_and_planned_again(plane: Plane, agents: list[Agent]) -> None:
    submitted(plane, gang())
    names = [name for name, _ in told(agents)]
    agents[0].prepare(names[0])
    rejection = {"code": "foreign-pods", "facts": {"amount": 1, "flavor": H100, "node": "west-1"}, "nodes": ["west-1"]}
    agents[1].sync(attempts=[agents[1].told(names[1], "rejected", rejection=rejection)])
    agents[0].sync()
    assert agents[0].kinds[names[0]][-1] == "tombstone", "the other part goes, too, and it never started"
    assert "start" not in agents[0].kinds[names[0]]
    for agent, name in zip(agents, names, strict=True):
        agent.bury(name)
    assert (plane.state(GANG), attempt_state(plane)) == ("pending", ("ended", "voided"))
    assert plane.rows("SELECT coalesce(sum(held), 0) AS held FROM node_flavor")[0].held == 0


def test_a_part_that_lapses_while_it_starts_takes_the_other_with_it(plane: Plane, agents: list[Agent]) -> None:
    submitted(plane, gang())
    names = [name for name, _ in told(agents)]
    for agent, name in zip(agents, names, strict=True):
        agent.prepare(name)
    agents[0].start(names[0])
    passed = {"code": "budget-passed", "facts": {"goal": "bound", "limit": 600}}
    agents[1].sync(attempts=[agents[1].told(names[1], "rejected", rejection=passed)])
    agents[0].sync()
    assert agents[0].kinds[names[0]][-1] == "tombstone"
    for agent, name in zip(agents, names, strict=True):
        agent.bury(name)
    assert attempt_state(plane)[0] == "ended"
    plane.do("UPDATE workload SET not_before = NULL")  # its back-off has passed
    plan(plane)
    assert plane.state(GANG) == "reserved"
    assert plane.rows("SELECT attempts_made AS made FROM workload")[0].made == 2


def test_clusters_of_two_network_domains_take_no_gang_together(plane: Plane, agents: list[Agent]) -> None:
    plane.do("UPDATE cluster SET spec = jsonb_build_object('networkDomain', name)")
    submitted(plane, gang())
    assert plane.state(GANG) == "pending"
    reasons = plane.rows("SELECT reasons FROM workload")[0].reasons
    assert reasons[0]["code"] == "clusters-not-together"


def test_an_elastic_gang_is_written_told_and_charged_with_the_pods_that_it_got(
    plane: Plane, agents: list[Agent]
) -> None:
    value = gang(9, clusters={"max": 1})
    value["spec"]["podSets"][0]["minReplicas"] = 1
    submitted(plane, value)
    with plane.uow() as uow:
        [line] = uow.queries.workloads(Scope(None), WorkloadFilter(), None, 10).items
    assert (line.pods, line.devices) == (2, 16)
    agents[0].sync()
    name = agents[0].only()
    body = agents[0].wanted[name].apply
    assert body is not None
    assert (body.world_size, len(body.pins), body.pod_sets[0].replicas) == (2, 2, 2)
    assert plane.rows("SELECT sum(pending) AS pending FROM account")[0].pending == 16
    agents[0].run(name)
    assert (plane.state(GANG), attempt_state(plane)[0]) == ("running", "running")
    agents[0].finish(name)
    assert plane.state(GANG) == "succeeded"
    assert plane.rows("SELECT coalesce(sum(held), 0) AS held FROM node_flavor")[0].held == 0


def test_what_a_workload_asks_of_clusters_and_nodes_is_stored_read_and_shown(plane: Plane, agents: list[Agent]) -> None:
    plane.do(
        "UPDATE cluster SET spec = CAST(:spec AS jsonb) WHERE name = 'west'",
        spec=json.dumps({"facts": {"storage": ["nvme"], "data": ["s3://corpus"]}}),
    )
    value = gang(2, clusters={}, requires={"storage": ["nvme"], "data": ["s3://corpus"]}, strategy="compact")
    bare = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": IMAGE}]}}
    leader = {"name": "leader", "devices": 0, "template": bare, "topology": {"with": "main"}}
    main = value["spec"]["podSets"][0]
    main |= {"flavors": [{"name": H100}, {"name": "nvidia-a100-80gb", "speed": 480}]}
    main["topology"] = {"preferred": "rack", "slices": {"size": 2, "required": "rack"}}
    value["spec"]["podSets"] = [leader, main]
    submitted(plane, value)
    with plane.uow() as uow:
        view = queries.workload(uow, ADMIN.principal, WorkloadId(GANG))
    assert [each.topology for each in view.pod_sets] == ["with main", "preferred rack, slices of 2 in one rack"]
    assert view.pod_sets[1].speeds == [1000, 480]
    assert view.attempts[0].placements[0].cluster == "west"
