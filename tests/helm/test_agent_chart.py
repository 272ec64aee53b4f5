"""The agent's chart: strict about its values, and no more rights than its README lists."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from agents.policy import FORBIDDEN_BY_DEFAULT, LocalPolicy, PolicyField, allows_namespace, read
from agents.settings import AgentSettings
from tests.helm.render import AGENT_CHART, AGENT_VALUES, Refused, render
from tests.helm.values import AGENT_EVERYTHING

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "get", "list", "patch", "watch")
EVERYWHERE = "*"

# (namespace, API group, resource, object name or "" for any) -> verbs. This is the whole of it.
ALLOWED: dict[tuple[str, str, str, str], tuple[str, ...]] = {
    (EVERYWHERE, "", "namespaces", ""): READ,
    (EVERYWHERE, "", "nodes", ""): READ,
    (EVERYWHERE, "", "pods", ""): READ,
    ("muster-system", "", "secrets", "muster-agent-key"): ("get", "patch"),
    ("muster-system", "coordination.k8s.io", "leases", "muster-agent"): ("get", "update"),
    ("muster-system", "coordination.k8s.io", "leases", ""): ("create",),
    **{
        (tenant, group, resource, ""): verbs
        for tenant in ("nlp", "vision")
        for group, resource, verbs in (
            ("", "pods", WRITE),
            ("", "services", WRITE),
            ("batch", "jobs", WRITE),
            ("", "events", READ),
        )
    },
}

Rights = dict[tuple[str, str, str, str], tuple[str, ...]]


def rights(manifests: list[dict[str, Any]]) -> Rights:
    """What the bindings among `manifests` give to the agent, one line per object that can be named."""
    roles = {(each["kind"], each["metadata"].get("namespace", "")): each for each in manifests if "rules" in each}
    found: Rights = {}
    for binding in (each for each in manifests if each["kind"] in {"ClusterRoleBinding", "RoleBinding"}):
        is_cluster_wide = binding["kind"] == "ClusterRoleBinding"
        namespace = EVERYWHERE if is_cluster_wide else binding["metadata"]["namespace"]
        role = roles[binding["roleRef"]["kind"], "" if is_cluster_wide else namespace]
        assert role["metadata"]["name"] == binding["roleRef"]["name"]
        for group, resource, name, verbs in _grants(role["rules"]):
            assert (namespace, group, resource, name) not in found, "given twice"
            found[namespace, group, resource, name] = verbs
    return found


def _grants(rules: list[dict[str, Any]]) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    for rule in rules:
        assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    yield group, resource, name, tuple(sorted(rule["verbs"]))


def test_the_chart_gives_exactly_the_rights_of_the_table() -> None:
    assert rights(render()) == ALLOWED


def test_only_the_agents_own_account_is_bound() -> None:
    for binding in (each for each in render() if each["kind"].endswith("RoleBinding")):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "muster-agent", "namespace": "muster-system"}]


def test_without_tenants_the_agent_writes_nowhere_but_at_home() -> None:
    given = rights(render({**AGENT_VALUES, "tenants": []}))
    assert {namespace for namespace, *_ in given} == {EVERYWHERE, "muster-system"}


PLACES = {
    "whole cluster": (EVERYWHERE,),
    "each namespace under `tenants`": ("nlp", "vision"),
    "its own namespace": ("muster-system",),
}
GROUPS = {"jobs": "batch", "leases": "coordination.k8s.io"}


def told_rights() -> Rights:
    """The README's table, read as the chart's rules are."""
    text = (AGENT_CHART / "README.md").read_text().partition("## What it may do")[2].partition("Nothing else")[0]
    found: Rights = {}
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line]
    for where, what, verbs in rows[2:]:
        for words, allowed in zip(what.split("; "), verbs.split("; "), strict=True):
            for each in words.split(", "):
                said = re.fullmatch(r"(?:making a )?(\w+)(?: `([a-z-]+)`)?", each)
                assert said, each
                resource = said[1].lower().removesuffix("s") + "s"
                for namespace in PLACES[where]:
                    key = namespace, GROUPS.get(resource, ""), resource, said[2] or ""
                    assert key not in found, "told twice"
                    found[key] = tuple(allowed.split(", "))
    return found


def test_the_readme_tells_the_rights_rule_by_rule() -> None:
    assert told_rights() == rights(render())


def test_pods_are_locked_down_and_told_all_they_need() -> None:
    (deployment,) = (each for each in render(AGENT_EVERYTHING) if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["command"] == ["muster-agent", "run"]
    given = {each["name"].removeprefix("MUSTER_AGENT_").lower() for each in container["env"]}
    assert given >= {"plane_url", "cluster", "token_file", "namespace", "policy_file", "ca_file"}
    assert given <= set(AgentSettings.model_fields), "the agent would overlook these"
    assert deployment["spec"]["replicas"] == 2


def test_a_pod_is_probed_where_the_agent_answers() -> None:
    (deployment,) = (each for each in render() if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each.get("value") for each in container["env"]}
    assert given["MUSTER_AGENT_HEALTH_PORT"] == str(container["ports"][0]["containerPort"])
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "health"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}


def policy_of(manifests: list[dict[str, Any]], tmp_path: Path) -> LocalPolicy:
    """The rendered policy as the agent itself reads it."""
    (text,) = (each["data"]["policy.yaml"] for each in manifests if each["metadata"]["name"] == "muster-agent-policy")
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    return read(file)


def test_the_agent_reads_what_the_operator_wrote(tmp_path: Path) -> None:
    policy = policy_of(render(AGENT_EVERYTHING), tmp_path)
    assert policy.namespaces == ["nlp", "vision"]
    assert policy.devices_max == 64
    assert policy.pods_max is None
    assert policy.registries == ["registry.example/team"]
    assert policy.require_digest


def test_by_default_the_chart_forbids_all_that_the_agent_knows_to_forbid(tmp_path: Path) -> None:
    policy = policy_of(render(), tmp_path)
    assert set(policy.forbidden) == set(FORBIDDEN_BY_DEFAULT) == set(get_args(PolicyField))


def test_without_tenants_nothing_may_be_made_anywhere(tmp_path: Path) -> None:
    policy = policy_of(render({**AGENT_VALUES, "tenants": []}), tmp_path)
    assert not allows_namespace(policy, "nlp")


def test_an_upgrade_brings_no_data_that_could_replace_the_key() -> None:
    (secret,) = (each for each in render() if each["kind"] == "Secret")
    assert "data" not in secret
    assert "stringData" not in secret


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"plane": {"url": ""}}, "/plane/url"),
        ({"plane": {"url": "http://muster.example.com"}}, "/plane/url"),
        ({"plane": {"url": "https://user:word@muster.example.com"}}, "/plane/url"),
        ({"plane": {"url": "https://muster.example.com", "token": "x"}}, "token"),
        ({"cluster": {"name": "Not A Label"}}, "/cluster/name"),
        ({"replicas": "many"}, "/replicas"),
        ({"replicas": 0}, "/replicas"),
        ({"tenants": [{"namespace": "kube-system"}]}, "/tenants/0/namespace"),
        ({"tenants": [{"namespace": "default"}]}, "/tenants/0/namespace"),
        ({"tenants": ["nlp"]}, "/tenants/0"),
        ({"tenants": [{"namespace": "muster-system"}]}, "holds the agent itself"),
        ({"tenants": [{"namespace": "nlp"}, {"namespace": "nlp"}]}, "/tenants"),
        ({"policy": {"kinds": ["ClusterRole"]}}, "/policy/kinds/0"),
        ({"policy": {"kinds": []}}, "/policy/kinds"),
        ({"policy": {"devicesMax": -1}}, "/policy/devicesMax"),
        ({"policy": {"forbiddenPodFields": ["hostnetwork"]}}, "/policy/forbiddenPodFields/0"),
        ({"priorityClass": {"value": 2_000_000_000}}, "/priorityClass/value"),
        ({"priorityClass": {"preemptionPolicy": "PreemptLowerPriority"}}, "preemptionPolicy"),
        ({"image": {"digest": "latest"}}, "/image/digest"),
        ({"anything": 1}, "anything"),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name(change: dict[str, object], words: str) -> None:
    with pytest.raises(Refused, match=re.escape(words)):
        render({**AGENT_VALUES, **change})


@pytest.mark.parametrize("url", ["http://127.0.0.1:8001", "http://localhost:8001", "https://[2001:db8::1]:8443/muster"])
def test_plain_http_is_for_loopback(url: str) -> None:
    assert render({**AGENT_VALUES, "plane": {"url": url}})
