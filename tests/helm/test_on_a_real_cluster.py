"""The chart on a real API server: it admits every object, and what it gives the agent is what the agent gets."""

import httpx
import pytest

from tests.helm.render import AGENT, AGENT_VALUES, NAMESPACE, install_agent, render
from tests.kube.client import Json, KubeClient, KubeError
from tests.kube.cluster import KubeCluster
from tests.kube.objects import job

MAY = [
    ("list", "", "nodes", "", "", True),
    ("watch", "", "pods", "", "", True),
    ("list", "resource.k8s.io", "resourceslices", "", "", False),
    ("patch", "", "nodes", "", "", False),
    ("get", "", "nodes/proxy", "", "", False),
    ("list", "", "secrets", "", "", False),
    ("list", "", "configmaps", "", "", False),
    ("create", "", "pods", "tenant", "", True),
    ("create", "batch", "jobs", "tenant", "", True),
    ("delete", "", "services", "tenant", "", True),
    ("deletecollection", "", "pods", "tenant", "", False),
    ("create", "", "pods/exec", "tenant", "", False),
    ("get", "", "pods/log", "tenant", "", False),
    ("create", "", "pods/binding", "tenant", "", False),
    ("patch", "", "pods/status", "tenant", "", False),
    ("get", "", "secrets", "tenant", "", False),
    ("create", "", "serviceaccounts/token", "tenant", "", False),
    ("create", "", "pods", "other", "", False),
    ("delete", "batch", "jobs", "other", "", False),
    ("create", "", "pods", NAMESPACE, "", False),
    ("patch", "", "secrets", NAMESPACE, "muster-agent-key", True),
    ("get", "", "secrets", NAMESPACE, "muster-agent-enrolment", False),
    ("create", "", "secrets", NAMESPACE, "", False),
    ("patch", "", "configmaps", NAMESPACE, "muster-agent-policy", False),
    ("update", "coordination.k8s.io", "leases", NAMESPACE, AGENT, True),
    ("update", "coordination.k8s.io", "leases", NAMESPACE, "another", False),
    ("create", "rbac.authorization.k8s.io", "rolebindings", "tenant", "", False),
    ("bind", "rbac.authorization.k8s.io", "clusterroles", "", "", False),
    ("escalate", "rbac.authorization.k8s.io", "roles", "tenant", "", False),
    ("impersonate", "", "serviceaccounts", NAMESPACE, "", False),
    ("create", "", "namespaces", "", "", False),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "", False),
]


def may(client: KubeClient, verb: str, group: str, resource: str, namespace: str, name: str) -> bool:
    kind, _, subresource = resource.partition("/")
    attributes = {
        "verb": verb,
        "group": group,
        "resource": kind,
        "subresource": subresource,
        "namespace": namespace,
        "name": name,
    }
    review: Json = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": {"resourceAttributes": attributes},
    }
    return bool(client.create(review)["status"]["allowed"])


def test_the_agent_may_do_what_the_chart_gives_and_nothing_more(kube: KubeCluster) -> None:
    tenant, other = kube.new_namespace("tenant"), kube.new_namespace("other")
    install_agent(kube, [tenant])
    places = {"tenant": tenant, "other": other}
    client = kube.client_of(NAMESPACE, AGENT)

    answers = [
        (*case, may(client, verb, group, resource, places.get(namespace, namespace), name))
        for case in MAY
        for verb, group, resource, namespace, name, _ in [case]
    ]
    client.close()

    assert [answer for answer in answers if answer[-1] != answer[-2]] == []


def test_the_agent_makes_work_for_its_tenants_only(kube: KubeCluster) -> None:
    tenant, other = kube.new_namespace("tenant"), kube.new_namespace("other")
    install_agent(kube, [tenant])
    client = kube.client_of(NAMESPACE, AGENT)

    manifest = job("gang", tenant, 2, gates=["muster.dev/placement"])
    manifest["spec"]["template"]["spec"]["priorityClassName"] = "muster-workload"
    client.create(manifest)
    with pytest.raises(KubeError) as refused:
        client.create(job("gang", other, 2))
    client.close()

    assert refused.value.code == httpx.codes.FORBIDDEN
    pods = kube.wait_for(lambda: kube.client.list_all("Pod", tenant), "pods")
    assert {(pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) for pod in pods} == {(1_000_000_000, "Never")}


def test_the_agents_requests_have_a_priority_level_of_their_own(kube: KubeCluster) -> None:
    install_agent(kube, [])
    token = kube.service_account_token(NAMESPACE, AGENT)
    schema = kube.client.get("FlowSchema", AGENT)["metadata"]["uid"]

    def flow() -> bool:
        url, headers = f"{kube.url}/api/v1/nodes", {"Authorization": f"Bearer {token}"}
        answer = httpx.get(url, headers=headers, verify=kube.tls)
        return str(answer.headers["X-Kubernetes-PF-FlowSchema-UID"]) == str(schema)

    kube.wait_for(flow, "the agent's own flow")


def test_the_whole_release_is_admitted_where_pods_must_be_restricted(kube: KubeCluster) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kube.apply(
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}},
            *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("nlp", "vision")),
        ]
    )
    kube.add_nodes(2)

    kube.apply(render(AGENT_VALUES))

    def ready() -> bool:
        return bool(kube.client.get("Deployment", AGENT, NAMESPACE)["status"].get("readyReplicas") == 2)

    kube.wait_for(ready, "two agents")
