"""The plane's chart: pods locked down and told what they read, hooks that come first, values that cannot mean harm."""

import importlib.util
import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from controlplane.api.routes import health
from controlplane.settings import Settings
from tests.helm.render import PLANE_CHART, PLANE_VALUES, Refused, render_plane
from tests.helm.values import PLANE_BARE, PLANE_EVERYTHING
from tests.kube.client import Json

ROLES = {"api": 2, "worker": 2, "planner": 2, "beat": 1}
SECRETS_OF_SERVERS = {"DATABASE_URL", "REDIS_URL"}
CASES = {"least": PLANE_VALUES, "bare": PLANE_BARE, "everything": PLANE_EVERYTHING}


def of_kind(manifests: list[Json], kind: str) -> dict[str, Json]:
    """Objects of a kind by name, without the chart's prefix."""
    found = [each for each in manifests if each["kind"] == kind]
    return {each["metadata"]["name"].removeprefix("muster-"): each for each in found}


def pods(manifests: list[Json]) -> dict[str, Json]:
    """The pod template of each Deployment and Job, by name."""
    owners = {**of_kind(manifests, "Deployment"), **of_kind(manifests, "Job")}
    return {name: owner["spec"]["template"]["spec"] for name, owner in owners.items()}


def environment(pod: Json) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in pod["containers"][0].get("env", [])}


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_every_pod_is_locked_down(values: Mapping[str, object]) -> None:
    for name, pod in pods(render_plane(values)).items():
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["runAsUser"] == 65532, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
        }, name  # fmt: skip
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name
        assert "memory" in container["resources"]["limits"], name


def test_what_is_said_of_all_pods_holds_for_those_of_hooks_too() -> None:
    """Where only some nodes may be used, a hook that knows nothing of it would keep the release from ever starting."""
    chosen = {name: PLANE_EVERYTHING[name] for name in ("priorityClassName", "nodeSelector", "tolerations", "affinity")}
    for name, pod in pods(render_plane(PLANE_EVERYTHING)).items():
        assert {each: pod.get(each) for each in chosen} == chosen, name


def test_every_pod_that_speaks_to_the_servers_finds_who_vouches_for_them_where_the_values_say() -> None:
    """The example addresses check certificates: of Postgres by a file that is named, since its client has none."""
    told = (PLANE_CHART / "values.yaml").read_text()
    file = "/etc/muster/trust/ca.crt"
    assert "sslmode=verify-full&sslrootcert=/etc/ssl/certs/ca-certificates.crt`" in told
    assert f"sslrootcert={file}" in told
    assert f"ssl_ca_certs={file}" in told
    for name, pod in pods(render_plane(PLANE_EVERYTHING)).items():
        if not environment(pod).keys() & SECRETS_OF_SERVERS:
            assert name == "signing-key"
            continue
        (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "trust")
        (volume,) = (each for each in pod["volumes"] if each["name"] == "trust")
        (item,) = volume["configMap"]["items"]
        assert f"{mount['mountPath']}/{item['path']}" == file, name
        assert (volume["configMap"]["name"], item["key"]) == ("company-authorities", "bundle.pem"), name
        assert mount["readOnly"], name
    for name, pod in pods(render_plane()).items():
        assert "trust" not in {each["name"] for each in pod["volumes"]}, name


def test_helm_is_told_to_wait_for_hooks_as_long_as_they_may_take() -> None:
    """By itself it waits five minutes; then it fails, and the next try ends the migration that is under way."""
    values = yaml.safe_load((PLANE_CHART / "values.yaml").read_text())
    told = re.findall(r"^(helm (?:install|upgrade) .*)$", (PLANE_CHART / "README.md").read_text(), re.MULTILINE)
    assert told
    for line in told:
        waits = re.search(r" --timeout (\d+)m\b", line)
        assert waits, line
        assert int(waits[1]) * 60 >= values["migration"]["seconds"], line


def test_no_pod_but_the_hook_that_makes_the_key_has_a_token() -> None:
    manifests = render_plane()
    with_token = [name for name, pod in pods(manifests).items() if pod["automountServiceAccountToken"]]
    assert with_token == ["signing-key"]
    (role,) = of_kind(manifests, "Role").values()
    assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}]
    assert not of_kind(manifests, "ClusterRole")


