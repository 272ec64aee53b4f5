"""The bad-input catalogue over real HTTP: every mistake has its status, its problem type, and writes nothing.

One plane serves the whole table, because nothing that is refused may change it; the last test says so.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from controlplane.embedded.postgres import Postgres
from controlplane.embedded.valkey import Valkey
from tests.api.bodies import IMAGE, YAML, job, template, workload
from tests.api.refusals import JSON, assert_problem, refusing
from tests.support.api import Api

Body = dict[str, Any] | str | bytes


@pytest.fixture(scope="module")
def plane(
    postgres: Postgres, migrated: str, valkey_server: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    """One API for the module, with queues."""
    with refusing(postgres, migrated, valkey_server, tmp_path_factory) as api:
        yield api


def pods(**changed: object) -> dict[str, Any]:
    """A Workload whose PodSet differs."""
    return workload(pod_set=dict(changed))


def spec(**changed: object) -> dict[str, Any]:
    """A Workload whose pod spec differs."""
    return workload(pod_set={"template": template(**changed)})


def container(**changed: object) -> dict[str, Any]:
    """A Workload whose container differs."""
    return spec(containers=[{"name": "main", "image": IMAGE, **changed}])


def named(name: str) -> dict[str, Any]:
    return workload(name)


def metadata(**changed: object) -> dict[str, Any]:
    """A Job whose metadata differ."""
    manifest = job()
    manifest["metadata"] |= changed
    return manifest


SLICES = {"slices": {"size": 4, "required": "rack"}, "preferred": "block"}
DEEP = "[" * 100_000 + "]" * 100_000
AMOUNTS: list[object] = [2**63, -1, 0, 1.0, 1.5, "4", True, None, [], 100_001]
CASES: dict[str, tuple[Body, int, str]] = {
    # what cannot be read
    "truncated JSON": ('{"apiVersion": "muster', 400, "malformed-json"),
    "JSON nested 100,000 deep": (DEEP, 400, "too-deep"),
    "JSON nested 100 deep": ("[" * 100 + "]" * 100, 400, "too-deep"),
    "a key twice": ('{"kind": "Workload", "kind": "Job"}', 400, "duplicate-key"),
    "a number of 5,000 digits": ('{"priority": ' + "9" * 5_000 + "}", 400, "number-out-of-range"),
    "NaN": ('{"priority": NaN}', 400, "malformed-json"),
    "1e999": ('{"priority": 1e999}', 400, "number-out-of-range"),
    "no UTF-8": (b'{"kind": "\xff"}', 400, "malformed-json"),
    "nothing": ("", 400, "empty-body"),
    # characters and names
    "NUL in a string": ('{"kind": "a\\u0000b"}', 422, "invalid-character"),
    "half a surrogate pair": ('{"kind": "\\ud800"}', 422, "invalid-character"),
    "a Cyrillic look-alike": (named("ll\u0430ma"), 422, "invalid-name"),
    "a zero-width space": (named("lla\u200bma"), 422, "invalid-name"),
    "an emoji": (named("llama-🦙"), 422, "invalid-name"),
    "capitals": (named("Llama"), 422, "invalid-name"),
    "64 characters": (named("a" * 64), 422, "invalid-name"),
    "dots": (named(".."), 422, "invalid-name"),
    "an empty name": (named(""), 422, "invalid-name"),
    "an empty segment of a path": (workload(queue="research//nlp"), 422, "invalid-name"),
    "a path out of the tree": (workload(queue="research/../nlp"), 422, "invalid-name"),
    "an escaped path": (workload(queue="research/%2e%2e"), 422, "invalid-name"),
    "a reserved segment": (workload(queue="research/default"), 422, "reserved-name"),
    # amounts
    **{
        f"replicas {value!r}": (pods(replicas=value), 422, "invalid-quantity")
        for value in AMOUNTS
    },
    "more pods in all than one order names": (
        workload(podSets=[{"name": name, "replicas": 60_000, "template": template()} for name in "ab"]),
        422, "invalid-quantity",
    ),
    "replicas 1e3": (json.dumps(pods(replicas=17)).replace("17", "1e3"), 422, "invalid-quantity"),
    "devices -1": (pods(devices=-1), 422, "invalid-quantity"),
    "half a device": (container(resources={"limits": {"nvidia.com/gpu": "500m"}}), 422, "invalid-quantity"),
    "cpu -1": (container(resources={"limits": {"cpu": "-1"}}), 422, "invalid-quantity"),
    "priority 2^31": (workload(priority=2**31), 422, "invalid-quantity"),
    "a priority and a class": (workload(priority=1, priorityClass="low"), 422, "invalid-value"),
    # fields
    "a field that nobody knows": (workload(frobnicate=1), 422, "unknown-field"),
    "a field by the name that it has inside": (workload(max_attempts=2), 422, "unknown-field"),
    "a state set by the user": ({**workload(), "state": "running"}, 422, "unknown-field"),
    "a role set by the user": (workload(role="admin"), 422, "unknown-field"),
    "no queue": ({**workload(), "spec": {"podSets": []}}, 422, "missing-field"),
    "a queue that is not there": (workload(queue="research/music"), 422, "queue-unknown"),
    "an inner queue": (workload(queue="research"), 422, "queue-not-leaf"),
    "a pool that is not there": (workload(pool="other"), 422, "pool-unknown"),
    "no template": (pods(template=None), 422, "missing-field"),
    "no container": (spec(containers=[]), 422, "missing-field"),
    "devices that the template contradicts": (pods(devices=4), 422, "invalid-value"),
    "a flavor of another vendor": (pods(flavors=[{"name": "amd-mi300x-192gb"}]), 422, "invalid-value"),
    "a reserved label": (
        {**workload(), "metadata": {"name": "a", "labels": {"muster.dev/x": "1"}}}, 422, "reserved-metadata",
    ),
    # what nothing obeys yet
    "maxRuntime": (workload(maxRuntime="12h"), 422, "not-yet"),
    "checkpoint": (workload(checkpoint={"mode": "handshake"}), 422, "not-yet"),
    "onClusterLoss": (workload(onClusterLoss="replace"), 422, "not-yet"),
    "disturb": (workload(disturb={"mostPerDay": 3}), 422, "not-yet"),
    "a warm image": (workload(requires={"image": "warm"}), 422, "not-yet"),
    # what contradicts itself
    "more pods at least than at most": (pods(minReplicas=5), 422, "invalid-quantity"),
    "slices that do not divide the pods": (pods(replicas=6, topology=SLICES), 422, "invalid-quantity"),
    "slices that do not divide the least pods": (
        pods(replicas=8, minReplicas=6, topology=SLICES), 422, "invalid-quantity",
    ),
    "two levels": (pods(topology={"required": "rack", "preferred": "block"}), 422, "invalid-value"),
    "no level": (pods(topology={}), 422, "invalid-value"),
    "a leader with a level of its own": (pods(topology={"required": "rack", "with": "x"}), 422, "invalid-value"),
    "a leader of nobody": (pods(topology={"with": "nobody"}), 422, "invalid-value"),
    "a leader of itself": (pods(topology={"with": "trainer"}), 422, "invalid-value"),
    "no clusters": (workload(clusters={"max": 0}), 422, "invalid-quantity"),
    "too many clusters": (workload(clusters={"max": 65}), 422, "invalid-quantity"),
    "disk that is no amount": (workload(requires={"localStorage": "much"}), 422, "invalid-quantity"),
    # never
    "more than the queue could ever use": (pods(replicas=1_000), 422, "never-satisfiable"),
    # what goes round the planner
    "nodeName": (spec(nodeName="gpu-1"), 422, "pod-policy"),
    "schedulerName": (spec(schedulerName="mine"), 422, "pod-policy"),
    "scheduling gates of one's own": (spec(schedulingGates=[{"name": "muster.dev/placement"}]), 422, "pod-policy"),
    "a toleration of everything": (spec(tolerations=[{"operator": "Exists"}]), 422, "pod-policy"),
    "a toleration of the control plane": (
        spec(tolerations=[{"key": "node-role.kubernetes.io/control-plane"}]), 422, "pod-policy",
    ),
    "a host name selected": (spec(nodeSelector={"kubernetes.io/hostname": "gpu-1"}), 422, "pod-policy"),
    "a PriorityClass": (spec(priorityClassName="system-node-critical"), 422, "pod-policy"),
    "the host's network": (spec(hostNetwork=True), 422, "pod-policy"),
    "the host's files": (spec(volumes=[{"name": "dev", "hostPath": {"path": "/dev"}}]), 422, "pod-policy"),
    "a host by affinity": (
        spec(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["gpu-1"]}]}]}}}),
        422, "pod-policy",
    ),
    "a host by the field of its name": (
        spec(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchFields": [{"key": "metadata.name"}]}}]}}),
        422, "pod-policy",
    ),
    "another service account": (spec(serviceAccountName="deployer"), 422, "pod-policy"),
    "another service account by its old name": (spec(serviceAccount="deployer"), 422, "pod-policy"),
    "a token for a foreign audience": (
        spec(volumes=[{"name": "t", "projected": {"sources": [
            {"serviceAccountToken": {"path": "t", "audience": "vault"}}]}}]),
        422, "pod-policy",
    ),
    "containers added later": (spec(ephemeralContainers=[{"name": "debug"}]), 422, "pod-policy"),
    "an end of no time": (spec(activeDeadlineSeconds=0), 422, "invalid-quantity"),
    "a template of 300 KB": (
        container(env=[{"name": "A", "value": "x" * 300_000}]), 422, "too-long",
    ),
    "ten thousand volumes": (
        spec(volumes=[{"name": f"volume-{number}", "emptyDir": {}} for number in range(10_000)]), 422, "too-long",
    ),
    "a token by mount": (spec(automountServiceAccountToken=True), 422, "pod-policy"),
    "a token by projection": (
        spec(volumes=[{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]),
        422, "pod-policy",
    ),
    "a runtime that shows devices without asking for one": (
        workload(pod_set={"devices": None, "flavors": [], "template": {"spec": {
            "runtimeClassName": "nvidia", "containers": [{"name": "main", "image": "team/train:1"}]}}}),
        422, "pod-policy",
    ),
    "a privileged container": (container(securityContext={"privileged": True}), 422, "pod-policy"),
    "all devices by environment": (container(env=[{"name": "NVIDIA_VISIBLE_DEVICES"}]), 422, "pod-policy"),
    "restartPolicy Always": (spec(restartPolicy="Always"), 422, "invalid-value"),
    "a namespace of others": (metadata(namespace="kube-system"), 422, "pod-policy"),
    **{
        f"image {image[:12]!r}": (container(image=image), 422, "invalid-image")
        for image in ("evil.example@", "a b", "x\r\ny", "", "a" * 2_048, "team/UPPER", "http://x/y")
    },
    # metadata that is not the user's
    "our prefix in a template": (
        workload(pod_set={"template": {"metadata": {"labels": {"muster.dev/workload": "x"}}, **template()}}),
        422, "reserved-metadata",
    ),
    "finalizers in a template": (
        workload(pod_set={"template": {"metadata": {"finalizers": ["x/y"]}, **template()}}), 422, "reserved-metadata",
    ),
    "ownerReferences": (metadata(ownerReferences=[]), 422, "reserved-metadata"),
    "generateName": (metadata(generateName="x-"), 422, "reserved-metadata"),
    "an annotation that is not published": (job(annotations={"muster.dev/state": "running"}), 422, "reserved-metadata"),
    # kinds
    **{
        f"kind {kind}": ({**job(), "kind": kind}, 422, "kind-not-allowed")
        for kind in ("ClusterRole", "CustomResourceDefinition", "PersistentVolume", "Node", "DaemonSet", "", None)
    },
    "a Job of another version": ({**job(), "apiVersion": "batch/v2"}, 422, "kind-not-allowed"),
    "a Queue submitted": (
        {"apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": "x"}}, 422, "kind-not-allowed",
    ),
    "a list": ([], 422, "invalid-document"),  # type: ignore[dict-item]  # the point is that it is no object
    # Jobs
    "completions beside parallelism": (job(completions=8), 422, "invalid-value"),
    "activeDeadlineSeconds 0": (job(activeDeadlineSeconds=0), 422, "invalid-quantity"),
    "a podFailurePolicy": (job(podFailurePolicy={"rules": []}), 422, "not-yet"),
    "a misspelt field of a Job": (job(paralelism=2), 422, "unknown-field"),
}  # fmt: skip

YAML_CASES: dict[str, tuple[str, int, str]] = {
    "an alias bomb": ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", 400, "aliases-forbidden"),
    "a tag": ("kind: !!python/object:os.system x\n", 400, "tags-forbidden"),
    "a local tag": ("kind: !thing x\n", 400, "tags-forbidden"),
    "a key twice": ("kind: Workload\nkind: Job\n", 400, "duplicate-key"),
    "no YAML": ("kind: [\n", 400, "malformed-yaml"),
    "two documents": (yaml.safe_dump_all([workload("a"), workload("b")]), 400, "too-many-documents"),
    "no document": ("---\n...\n", 400, "empty-body"),
    "nothing but a comment": ("# nothing\n", 400, "empty-body"),
    "nested 100 deep": ("[" * 100 + "]" * 100, 400, "too-deep"),
    "a word that YAML 1.1 takes for false": (
        yaml.safe_dump(workload()).replace("strategy: pack", "").replace("name: llama", "name: no") + "\n# no",
        201, "",
    ),
    "a time that YAML 1.1 takes for a number": ("apiVersion: 22:22\nkind: Workload\n", 422, "kind-not-allowed"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_told_by_status_and_type_and_place(plane: Api, case: str) -> None:
    body, status, slug = CASES[case]
    content = body if isinstance(body, (str, bytes)) else json.dumps(body)
    answer = plane.client().post("/api/v1/workloads", content=content, headers=JSON)
    assert_problem(answer, status, slug)


@pytest.mark.parametrize("case", YAML_CASES)
def test_yaml_is_read_strictly(plane: Api, case: str) -> None:
    text, status, slug = YAML_CASES[case]
    answer = plane.client().post("/api/v1/workloads", content=text, headers=YAML)
    if status == 201:
        assert answer.status_code == 201, answer.text
        assert plane.client().post(f"/api/v1/workloads/{answer.json()['id']}/cancel").status_code == 200
    else:
        assert_problem(answer, status, slug)


def test_secrets_of_the_namespace_that_work_runs_in_are_its_own(plane: Api) -> None:
    """No pod can name a Secret of another namespace, and the namespace is the Queue's, not the user's."""
    uses = spec(imagePullSecrets=[{"name": "mine"}], volumes=[{"name": "s", "secret": {"secretName": "mine"}}])
    container_ = uses["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    container_ |= {
        "envFrom": [{"secretRef": {"name": "mine"}}],
        "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "k"}}}],
    }
    answer = plane.client().post("/api/v1/workloads", json=uses)
    assert answer.status_code == 201, answer.text
    assert answer.json()["spec"]["namespace"] == "nlp"
    plane.client().post(f"/api/v1/workloads/{answer.json()['id']}/cancel")
    assert_problem(plane.client().post("/api/v1/workloads", json=metadata(namespace="vision")), 422, "pod-policy")


@pytest.mark.parametrize("image", ["team/train:latest", "team/train", "registry.example:5000/team/train:1"])
def test_an_image_without_a_digest_is_taken_with_a_warning(plane: Api, image: str) -> None:
    answer = plane.client().post("/api/v1/workloads", json=container(image=image))
    assert answer.status_code == 201, answer.text
    assert any(f"image {image} has no digest" in each["detail"] for each in answer.json()["warnings"])
    plane.client().post(f"/api/v1/workloads/{answer.json()['id']}/cancel")


def test_what_a_job_says_of_its_own_end_is_left_out_with_a_warning(plane: Api) -> None:
    answer = plane.client().post("/api/v1/workloads", json=job(ttlSecondsAfterFinished=0, backoffLimit=6))
    assert answer.status_code == 201, answer.text
    told = " ".join(each["detail"] for each in answer.json()["warnings"])
    assert "ttlSecondsAfterFinished is left out" in told
    assert "backoffLimit is left out" in told
    plane.client().post(f"/api/v1/workloads/{answer.json()['id']}/cancel")


def test_a_problem_names_the_place_of_each_mistake(plane: Api) -> None:
    wrong = workload(pod_set={"replicas": 0, "devices": "8"}, frobnicate=1)
    problem = plane.client().post("/api/v1/workloads", json=wrong).json()
    assert {each["pointer"]: each["slug"] for each in problem["errors"]} == {
        "/spec/podSets/0/replicas": "invalid-quantity",
        "/spec/podSets/0/devices": "invalid-quantity",
        "/spec/frobnicate": "unknown-field",
    }
    words = {each["pointer"]: each["detail"] for each in problem["errors"]}
    assert words["/spec/frobnicate"] == "there is no field frobnicate here"
    assert words["/spec/podSets/0/replicas"] == "replicas: Input should be greater than or equal to 1"


def _jwt(**header: str) -> str:
    """As others issue them; this plane's tokens are random words, so none of these says anything here."""
    parts = [{"typ": "JWT", **header}, {"sub": "root", "aud": "muster", "role": "platform-admin", "exp": 2**40}]
    words = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join((*words, "" if header["alg"] == "none" else "c2lnbmF0dXJl"))


