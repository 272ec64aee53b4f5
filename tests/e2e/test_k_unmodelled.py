"""Story (k): a cluster may know better than its plane."""

from tests.e2e.checks import settled
from tests.e2e.federation import Federation, gang
from tests.kube.client import Json
from tests.kube.objects import RACK, NodeShape, job


def apart_from_the_lab(name: str) -> Json:
    """A gang whose pods do not want to be where the lab's are: of other pods' labels the plane knows nothing."""
    made = gang(name, 3)
    others = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "lab-7"}},
              "namespaceSelector": {}}  # fmt: skip
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [others]}}
    made["spec"]["podSets"][0]["template"]["spec"]["affinity"] = apart
    return made


def test_a_node_that_the_cluster_s_scheduler_refuses_is_left_out_for_a_while(federation: Federation) -> None:
    """Story (k)."""
    east, west = federation.sites
    names = federation.add_nodes(east, 3, NodeShape(topology={RACK: 3}))
    lab = job("lab", "vision", 1, gpus=0)
    lab["spec"]["template"]["metadata"]["labels"] = {"app": "lab-7"}
    lab["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": names[1]}
    east.kube.client.create(lab)
    east.kube.wait_for(
        lambda: [raw for raw in east.kube.client.list_all("Pod", "vision") if raw["spec"].get("nodeName")],
        "the lab's pod to be bound",
    )

    workload = federation.submit(apart_from_the_lab("refused"))
    federation.wait_for(lambda: [each for each in federation.attempts(workload) if each["outcome"]], "a first end")
    seen = federation.workload(workload)
    (attempt,) = seen["attempts"]
    assert (seen["state"], attempt["outcome"]) == ("pending", "rejected")
    assert attempt["reason"]["code"] == "unmodelled-constraint"
    told = federation.explain(workload)
    assert names[1] in told
    assert "anti-affinity" in told, told
    assert "east leaves out 1 of its nodes for this workload until" in told, told
    assert seen["programFailures"] == 0

    federation.add_nodes(west, 3, NodeShape(topology={RACK: 3}))
    federation.wait_state(workload, "running")
    assert {pod.attempt for pod in west.pods_of(workload)} == {2}
    assert not east.pods_of(workload)

    east.kube.client.delete("Job", "lab", "vision")
    later = federation.submit(apart_from_the_lab("later"))  # of the same shape: it waits until the refusal is forgotten
    federation.wait_state(later, "running")
    assert {(pod.attempt, pod.node) for pod in east.pods_of(later)} == {(1, name) for name in names}
    for site, each in ((west, workload), (east, later)):
        for pod in site.pods_of(each):
            site.kube.end_pod("nlp", pod.name)
        federation.wait_state(each, "succeeded")
    settled(federation)