def test_all_four_run_as_often_as_they_must() -> None:
    bare = of_kind(render_plane(PLANE_BARE), "Deployment")
    assert {name: each["spec"]["replicas"] for name, each in bare.items()} == ROLES
    manifests = render_plane()
    scaled = of_kind(manifests, "HorizontalPodAutoscaler")
    assert scaled.keys() == {"api", "worker"}
    replicas = {name: each["spec"].get("replicas") for name, each in of_kind(manifests, "Deployment").items()}
    assert replicas == {"api": None, "worker": None, "planner": 2, "beat": 1}, "an upgrade would undo the scaling"
    assert all(each["spec"]["minReplicas"] >= 2 for each in scaled.values())
    assert of_kind(manifests, "PodDisruptionBudget").keys() == {"api", "worker", "planner"}


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_every_process_is_told_only_what_it_reads(values: Mapping[str, object]) -> None:
    known = {f"MUSTER_{field}".upper() for field in Settings.model_fields} | SECRETS_OF_SERVERS
    manifests = render_plane(values)
    for name, pod in pods(manifests).items():
        assert environment(pod).keys() <= known, name
        module = pod["containers"][0]["command"][2]
        assert importlib.util.find_spec(module), f"{name} would start {module}, which is not there"
    api = environment(pods(manifests)["api"])
    assert api["MUSTER_AGENT_URL"].startswith("https://")
    assert api["MUSTER_SECRETS_DIR"] == "/etc/muster/keys"
    mounts = {each["mountPath"] for each in pods(manifests)["api"]["containers"][0]["volumeMounts"]}
    files = [path for name, path in api.items() if name.startswith("MUSTER_TLS")]
    assert {path.rpartition("/")[0] for path in files} <= mounts


def test_no_secret_stands_in_a_manifest() -> None:
    manifests = render_plane(PLANE_EVERYTHING)
    assert not of_kind(manifests, "Secret")
    for name, pod in pods(manifests).items():
        for variable in (each for each in pod["containers"][0].get("env", []) if each["name"] in SECRETS_OF_SERVERS):
            assert "secretKeyRef" in variable["valueFrom"], name


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_probes_ask_what_the_processes_answer(values: Mapping[str, object]) -> None:
    api_paths = {str(getattr(route, "path", "")) for route in health.alive.routes}
    found = pods(render_plane(values))
    for name in ROLES:
        (container,) = found[name]["containers"]
        ports = {each["name"] for each in container["ports"]}
        answered = api_paths if name == "api" else {"/livez", "/readyz"}
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[kind]["httpGet"]
            assert asked["port"] in ports, f"{name} {kind}"
            assert asked["path"] in answered, f"{name} {kind}"
        assert container["readinessProbe"]["httpGet"]["path"] != container["livenessProbe"]["httpGet"]["path"]
    is_plain = values is PLANE_BARE
    assert found["api"]["containers"][0]["livenessProbe"]["httpGet"]["scheme"] == ("HTTP" if is_plain else "HTTPS")


def test_an_api_pod_goes_after_balancers_have_left_it() -> None:
    pod = pods(render_plane())["api"]
    seconds = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert 5 <= seconds <= pod["terminationGracePeriodSeconds"] - 10
    deployment = of_kind(render_plane(), "Deployment")["api"]
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_the_key_and_then_the_schema_come_before_anything_starts() -> None:
    hooks = [each for each in render_plane() if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    weights = {
        (each["kind"], each["metadata"]["name"]): int(each["metadata"]["annotations"]["helm.sh/hook-weight"])
        for each in hooks
    }
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in hooks} == {"pre-install,pre-upgrade"}
    assert weights["Role", "muster-signing-key"] < weights["Job", "muster-signing-key"] < 0
    assert weights["Job", "muster-migration"] == 0
    used = {pod.get("serviceAccountName") for name, pod in pods(hooks).items()}
    assert used == {"muster-signing-key", None}, "an account of the release itself is not there yet"


def test_all_pods_of_the_plane_are_under_a_network_policy_and_nobody_else_is() -> None:
    manifests = render_plane()
    policies = of_kind(manifests, "NetworkPolicy")
    chosen = {
        name: set(policy["spec"]["podSelector"].get("matchExpressions", [{"values": ["api"]}])[0]["values"])
        for name, policy in policies.items()
    }
    assert chosen["api"] | chosen["processes"] == chosen["egress"] == {*ROLES, "migration"}
    assert "ingress" not in policies["processes"]["spec"], "metrics are for nobody unless somebody is named"
    ports = [rule["port"] for each in policies["egress"]["spec"]["egress"] for rule in each["ports"]]
    assert ports == [53, 53, 5432, 6379]
    open_to = render_plane(PLANE_EVERYTHING)
    rules = of_kind(open_to, "NetworkPolicy")
    assert rules["processes"]["spec"]["ingress"][0]["ports"] == [{"port": "health"}]
    assert all("from" in rule for rule in rules["api"]["spec"]["ingress"])
    assert "to" in rules["egress"]["spec"]["egress"][1]


