"""Story (m): nodes for devices are tainted, and a gang wants some of them alone."""

from tests.e2e.checks import settled
from tests.e2e.federation import Federation, gang
from tests.kube.objects import NodeShape


def test_a_gang_goes_to_the_tainted_nodes_that_its_template_selects(federation: Federation) -> None:
    """Story (m). The cluster's own scheduler agrees: it lets in whom the plane sends."""
    east = federation.east
    names = federation.add_nodes(east, 4, NodeShape())
    own = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    for number, name in enumerate(names):
        changed = {"metadata": {"labels": {"zone": "ab"[number // 2]}}, "spec": {"taints": [own]}}
        east.kube.client.patch("Node", name, changed)
    federation.wait_for(lambda: _zone(federation, names[3]) == "b", "the plane to know the labels")

    fitting, too_many = gang("fitting", 2), gang("too-many", 3)
    for each in (fitting, too_many):
        each["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {"zone": "b"}
    running, waiting = federation.submit(fitting), federation.submit(too_many)
    federation.wait_state(running, "running")
    assert {pod.node for pod in east.pods_of(running)} == set(names[2:])
    told = federation.explain(waiting)
    assert "east has 2 nodes that its selector and taints allow, and empty they would hold 2 of 3 pods" in told, told
    for pod in east.pods_of(running):
        east.kube.end_pod("nlp", pod.name)
    federation.wait_state(running, "succeeded")
    settled(federation)


def _zone(federation: Federation, node: str) -> object:
    return federation.ask("GET", f"/clusters/east/nodes/{node}")["labels"].get("zone")
