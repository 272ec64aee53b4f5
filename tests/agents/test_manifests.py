"""The objects of an Attempt: names, gates, environment, and what a Job of ours never does by itself."""

import json
from typing import Any

import kubernetes_validate
import pytest

from agents import memory
from agents.cluster import Place
from agents.kube import manifests
from agents.kube.apply import placement_patch
from controlplane.contract.agent.attempts import ANNOTATION_DIRECTIVE, GATE, Directive, Pin
from tests.agents.bench import UID, an_apply

KUBERNETES = "1.34"


def _job(apply: Directive) -> dict[str, Any]:
    assert apply.apply is not None
    return manifests.job(apply, apply.apply.pod_sets[0])


def _environment(template: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each for each in template["spec"]["containers"][0]["env"]}


def test_all_objects_are_what_kubernetes_takes() -> None:
    apply = an_apply()
    assert apply.apply is not None
    pod = manifests.pod(apply, apply.apply.pod_sets[0], apply.apply.pins[0], "node-0")
    for manifest in (manifests.service(apply), _job(apply), pod):
        kubernetes_validate.validate(json.loads(json.dumps(manifest)), KUBERNETES, strict=True)


def test_a_job_of_ours_never_retries_by_itself() -> None:
    spec = _job(an_apply(template={"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "a"}]}}))["spec"]
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["backoffLimit"] == 2**31 - 1
    assert spec["podFailurePolicy"]["rules"][0]["action"] == "Ignore"
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert {"name": GATE} in spec["template"]["spec"]["schedulingGates"]


def test_members_find_each_other_by_names_that_the_service_gives() -> None:
    apply = an_apply()
    service, job = manifests.service(apply), _job(apply)
    template = job["spec"]["template"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert template["spec"]["subdomain"] == service["metadata"]["name"]
    address = f"{job['metadata']['name']}-0.{service['metadata']['name']}.nlp.svc"
    texts = {name: each.get("value") for name, each in _environment(template).items()}
    assert texts["MUSTER_MASTER_ADDR"] == texts["MASTER_ADDR"] == address
    assert texts["JAX_COORDINATOR_ADDRESS"] == f"{address}:29500"
    assert texts["MUSTER_WORLD_SIZE"] == texts["WORLD_SIZE"] == texts["JAX_NUM_PROCESSES"] == "4"
    assert texts["MUSTER_ATTEMPT"] == "1"
    for name in ("MUSTER_RANK", "RANK", "JAX_PROCESS_ID", "OMPI_COMM_WORLD_RANK"):
        assert "muster.dev/rank" in _environment(template)[name]["valueFrom"]["fieldRef"]["fieldPath"]


def test_what_the_user_sets_in_the_environment_stays() -> None:
    container = {"name": "main", "image": "a", "env": [{"name": "MASTER_ADDR", "value": "mine"}]}
    template = _job(an_apply(template={"spec": {"containers": [container]}}))["spec"]["template"]
    assert [each["value"] for each in template["spec"]["containers"][0]["env"] if each["name"] == "MASTER_ADDR"] == [
        "mine"
    ]


def test_no_pod_gets_a_token_for_the_api_of_its_cluster() -> None:
    apply = an_apply(template={"spec": {"automountServiceAccountToken": True, "containers": [{"name": "a"}]}})
    assert apply.apply is not None
    pod = manifests.pod(apply, apply.apply.pod_sets[0], apply.apply.pins[0], "node-0")
    for spec in (_job(apply)["spec"]["template"]["spec"], pod["spec"]):
        assert spec["automountServiceAccountToken"] is False


def test_a_template_without_devices_asks_for_what_its_pods_were_given_and_is_not_changed_itself() -> None:
    apply = an_apply()
    assert apply.apply is not None
    before = json.dumps(apply.apply.pod_sets[0].template)
    limits = _job(apply)["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "8"}
    assert json.dumps(apply.apply.pod_sets[0].template) == before


def test_pods_put_up_with_the_taint_of_the_devices_that_they_were_given_beside_the_users_own() -> None:
    theirs = {"key": "team", "operator": "Equal", "value": "ml"}
    apply = an_apply(template={"spec": {"containers": [{"name": "a"}], "tolerations": [theirs]}})
    own = {"key": "nvidia.com/gpu", "operator": "Exists"}
    assert _job(apply)["spec"]["template"]["spec"]["tolerations"] == [theirs, own]


def test_fields_that_would_go_round_the_planner_do_not_survive() -> None:
    spec = {"nodeName": "x", "priority": 5, "hostname": "h", "priorityClassName": "top", "containers": [{"name": "a"}]}
    made = _job(an_apply(template={"spec": spec}))["spec"]["template"]["spec"]
    assert not {"nodeName", "priority", "hostname"} & made.keys()
    assert made["priorityClassName"] == "muster-workload"


@pytest.mark.parametrize("name", ["train", "Llama_Pre.Train", "x" * 200, "9-lives", "a..b"])
def test_names_are_dns_labels_of_one_try_alone(name: str) -> None:
    names = set()
    for workload in (UID, UID[:-1] + "0"):
        for attempt in (1, 2):
            apply = an_apply(name=name, workload=workload, attempt=attempt)
            assert apply.apply is not None
            made = manifests.base_name(apply.apply, workload, attempt)
            assert len(f"{made}-99999") <= 63
            assert made[0].isalpha()
            assert made == made.lower()
            names.add(made)
    assert len(names) == 4


def test_the_anchor_remembers_the_directive_word_for_word_however_large() -> None:
    small = an_apply()
    assert memory.decode(manifests.service(small)["metadata"]["annotations"][ANNOTATION_DIRECTIVE]) == small
    assert small.apply is not None
    pins = [
        Pin(pod_set="main", index=i, rank=i, node=f"ip-10-{i // 250}-{i % 250}.example", resource="a.b/c", amount=8)
        for i in range(5_000)
    ]
    large = small.model_copy(update={"apply": small.apply.model_copy(update={"pins": pins})})
    text = memory.encode(large)
    assert text.startswith("z:")
    assert len(text) < 200_000
    assert memory.decode(text) == large


@pytest.mark.parametrize("text", ["", "{}", "nonsense", "z:", "z:AAAA", "z:é", "[1]", '{"number": 1}'])
def test_a_spoilt_memory_is_no_directive_and_no_error(text: str) -> None:
    assert memory.decode(text) is None


def test_finished_pods_are_remembered_as_ranges() -> None:
    text = memory.encode_done({"main": [0, 1, 2, 5], "none": []})
    assert json.loads(text) == {"main": "0-2,5"}
    assert memory.decode_done(text) == {"main": frozenset({0, 1, 2, 5})}
    assert memory.decode_done("nonsense") == memory.decode_done('{"a": 1}') == {}


def test_a_placement_holds_only_for_the_pod_and_the_gate_that_were_seen() -> None:
    patch = placement_patch(Place("nlp", "p", "the-uid", hostname="node-1", rank=3, gate_index=1))
    assert patch[0] == {"op": "test", "path": "/metadata/uid", "value": "the-uid"}
    assert {"op": "test", "path": "/spec/schedulingGates/1/name", "value": GATE} in patch
    assert patch[-1] == {"op": "remove", "path": "/spec/schedulingGates/1"}
    assert {"op": "add", "path": "/spec/nodeSelector/kubernetes.io~1hostname", "value": "node-1"} in patch