def test_services_lead_to_the_two_listeners() -> None:
    manifests = render_plane()
    services = of_kind(manifests, "Service")
    ports = {each["name"] for each in pods(manifests)["api"]["containers"][0]["ports"]}
    assert {name: each["spec"]["ports"][0]["targetPort"] for name, each in services.items()} == {
        "people": "people", "agents": "agents",
    }  # fmt: skip
    assert ports == {"people", "agents"}
    for service in services.values():
        assert service["spec"]["selector"]["app.kubernetes.io/component"] == "api"


def test_cert_manager_makes_the_certificate_that_the_pods_mount() -> None:
    manifests = render_plane(PLANE_EVERYTHING)
    (certificate,) = of_kind(manifests, "Certificate").values()
    volumes = {each["name"]: each for each in pods(manifests)["api"]["volumes"]}
    assert volumes["tls"]["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert certificate["spec"]["issuerRef"] == {"name": "company", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    assert not of_kind(render_plane(), "Certificate")


ELSEWHERE = {"terminatedElsewhere": True}
INSIDE = {"url": "https://a.example.com", "service": {"type": "ClusterIP"}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"agents": {"url": ""}}, "/agents/url"),
        ({"agents": {"url": "http://agents.example.com"}}, "/agents/url"),
        ({"agents": {"url": "https://user:word@agents.example.com"}}, "/agents/url"),
        ({"tls": ELSEWHERE}, "agents.service.type: LoadBalancer would carry plain HTTP out of the pod network"),
        (
            {"tls": ELSEWHERE, "agents": INSIDE, "people": {"service": {"type": "NodePort"}}},
            "people.service.type: NodePort would carry plain HTTP out of the pod network",
        ),
        ({"tls": {**ELSEWHERE, "certManager": {"enabled": True}}, "agents": INSIDE}, "tls: with terminatedElsewhere"),
        ({"tls": {"certManager": {"enabled": True}}}, "tls.certManager.dnsNames"),
        ({"tls": {"certManager": {"enabled": True, "dnsNames": ["a.example"]}}}, "tls.certManager.issuer.name"),
        ({"tls": {"key": "-----BEGIN PRIVATE KEY-----"}}, "key"),
        ({"people": {"ingress": {"enabled": True}}}, "people.ingress.host"),
        ({"planner": {"replicas": 1}}, "/planner/replicas"),
        ({"beat": {"replicas": 2}}, "replicas"),
        ({"api": {"autoscaling": {"replicasMin": 4, "replicasMax": 3}}}, "replicasMin 4 is above replicasMax 3"),
        ({"api": {"replicas": "two"}}, "/api/replicas"),
        ({"database": {"url": "postgresql://u:p@h/d"}}, "url"),
        ({"database": {"secretName": "Not A Name"}}, "/database/secretName"),
        ({"database": {"role": "muster-app; DROP"}}, "/database/role"),
        ({"settings": {"MUSTER_AGENT_URL": "https://b.example"}}, "/settings/MUSTER_AGENT_URL"),
        ({"settings": {"PATH": "/bin"}}, "PATH"),
        ({"settings": {"MUSTER_POLL_SECONDS": 5}}, "/settings/MUSTER_POLL_SECONDS"),
        ({"networkPolicy": {"egressPorts": []}}, "/networkPolicy/egressPorts"),
        ({"networkPolicy": {"peopleFrom": [{"cidr": "10.0.0.0/8"}]}}, "/networkPolicy/peopleFrom/0"),
        ({"image": {"tag": "latest"}}, "/image/tag"),
        ({"image": {"digest": "sha256:short"}}, "/image/digest"),
        ({"listenOn": "127.0.0.1"}, "/listenOn"),
        ({"anything": 1}, "anything"),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name(change: dict[str, object], words: str) -> None:
    with pytest.raises(Refused, match=re.escape(words)):
        render_plane({**PLANE_VALUES, **change})


def test_what_the_chart_sets_cannot_be_set_beside_it() -> None:
    manifests = render_plane(PLANE_EVERYTHING)
    given = {name for role in ROLES for name in environment(pods(manifests)[role])} - {"MUSTER_LEASE_SECONDS"}
    for name in given - SECRETS_OF_SERVERS:
        with pytest.raises(Refused, match=f"/settings/{name}"):
            render_plane({**PLANE_VALUES, "settings": {name: "1"}})


def test_the_way_to_the_first_token_is_told_and_is_one_that_keeps_it_off_the_screen() -> None:
    for file in (PLANE_CHART / "README.md", PLANE_CHART / "templates/NOTES.txt"):
        told = " ".join(file.read_text().split())
        assert (
            "exec deployment/muster-api -- \\ python -m controlplane.install first-admin --file - > admin-token)"
            in told
        )
        assert "(umask 077; kubectl" in told
    assert pods(render_plane())["api"]["containers"][0]["name"] == "api"
