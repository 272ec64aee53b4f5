"""A whole federation on one machine: an embedded plane, two real Kubernetes clusters, and an agent process for each.

Agents have the rights that the chart renders and nothing else, and reach both their plane and their cluster through
proxies, so that links can be cut. One federation serves all stories; `reset` gives it back without work and without
nodes. Time-outs are policy, and short here.
"""

import contextlib
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx

from controlplane.contract.agent.attempts import ANNOTATION_RANK, LABEL_ATTEMPT, LABEL_WORKLOAD
from tests.helm.render import install_agent
from tests.kube.client import Json
from tests.kube.cluster import KubeCluster
from tests.kube.objects import KUBELET_LABEL, NodeShape
from tests.kube.processes import Program
from tests.kube.proxy import TcpProxy
from tests.support.planes import LivePlane, live_plane
from tests.support.waiting import eventually as asked_until

H100, A100 = "nvidia-h100-80gb", "nvidia-a100-80gb"
NAMESPACES = ("nlp", "vision")
SUSPECT_SECONDS, UNREACHABLE_SECONDS = 3, 6
NODE_LOST_SECONDS, EVIDENCE_SECONDS, EXCLUSION_SECONDS = 3, 8, 12
ANSWER_SECONDS = 60.0
"""How long a request may be repeated: some stories kill the API."""
STEP_SECONDS = 60.0
LIVE = "pending,reserved,running,stopping,cancelling"
TENANCY: tuple[Json, ...] = (
    {"kind": "Queue", "metadata": {"name": "lab"}, "spec": {"quotas": [{"flavor": H100}, {"flavor": A100}]}},
    *(
        {
            "kind": "Queue",
            "metadata": {"name": f"lab/{name}"},
            "spec": {"namespace": name, "quotas": [{"flavor": H100, "nominal": 0}, {"flavor": A100, "nominal": 0}]},
        }
        for name in NAMESPACES
    ),
    {
        "kind": "Policy",
        "metadata": {"name": "default"},
        "spec": {
            "nodeLostSeconds": NODE_LOST_SECONDS,
            "evidenceSeconds": EVIDENCE_SECONDS,
            "exclusionSeconds": EXCLUSION_SECONDS,
            "backoffSeconds": 1,
        },
    },
)

PAUSE_SECONDS = 0.25
"""Between two looks: each is work for the API and for the machine that all of this shares."""

T = TypeVar("T")


