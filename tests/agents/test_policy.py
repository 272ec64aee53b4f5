"""What a cluster's operator forbids is refused with the rule's name; the strict defaults need no file."""

from pathlib import Path
from typing import Any

import pytest

from agents import policy
from agents.policy import LocalPolicy, PolicyUnreadable
from controlplane.contract.agent.attempts import ApplyBody
from tests.agents.bench import an_apply

IMAGE = "registry.example/train@sha256:" + "0" * 64


def _body(
    spec: dict[str, Any] | None = None, container: dict[str, Any] | None = None, namespace: str = "nlp"
) -> ApplyBody:
    containers = [{"name": "main", "image": IMAGE, **(container or {})}]
    template: dict[str, object] = {"spec": {"containers": containers, **(spec or {})}}
    body = an_apply(template=template, namespace=namespace).apply
    assert body is not None
    return body


def test_an_ordinary_gang_passes_the_defaults() -> None:
    assert policy.refusal(_body(), LocalPolicy()) is None


@pytest.mark.parametrize(
    ("spec", "container", "forbidden"),
    [
        ({"hostNetwork": True}, {}, "hostNetwork"),
        ({"hostPID": True}, {}, "hostPID"),
        ({"hostIPC": True}, {}, "hostIPC"),
        ({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}, {}, "hostPath"),
        ({"nodeName": "node-1"}, {}, "nodeName"),
        ({"schedulerName": "mine"}, {}, "schedulerName"),
        ({"volumes": [{"projected": {"sources": [{"serviceAccountToken": {}}]}}]}, {}, "serviceAccountToken"),
        ({"automountServiceAccountToken": True}, {}, "serviceAccountToken"),
        ({"serviceAccountName": "deployer"}, {}, "serviceAccountName"),
        ({"serviceAccount": "deployer"}, {}, "serviceAccountName"),
        ({"schedulingGates": [{"name": "mine"}]}, {}, "schedulingGates"),
        ({"tolerations": [{"operator": "Exists"}]}, {}, "controlPlaneToleration"),
        ({"tolerations": [{"key": "node-role.kubernetes.io/control-plane"}]}, {}, "controlPlaneToleration"),
        ({}, {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}, "deviceEnvironment"),
        ({}, {"securityContext": {"privileged": True}}, "privileged"),
        ({}, {"securityContext": {"allowPrivilegeEscalation": True}}, "privileged"),
        ({}, {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, "capabilities"),
        ({}, {"ports": [{"hostPort": 80}]}, "hostPort"),
        ({"initContainers": [{"name": "i", "securityContext": {"privileged": True}}]}, {}, "privileged"),
    ],
)
def test_fields_that_reach_past_the_pod_are_refused_unless_the_operator_takes_them_off_the_list(
    spec: dict[str, Any], container: dict[str, Any], forbidden: str
) -> None:
    body = _body(spec, container)
    refused = policy.refusal(body, LocalPolicy())
    assert refused is not None
    assert refused.code == "local-policy"
    assert refused.facts["rule"] == "forbiddenPodFields"
    assert refused.facts["detail"] == forbidden
    assert forbidden in str(refused.facts["words"])
    assert policy.refusal(body, LocalPolicy.model_validate({"forbiddenPodFields": []})) is None


@pytest.mark.parametrize(
    ("rules", "rule"),
    [
        ({"namespaces": ["vision"]}, "namespaces"),
        ({"devicesMax": 31}, "devicesMax"),
        ({"podsMax": 3}, "podsMax"),
        ({"kinds": ["Pods"]}, "kinds"),
        ({"kinds": []}, "kinds"),
        ({"registries": ["other.example/"]}, "registries"),
    ],
)
def test_each_rule_refuses_what_breaks_it(rules: dict[str, Any], rule: str) -> None:
    refused = policy.refusal(_body(), LocalPolicy.model_validate(rules))
    assert refused is not None
    assert refused.facts["rule"] == rule


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "muster-system"])
def test_the_clusters_own_namespaces_are_never_open(namespace: str) -> None:
    assert policy.refusal(_body(namespace=namespace), LocalPolicy(namespaces=["*"])) is not None


def test_images_without_a_digest_are_refused_where_digests_are_asked_for() -> None:
    rules = LocalPolicy.model_validate({"requireDigest": True})
    assert policy.refusal(_body(), rules) is None
    refused = policy.refusal(_body(container={"image": "registry.example/train:latest"}), rules)
    assert refused is not None
    assert refused.facts["rule"] == "requireDigest"


def test_a_runtime_class_must_be_named_by_the_operator() -> None:
    body = _body({"runtimeClassName": "gvisor"})
    assert policy.refusal(body, LocalPolicy()) is not None
    assert policy.refusal(body, LocalPolicy.model_validate({"runtimeClasses": ["gvisor"]})) is None


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"])
def test_a_template_cannot_take_more_devices_than_its_pods_were_given(resource: str) -> None:
    greedy = {"resources": {"limits": {resource: "16"}}}
    refused = policy.refusal(_body(container=greedy), LocalPolicy())
    assert refused is not None
    assert refused.facts["rule"] == "devices"


@pytest.mark.parametrize("text", ["{", "unknown: 1", "devicesMax: -1", "forbiddenPodFields: [nonsense]", "- a"])
def test_a_policy_that_cannot_be_read_ends_the_start_instead_of_opening_the_cluster(tmp_path: Path, text: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(PolicyUnreadable):
        policy.read(path)


def test_without_a_file_the_defaults_are_strict() -> None:
    assert policy.read(None) == LocalPolicy()
    assert len(LocalPolicy().forbidden) == 14
