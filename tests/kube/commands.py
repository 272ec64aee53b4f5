"""The command lines and configuration files of one test cluster; pure but for writing the files.

Nothing secret stands in a command line: tokens are in files of mode 0600.
"""

import json
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Self

from tests.kube.processes import free_ports

ETCD = "etcd"
API_SERVER = "kube-apiserver"
MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"

STAGES = Path(__file__).resolve().parent / "stages.yaml"
FEATURES = "GenericWorkload=true"
"""The native PodGroup API: beta and off by default in 1.37, so that the agent can be tested with it."""

REAL_NODE = "real-0"
"""The one node whose kubelet may be real (`node/`); it authenticates as a node does, and has a node's rights."""

KUBELET_SELECTOR = "test.muster.dev/kubelet=alive"
SERVICE_NETWORK, POD_NETWORK = "10.0.0.0/16", "10.128.0.1/12"
LEASE_SECONDS = 40
GARBAGE = "GOGC=400"
"""Go looks for garbage a quarter as often: a fifth of the processor's time, for 60 MB more of each API server."""

NODE_GRACE_SECONDS = 50


@dataclass(frozen=True, slots=True)
class Ports:
    """Where each program listens."""

    etcd: int
    etcd_peer: int
    api_server: int
    manager: int
    scheduler: int
    kwok: int

    @classmethod
    def free(cls) -> Self:
        return cls(*free_ports(len(fields(cls))))


def command_lines(programs: Path, folder: Path, ports: Ports) -> dict[str, list[str]]:
    """What to run, by name, in the order of starting."""
    assert len(set(astuple(ports))) == len(fields(ports))
    lines = {
        ETCD: [str(programs / "server"), *_etcd(folder, ports)],
        API_SERVER: [str(programs / API_SERVER), *_api_server(folder, ports)],
        MANAGER: [str(programs / MANAGER), *_manager(folder, ports)],
        SCHEDULER: [str(programs / SCHEDULER), *_scheduler(folder, ports)],
        KWOK: [str(programs / KWOK), *_kwok(folder, ports)],
    }
    return {name: ["env", GARBAGE, *line] for name, line in lines.items()}


def health_urls(ports: Ports) -> dict[str, str]:
    """Where those say that they are well who start after the API server."""
    return {
        MANAGER: f"https://127.0.0.1:{ports.manager}/healthz",
        SCHEDULER: f"https://127.0.0.1:{ports.scheduler}/healthz",
        KWOK: f"http://127.0.0.1:{ports.kwok}/healthz",
    }


def write_files(folder: Path, token: str, node_token: str) -> None:
    """Write what the command lines refer to, apart from keys and kubeconfig."""
    tokens = folder / "tokens.csv"
    tokens.touch(mode=0o600)
    node = f"system:node:{REAL_NODE}"
    tokens.write_text(f"{token},admin,admin,system:masters\n{node_token},{node},{node},system:nodes\n")
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(folder / "admin.kubeconfig"), "qps": 500, "burst": 1000},
        "leaderElection": {"leaderElect": False},
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,  # so that a test need not wait ten seconds for the second try
    }
    (folder / "scheduler.json").write_text(json.dumps(scheduler))


def _etcd(folder: Path, ports: Ports) -> list[str]:
    client, peer = f"http://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.etcd_peer}"
    return [
        "--name=test",
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=test={peer}",
        "--log-level=error",
    ]


def _api_server(folder: Path, ports: Ports) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.api_server}",
        f"--cert-dir={folder / 'certificates'}",
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--service-account-key-file={folder / 'sa.key'}",
        f"--service-account-signing-key-file={folder / 'sa.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--runtime-config=scheduling.k8s.io/v1beta1=true",
        f"--feature-gates={FEATURES}",
    ]


def _manager(folder: Path, ports: Ports) -> list[str]:
    return [
        *_as_admin(folder),
        f"--kubeconfig={folder / 'admin.kubeconfig'}",
        f"--secure-port={ports.manager}",
        "--leader-elect=false",
        f"--service-account-private-key-file={folder / 'sa.key'}",
        f"--root-ca-file={folder / 'ca.crt'}",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        f"--node-monitor-grace-period={NODE_GRACE_SECONDS}s",
        "--node-monitor-period=1s",
        f"--feature-gates={FEATURES}",
    ]


def _scheduler(folder: Path, ports: Ports) -> list[str]:
    return [
        *_as_admin(folder),
        f"--config={folder / 'scheduler.json'}",
        f"--secure-port={ports.scheduler}",
        f"--feature-gates={FEATURES}",
    ]


def _as_admin(folder: Path) -> list[str]:
    return [
        f"--authentication-kubeconfig={folder / 'admin.kubeconfig'}",
        f"--authorization-kubeconfig={folder / 'admin.kubeconfig'}",
        f"--cert-dir={folder / 'certificates'}",
        "--bind-address=127.0.0.1",
    ]


def _kwok(folder: Path, ports: Ports) -> list[str]:
    return [
        f"--kubeconfig={folder / 'admin.kubeconfig'}",
        f"--manage-nodes-with-label-selector={KUBELET_SELECTOR}",
        f"--config={STAGES}",
        f"--node-lease-duration-seconds={LEASE_SECONDS}",
        f"--cidr={POD_NETWORK}",
        f"--server-address=127.0.0.1:{ports.kwok}",
    ]