def eventually(check: Callable[[], T], within: float, what: str) -> T:
    return asked_until(check, within, what, PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of ours as the API server shows it."""

    name: str
    node: str
    pinned: str
    rank: int
    phase: str
    is_gated: bool
    attempt: int
    raw: Json

    @classmethod
    def of(cls, raw: Json) -> "Pod":
        spec, metadata = raw["spec"], raw["metadata"]
        return cls(
            name=metadata["name"],
            node=spec.get("nodeName", ""),
            pinned=(spec.get("nodeSelector") or {}).get("kubernetes.io/hostname", ""),
            rank=int(metadata["annotations"].get(ANNOTATION_RANK, -1)),
            phase=raw["status"].get("phase", ""),
            is_gated=bool(spec.get("schedulingGates")),
            attempt=int(metadata["labels"][LABEL_ATTEMPT]),
            raw=raw,
        )

    @property
    def is_ending(self) -> bool:
        return "deletionTimestamp" in self.raw["metadata"]


@dataclass(slots=True)
class Site:
    """One workload cluster with its agent."""

    name: str
    kube: KubeCluster
    to_plane: TcpProxy
    agent: Program

    def pods_of(self, workload: Json) -> list[Pod]:
        """Its pods that are there now, by rank."""
        found = self.kube.client.list_all("Pod", labels=f"{LABEL_WORKLOAD}={workload['id']}")
        return sorted(map(Pod.of, found), key=lambda pod: (pod.rank, pod.name))

    def pod_history(self, workload: Json, since: str) -> list[Pod]:
        """Every state of its pods since that version of the cluster, in order; the last one of a pod is its end."""
        events = self.kube.client.events_since(since, "Pod", f"{LABEL_WORKLOAD}={workload['id']}")
        return [Pod.of(event["object"]) for event in events]

    def objects_of(self, workload: Json | None = None) -> list[str]:
        """Objects of every kind that we make, of one Workload or of all, as words."""
        labels = f"{LABEL_WORKLOAD}={workload['id']}" if workload else LABEL_WORKLOAD
        return [
            f"{kind} {raw['metadata']['name']}"
            for kind in ("Pod", "Job", "Service")
            for raw in self.kube.client.list_all(kind, labels=labels)
        ]

    def evict(self, namespace: str, name: str) -> None:
        """As a drain does: by the eviction API, which marks the pod as disrupted."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        self.kube.client.request("POST", f"{self.kube.client.path('Pod', namespace, name)}/eviction", json=body)

    def now(self) -> str:
        """A point from which `pod_history` may begin."""
        return self.kube.client.version_now("Pod")

    def kill_agent(self) -> None:
        """`kill -9`, and the kubelet's restart."""
        self.agent.kill()
        self.agent.start()


@dataclass(slots=True)
class Federation:
    """The plane and its clusters."""

    plane: LivePlane
    east: Site
    west: Site
    http: httpx.Client

    @property
    def sites(self) -> tuple[Site, Site]:
        return self.east, self.west

    # The plane's API

    def ask(self, method: str, path: str, body: object = None, **query: str) -> Json:
        """A request, repeated while the API is away; one with a body is known by its key, so it happens once."""
        headers = {"Idempotency-Key": uuid.uuid4().hex} if method == "POST" else {}
        deadline = time.monotonic() + ANSWER_SECONDS

        def answered() -> httpx.Response | None:
            try:
                answer = self.http.request(method, path, json=body, params=query, headers=headers)
            except httpx.HTTPError as error:
                raise AssertionError(f"{method} {path}: {error}") from error
            assert answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR, answer.text
            return answer

        answer = eventually(answered, deadline - time.monotonic(), what=f"an answer to {method} {path}")
        assert answer is not None
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        found: Json = answer.json() if answer.content else {}
        return found

    def apply(self, documents: Iterable[Json]) -> None:
        """All of them, or none."""
        self.ask("POST", "/apply", [{"apiVersion": "muster.dev/v1", **document} for document in documents])

    def submit(self, document: Json) -> Json:
        """A Workload document or a Job; returns what the plane made of it."""
        return self.ask("POST", "/workloads", document)

    def cancel(self, workload: Json) -> None:
        self.ask("POST", f"/workloads/{workload['id']}/cancel")

    def workload(self, workload: Json) -> Json:
        return self.ask("GET", f"/workloads/{workload['id']}")

    def attempts(self, workload: Json) -> list[Json]:
        """Its Attempts, oldest first."""
        return sorted(self.workload(workload)["attempts"], key=lambda each: int(each["attempt"]))

    def explain(self, workload: Json) -> str:
        """What a researcher reads."""
        return str(self.ask("GET", f"/workloads/{workload['id']}/explain")["text"])

    def usage(self, queue: str, flavor: str = H100) -> Json:
        """The Queue's account of that Flavor."""
        quotas = self.ask("GET", f"/queues/{queue}")["quotas"]
        return next(each for each in quotas if each["flavor"] == flavor)

    def cluster(self, site: Site) -> Json:
        return self.ask("GET", f"/clusters/{site.name}")

    def nodes(self, **query: str) -> list[Json]:
        found: list[Json] = self.ask("GET", "/nodes", limit="500", **query)["items"]
        return found

    def live(self) -> list[Json]:
        found: list[Json] = self.ask("GET", "/workloads", state=LIVE, limit="500")["items"]
        return found

    def audit(self, kind: str) -> list[Json]:
        """What was done to things of that kind, youngest first."""
        found: list[Json] = self.ask("GET", "/audit", kind=kind, limit="200")["items"]
        return found

    def doctor(self) -> list[str]:
        """Every broken invariant, as words."""
        return [f"{each['invariant']} {each['detail']}" for each in self.ask("GET", "/doctor")["violations"]]

    # Waiting

    def wait_for(self, ask: Callable[[], T], what: str, within: float = STEP_SECONDS) -> T:
        return eventually(ask, within, what)

    def wait_state(self, workload: Json, *states: str, within: float = STEP_SECONDS) -> Json:
        """Until it is in one of the states; a failure tells what `explain` says."""

        def look() -> Json:
            seen = self.workload(workload)
            assert seen["state"] in states, f"{seen['name']} is {seen['state']}"
            return seen

        try:
            return eventually(look, within, what=f"{workload['name']} {' or '.join(states)}")
        except AssertionError as error:
            told = [f"{each['attempt']} {each['state']} {each['outcome']}" for each in self.attempts(workload)]
            raise AssertionError(f"{error}; attempts: {told}; explain: {self.explain(workload)}") from error

    def wait_cluster(self, site: Site, *states: str) -> Json:
        def look() -> Json:
            seen = self.cluster(site)
            assert seen["state"] in states, f"{site.name} is {seen['state']}"
            return seen

        return eventually(look, STEP_SECONDS, what=f"{site.name} {' or '.join(states)}")

    # What there is

    def add_nodes(self, site: Site, count: int, shape: NodeShape, prefix: str = "node") -> list[str]:
        """Nodes that the plane knows of when this returns."""
        names = site.kube.add_nodes(count, shape, prefix)
        eventually(
            lambda: set(names) <= {each["name"] for each in self.nodes(cluster=site.name) if each["ready"]},
            STEP_SECONDS,
            what=f"{count} nodes of {site.name} in the plane",
        )
        return names

    def set_quotas(self, nominal: Mapping[str, int], flavor: str = H100, **others: int) -> None:
        """Nominal quota of leaf Queues by their last name; `others`: borrow, lend."""
        self.apply(
            {
                "kind": "Queue",
                "metadata": {"name": f"lab/{name}"},
                "spec": {"namespace": name, "quotas": [{"flavor": flavor, "nominal": units, **others}]},
            }
            for name, units in nominal.items()
        )

    def reset(self) -> None:
        """No work, no nodes, everything heard of again, quotas and policy as at first."""
        for site in self.sites:
            site.to_plane.heal()
        for each in self.live():
            with contextlib.suppress(AssertionError):  # ended by itself in between
                self.cancel(each)
        for site in self.sites:
            for namespace in NAMESPACES:
                for raw in site.kube.client.list_all("Job", namespace, labels=f"!{LABEL_WORKLOAD}"):
                    site.kube.client.delete("Job", raw["metadata"]["name"], namespace)
                site.kube.client.delete_all("Pod", namespace, labels=f"!{LABEL_WORKLOAD}")
            for raw in site.kube.client.list_all("Node", labels=KUBELET_LABEL):  # a real kubelet is nobody's to play
                site.kube.mend_node(raw["metadata"]["name"])
        eventually(lambda: not self.live(), STEP_SECONDS, what="the end of all work")
        self.apply(TENANCY)
        for site in self.sites:
            eventually(lambda here=site: not here.objects_of(), STEP_SECONDS, what=f"an empty {site.name}")  # type: ignore[misc]  # a default binds the loop's variable
            site.kube.client.delete_all("Node")
        eventually(lambda: not self.nodes(), STEP_SECONDS, what="no nodes in the plane")
        for site in self.sites:
            self.wait_cluster(site, "ready")


def gang(
    name: str,
    pods: int,
    *,
    queue: str = "lab/nlp",
    devices: int = 8,
    flavor: str = H100,
    **spec: object,
) -> Json:
    """A Workload document with one PodSet; how its pods live, tests say to the pods."""
    rack = {"topology": {"required": spec.pop("rack")}} if "rack" in spec else {}
    container = {"name": "main", "image": "registry.example/train@sha256:" + "0" * 64, "command": ["train"]}
    template = {"spec": {"containers": [container]}}
    flavors = [{"name": flavor}]
    pod_set = {"name": "main", "replicas": pods, "devices": devices, "flavors": flavors, "template": template, **rack}
    return {
        "apiVersion": "muster.dev/v1",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {"queue": queue, "podSets": [pod_set], **spec},
    }


def environment_of(pod: Pod) -> dict[str, str]:
    """What its container is told, with references to its own fields resolved as a kubelet would."""
    found = {}
    for each in pod.raw["spec"]["containers"][0]["env"]:
        if "value" in each:
            found[each["name"]] = each["value"]
        else:
            field, _, key = each["valueFrom"]["fieldRef"]["fieldPath"].partition("['")
            found[each["name"]] = pod.raw["metadata"][field.removeprefix("metadata.")][key.removesuffix("']")]
    return found


@contextmanager
def federation(folder: Path, kubes: Sequence[KubeCluster]) -> Iterator[Federation]:
    """The whole of it, enrolled, accepted and ready."""
    settings = {"MUSTER_SWEEP_SECONDS": "1", "MUSTER_POLL_SECONDS": "5"}
    with ExitStack() as stack:
        plane = stack.enter_context(live_plane(folder / "home", settings))
        headers = {"Authorization": f"Bearer {plane.admin_token}"}
        http = httpx.Client(base_url=f"{plane.api_url}/api/v1", headers=headers, timeout=10, trust_env=False)
        stack.callback(http.close)
        east, west = (_site(stack, name, kube, plane) for name, kube in zip(("east", "west"), kubes, strict=True))
        whole = Federation(plane, east, west, http)
        whole.apply(TENANCY)
        for site in whole.sites:
            _enrol(whole, site, folder / site.name)
        for site in whole.sites:
            whole.wait_cluster(site, "enrolled")
            whole.ask("POST", f"/clusters/{site.name}/accept")
        for site in whole.sites:
            whole.wait_cluster(site, "ready")
        yield whole


def _site(stack: ExitStack, name: str, kube: KubeCluster, plane: LivePlane) -> Site:
    stack.callback(kube.reset)
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}} for each in NAMESPACES)
    for each in NAMESPACES:
        kube.wait_for(lambda where=each: kube.client.find("ServiceAccount", "default", where), f"account in {each}")  # type: ignore[misc]  # a default binds the loop's variable
    installed = install_agent(kube, NAMESPACES)
    link = stack.enter_context(TcpProxy(int(plane.agent_url.rpartition(":")[2])))
    folder = plane.home.path.parent / name
    folder.mkdir()
    command = [
        "env", f"MUSTER_AGENT_INSTANCE={name}", "MUSTER_AGENT_BACKOFF_SECONDS_MAX=1",
        sys.executable, "-m", "agents.main", "run", "--kubeconfig", str(installed.kubeconfig),
        "--policy-file", str(installed.policy_file), "--plane-url", f"http://127.0.0.1:{link.port}",
        "--cluster", name, "--token-file", str(folder / "token"),
    ]  # fmt: skip
    agent = Program("agent", command, folder)
    stack.callback(agent.kill)
    return Site(name, kube, link, agent)


def _enrol(whole: Federation, site: Site, folder: Path) -> None:
    """Make the Cluster with a one-time token, and start its agent with it."""
    spec = {"suspectSeconds": SUSPECT_SECONDS, "unreachableSeconds": UNREACHABLE_SECONDS}
    made = whole.ask("POST", "/clusters", {"name": site.name, "spec": spec, "tokenValid": "1h"})
    (folder / "token").touch(mode=0o600)
    (folder / "token").write_text(made["token"])
    site.agent.start()