@pytest.mark.parametrize(
    "token",
    [
        "mst_" + "x" * 43,
        "mst_",
        "x",
        _jwt(alg="none"),
        _jwt(alg="HS256", kid="plane"),
        _jwt(alg="ES256", kid="nobody"),
        _jwt(alg="RS256", typ="id+jwt"),
        "a" * 8_000,
    ],
)
def test_a_token_that_the_plane_did_not_make_is_refused_whatever_it_says_of_itself(plane: Api, token: str) -> None:
    answer = plane.client("").get("/api/v1/whoami", headers={"Authorization": f"Bearer {token}"})
    problem = assert_problem(answer, 401, "invalid-token")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert token not in json.dumps(problem) or token == "x"


@pytest.mark.parametrize(
    ("query", "slug"),
    [
        ("limit=0", "invalid-parameter"),
        ("limit=501", "invalid-parameter"),
        ("limit=x", "invalid-parameter"),
        ("offset=10", "invalid-parameter"),
        ("cursor=%01", "invalid-cursor"),
        ("state=flying", "invalid-filter"),
        ("label=x", "invalid-filter"),
        ("label=x%3D(a%2B)%2B%24", "invalid-filter"),
        ("label=x%3D" + "a" * 10_240, "invalid-filter"),
        ("name=(a%2B)%2B" + "a" * 700, "invalid-parameter"),
        ("queue=" + "a" * 700, "invalid-parameter"),
    ],
)
def test_parameters_are_checked(plane: Api, query: str, slug: str) -> None:
    assert_problem(plane.client().get(f"/api/v1/workloads?{query}"), 400, slug)


