"""A real Kubernetes control plane on loopback, with KWOK for its kubelets, as a context manager.

It starts and ends the programs of `build.py` and knows how nodes break; what pods do is written in `stages.yaml`. No
container ever runs here: no signals reach a program, and no DNS answers.
"""

import base64
import json
import secrets
import shutil
import ssl
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Self, TypeVar

import httpx

from tests.kube import build, commands, pki
from tests.kube.client import Json, KubeClient, KubeError
from tests.kube.commands import API_SERVER, ETCD, KWOK, MANAGER, SCHEDULER
from tests.kube.objects import ALIVE, DEAD, KUBELET_LABEL, NodeShape, node
from tests.kube.processes import Program, ProgramDied

READY_SECONDS_MAX = 60.0
POLL_SECONDS = 0.1
STARTS_MAX = 3
TOKEN_SECONDS = 3600
OURS = "app.kubernetes.io/part-of=muster"
"""Marks what our charts put beside namespaces; `reset` deletes it."""

SYSTEM_NAMESPACES = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})
CLUSTER_KINDS = (
    "ClusterRoleBinding",
    "ClusterRole",
    "PriorityClass",
    "FlowSchema",
    "PriorityLevelConfiguration",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
)


T = TypeVar("T")


class KubeCluster:
    """One cluster in one folder. `client` is the administrator's; `create`, `get` … are its methods, for short."""

    def __init__(self, name: str, folder: Path, programs: Path | None = None) -> None:
        self.name = name
        self.folder = folder
        self._programs_folder = programs or build.programs()
        self._programs: dict[str, Program] = {}
        self._token, self._node_token = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self._client: KubeClient | None = None
        self._health: dict[str, str] = {}
        self.port = 0
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Life of the cluster

    def start(self) -> None:
        """Begin empty; return when pods can be created, scheduled and run, after about four seconds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        pki.write(self.folder)
        for remaining in reversed(range(STARTS_MAX)):
            try:
                self._start_programs()
            except ProgramDied:
                self.stop()
                if not remaining:  # else somebody may have taken one of our ports in between: try others
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return

    def stop(self) -> None:
        """End everything, the API server before its etcd. Nothing is worth a graceful end: the data is thrown away."""
        if self._client is not None:
            self._client.close()
            self._client = None
        for name in (KWOK, SCHEDULER, MANAGER, API_SERVER, ETCD):
            if name in self._programs:
                self._programs.pop(name).kill()

    def pause(self, program: str = API_SERVER) -> None:
        """Freeze a program: connections stay open and nothing answers."""
        self._programs[program].freeze()

    def resume(self, program: str = API_SERVER) -> None:
        self._programs[program].thaw()

    def kill(self, program: str = API_SERVER) -> None:
        """End a program for now: connections are refused."""
        self._programs[program].kill()

    def restart(self, program: str = API_SERVER) -> None:
        """Start a killed program again where it was."""
        self._programs[program].kill()
        self._programs[program].start()
        self.wait_for(self._answers_ready, f"{program} of {self.name} to be back")

    @property
    def pids(self) -> list[int]:
        return [program.pid for program in self._programs.values() if program.is_running()]

    # Whom to be

    @property
    def client(self) -> KubeClient:
        assert self._client is not None, "the cluster is not running"
        return self._client

    def another_client(self) -> KubeClient:
        """The administrator's too, for another thread; whoever asks closes it."""
        return KubeClient(self.url, self._token, str(self.folder / "ca.crt"))

    @property
    def kubeconfig(self) -> Path:
        """The administrator's, exempt from RBAC and from API priority and fairness."""
        return self.folder / "admin.kubeconfig"

    def service_account_kubeconfig(
        self, namespace: str, name: str, ttl_seconds: int = TOKEN_SECONDS, url: str | None = None
    ) -> Path:
        """A kubeconfig with a fresh token of that ServiceAccount; `url` leads through a proxy instead of directly."""
        path = self.folder / f"{namespace}-{name}-{secrets.token_hex(4)}.kubeconfig"
        self._write_kubeconfig(path, self.service_account_token(namespace, name, ttl_seconds), url)
        return path

    def write_node_kubeconfig(self, path: Path) -> None:
        """For the kubelet of the real node, with a node's rights."""
        self._write_kubeconfig(path, self._node_token, None)

    def service_account_token(self, namespace: str, name: str, ttl_seconds: int = TOKEN_SECONDS) -> str:
        """At least 600 seconds of life: the API server grants no less."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": ttl_seconds},
        }
        path = self.client.path("ServiceAccount", namespace, name) + "/token"
        # The API server may not have seen yet, in its own cache, an account that it has just made.
        answer = self.wait_for(lambda: self.client.request("POST", path, json=request), f"a token of {name}")
        return str(answer["status"]["token"])

    def client_of(self, namespace: str, name: str) -> KubeClient:
        """Speak as a ServiceAccount, with its rights only."""
        return KubeClient(self.url, self.service_account_token(namespace, name), str(self.folder / "ca.crt"))

    @property
    def tls(self) -> ssl.SSLContext:
        """Trusts this cluster's CA and nothing else."""
        return ssl.create_default_context(cafile=str(self.folder / "ca.crt"))

    # What is in it

    def add_nodes(self, count: int, shape: NodeShape | None = None, prefix: str = "node") -> list[str]:
        """Nodes prefix-0 … prefix-(count-1), Ready from the first moment."""
        names = [f"{prefix}-{index}" for index in range(count)]
        for index, name in enumerate(names):
            self.client.create(node(name, index, shape or NodeShape()))
        return names

    def new_namespace(self, prefix: str = "team") -> str:
        """A namespace that no other test has, ready for pods."""
        name = f"{prefix}-{secrets.token_hex(3)}"
        self.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.wait_for(lambda: self.client.find("ServiceAccount", "default", name), f"the account of namespace {name}")
        return name

    def apply(self, manifests: Iterable[Json]) -> list[Json]:
        return self.client.apply(manifests)

    def stop_kubelet(self, name: str) -> None:
        """Let a machine die without a word: nothing on it moves any more, and nobody knows yet."""
        self._label_kubelet(name, DEAD)

    def mark_node(self, name: str, status: str = "Unknown") -> None:
        """Write what the node controller would write after its grace: Ready Unknown, or False for a sick kubelet.

        The controllers then add their taints and mark the pods by themselves, within a second or two.
        """
        ready = {"type": "Ready", "status": status, "reason": "NodeStatusUnknown", "message": "broken by the test"}
        ready["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body: Json = {"status": {"conditions": [ready]}}
        self.client.patch("Node", name, body, how="strategic", subresource="status")

    def break_node(self, name: str) -> None:
        """A dead machine that everybody knows of."""
        self.stop_kubelet(name)
        self.mark_node(name)

    def mend_node(self, name: str) -> None:
        """The machine is back; its kubelet says Ready and takes care of its pods again."""
        self._label_kubelet(name, ALIVE)

    def delete_node(self, name: str) -> None:
        """The Node object goes; its pods stay until somebody collects them, up to a minute, as in life."""
        self.client.delete("Node", name)

    def end_pod(self, namespace: str, name: str, exit_code: int = 0) -> None:
        """End the containers of a running pod now, as its kubelet would report it."""
        pod = self.client.get("Pod", name, namespace)
        ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
        containers = [
            {**status, "ready": False, "started": False, "state": {"terminated": ended}}
            for status in pod["status"]["containerStatuses"]
        ]
        body: Json = {"status": {"phase": "Failed" if exit_code else "Succeeded", "containerStatuses": containers}}
        body["status"]["conditions"] = [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")]
        self.client.patch("Pod", name, body, namespace, how="strategic", subresource="status")

    def reset(self) -> None:
        """Give the cluster back as new: all programs run, no nodes, no namespaces in use, nothing of our charts."""
        self._revive()
        names = [each["metadata"]["name"] for each in self.client.list_all("Namespace")]
        namespaces = [name for name in names if name not in SYSTEM_NAMESPACES]
        for namespace in namespaces:
            self.client.delete("Namespace", namespace)  # from here on nothing new can be made in it
        for kind in self.client.namespaced_kinds():
            inhabited = {each["metadata"]["namespace"] for each in self.client.list_all(kind)}
            for namespace in sorted(inhabited.intersection(namespaces)):
                self.client.delete_all(kind, namespace)
        for kind in CLUSTER_KINDS:
            self.client.delete_all(kind, labels=OURS)
        self.client.delete_all("Node")
        self.wait_for(self._is_empty, f"{self.name} to be empty")
        for namespace in namespaces:
            self.wait_for(lambda namespace=namespace: self._finalize(namespace), f"namespace {namespace} to go")  # type: ignore[misc]  # mypy cannot infer a lambda with a default

    def wait_for(self, ask: Callable[[], T], what: str, seconds_max: float = READY_SECONDS_MAX) -> T:
        """Ask until the answer is true and return it; a refused or missing answer counts as not yet."""
        deadline = time.monotonic() + seconds_max
        while True:
            for program in self._programs.values():
                program.check()
            try:
                if answer := ask():
                    return answer
                last: object = answer
            except (KubeError, httpx.HTTPError) as error:
                last = error
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {seconds_max} s for {what}; last answer: {last!r}")
            time.sleep(POLL_SECONDS)

    def _start_programs(self) -> None:
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)
        ports = commands.Ports.free()
        self.port = ports.api_server
        self.url = f"https://127.0.0.1:{ports.api_server}"
        self._write_kubeconfig(self.kubeconfig, self._token, None)
        commands.write_files(self.folder, self._token, self._node_token)
        lines = commands.command_lines(self._programs_folder, self.folder, ports)
        self._programs = {name: Program(name, line, self.folder) for name, line in lines.items()}
        self._client = self.another_client()
        self._health = commands.health_urls(ports)
        for name in (ETCD, API_SERVER):
            self._programs[name].start()
        self.wait_for(self._answers_ready, f"the API server of {self.name}")
        for name in (MANAGER, SCHEDULER, KWOK):
            self._programs[name].start()
        self.wait_for(self._is_complete, f"controllers, scheduler and KWOK of {self.name}")

    def _revive(self) -> None:
        for program in self._programs.values():
            if program.is_running():
                program.thaw()
            else:
                program.start()
        self.wait_for(self._answers_ready, f"the API server of {self.name}")
        self.wait_for(self._is_complete, f"controllers, scheduler and KWOK of {self.name}")

    def _answers_ready(self) -> bool:
        self.client.request("GET", "/readyz")
        return True

    def _is_complete(self) -> bool:
        for url in self._health.values():
            httpx.get(url, verify=False).raise_for_status()
        return self.client.find("ServiceAccount", "default", "default") is not None

    def _is_empty(self) -> bool:
        pods = [each for each in self.client.list_all("Pod") if each["metadata"]["namespace"] not in SYSTEM_NAMESPACES]
        return not pods and not self.client.list_all("Node")

    def _finalize(self, namespace: str) -> bool:
        """Let an emptied namespace go at once; its controller would take five seconds to look at it, or does it now."""
        if found := self.client.find("Namespace", namespace):
            found["spec"]["finalizers"] = []
            self.client.request("PUT", self.client.path("Namespace", name=namespace) + "/finalize", json=found)
        return True

    def _label_kubelet(self, name: str, state: str) -> None:
        self.client.patch("Node", name, {"metadata": {"labels": {KUBELET_LABEL: state}}})

    def _write_kubeconfig(self, path: Path, token: str, url: str | None) -> None:
        authority = base64.b64encode((self.folder / "ca.crt").read_bytes()).decode()
        cluster = {"server": url or self.url, "certificate-authority-data": authority}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.name, "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": "user"}}],
            "current-context": self.name,
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(document))  # JSON is YAML