def test_a_path_and_a_method_that_are_not_there_are_problems_too(plane: Api) -> None:
    client = plane.client()
    assert_problem(client.get("/api/v1/nothing"), 404, "not-found")
    assert_problem(client.get("/api/v1/workloads/no-such"), 404, "not-found")
    assert_problem(client.get("/api/v1/workloads/00000000-0000-4000-8000-000000000000"), 404, "not-found")
    refused = client.put("/api/v1/workloads", json={})
    assert_problem(refused, 405, "method-not-allowed")
    assert refused.headers["Allow"]


def test_a_request_id_comes_back(plane: Api) -> None:
    client = plane.client()
    assert client.get("/api/v1/queues", headers={"X-Request-Id": "mine-1"}).headers["X-Request-Id"] == "mine-1"
    problem = client.get("/api/v1/nothing", headers={"X-Request-Id": "bad id!"})
    assert problem.headers["X-Request-Id"] == problem.json()["requestId"]
    assert len(problem.json()["requestId"]) == 32


def test_nothing_of_all_this_was_written(plane: Api) -> None:
    items = plane.client().get("/api/v1/workloads").json()["items"]
    assert [item["name"] for item in items if item["state"] != "cancelled"] == []


def test_a_sentence_is_said_once_and_several_mistakes_are_summed_up(plane: Api) -> None:
    one = plane.client().post("/api/v1/workloads", json=workload(queue="research/music")).json()
    assert one["detail"] == one["errors"][0]["detail"] == "there is no queue research/music"
    many = plane.client().post("/api/v1/workloads", json=workload(pod_set={"replicas": 0}, frobnicate=1)).json()
    assert many["detail"] == "2 mistakes, at /spec/podSets/0/replicas, /spec/frobnicate"
    parameters = plane.client().get("/api/v1/workloads?limit=0&nonsense=1").json()
    assert "limit: " in parameters["detail"]
    assert "nonsense: " in parameters["detail"]


def test_of_several_documents_the_wrong_one_is_named_and_its_place_counted_from_nought(plane: Api) -> None:
    queue = {
        "apiVersion": "muster.dev/v1",
        "kind": "Queue",
        "metadata": {"name": "research/new"},
        "spec": {"weight": -1},
    }
    problem = plane.client().post("/api/v1/apply", json=[workload(), queue]).json()
    assert problem["detail"].startswith("Queue research/new: weight: ")
    assert [each["pointer"] for each in problem["errors"]] == ["/1/spec/weight"]
    nameless = plane.client().post("/api/v1/apply", json=[workload(), {"kind": "Queue"}]).json()
    assert nameless["detail"].startswith("document /1: ")
