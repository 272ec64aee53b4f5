"""From nodes and pods to the inventory that goes up: node by node, with what others use, and only what changed.

A node's report is made again only if its object, or what foreign pods ask of it, has changed. Pods of ours count as
ours only while a directive knows them: labels alone can be forged. A lost cluster is not an empty one: nothing is
reported removed unless the API server's full list did not have it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agents import quantities
from agents.cluster import View
from agents.devices.registry import extended, read_devices
from agents.facts import HUGEPAGES, LOCAL_STORAGE, NodeFacts, PodFacts, amount_of, cut, object_id
from controlplane.contract.agent.inventory import (
    LABELS_NOT_TOLD,
    RDMA_RESOURCES,
    ForeignPod,
    InventoryDelta,
    NodeReport,
    ResourceCount,
    inventory_digest,
    node_digest,
)

DEFAULT_LEVELS = (
    ("block", "topology.muster.dev/block"),
    ("rack", "topology.muster.dev/rack"),
    ("nvlink-domain", "topology.muster.dev/nvlink-domain"),
)
HOST = "host"
LABELS_MAX = 256
FOREIGN_PODS_MAX = 256
KUBELET_PODS = 110
DELTA_BYTES_MAX = 600_000  # below the plane's limit on a body, with room for observations
VIRTUAL_LABELS = (("liqo.io/type", "virtual-node"), ("type", "virtual-kubelet"))
VIRTUAL_TAINTS = frozenset({"virtual-kubelet.io/provider", "virtual-node.liqo.io/not-allowed"})
FAKE_MARK = "kwok.x-k8s.io/node"


@dataclass(frozen=True, slots=True)
class _Kept:
    """A node's report with what it was made from; `sent` is the digest that the plane has."""

    made_from: tuple[object, ...]
    report: NodeReport
    digest: str
    size: int


@dataclass(slots=True)
class Inventory:
    """The whole inventory as it is now, and what of it the plane has acknowledged."""

    levels: Sequence[tuple[str, str]] = DEFAULT_LEVELS
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _acknowledged: dict[str, str] = field(default_factory=dict)
    _in_flight: dict[str, str | None] = field(default_factory=dict)
    _wants_whole: bool = True
    _is_read: bool = False  # before the first reading an empty list is not an empty cluster
    _revision: int = 0

    def update(self, view: View, known: Iterable[str]) -> None:
        """Bring the reports up to date; `known` are the object ids of which a directive knows."""
        ours = frozenset(known)
        fresh: dict[str, _Kept] = {}
        for node in view.nodes.values():
            pods = foreign_pods(view, node.name, ours)
            made_from = (node.version, self.levels, *sorted(pod.uid for pod in pods))
            kept = self._kept.get(node.uid)
            fresh[node.uid] = kept if kept and kept.made_from == made_from else self._make(node, pods, made_from)
        self._kept = fresh
        self._is_read = True

    def set_levels(self, levels: Sequence[tuple[str, str]]) -> None:
        """Topology levels, coarse to fine, with the node label that names each; the host is implied."""
        self.levels = tuple(levels)

    def forget_acknowledged(self) -> None:
        """Send everything again: a new Session, or the plane's digest differs."""
        self._wants_whole = True
        self._in_flight = {}

    def has_news(self) -> bool:
        if not self._is_read:
            return False
        return self._wants_whole or {uid: kept.digest for uid, kept in self._kept.items()} != self._acknowledged

    def next_delta(self) -> InventoryDelta | None:
        """What to send now, at most one request's worth; None if the plane has it all."""
        if not self.has_news():
            return None
        acknowledged: Mapping[str, str] = {} if self._wants_whole else self._acknowledged
        changed = [uid for uid, kept in self._kept.items() if acknowledged.get(uid) != kept.digest]
        removed = [uid for uid in acknowledged if uid not in self._kept]
        chosen: list[str] = []
        size = 0
        for uid in changed:
            size += self._kept[uid].size
            if chosen and size > DELTA_BYTES_MAX:
                break
            chosen.append(uid)
        self._in_flight = {uid: self._kept[uid].digest for uid in chosen} | dict.fromkeys(removed)
        self._revision += 1
        is_complete = len(chosen) == len(changed)
        return InventoryDelta(
            revision=self._revision,
            whole=self._wants_whole,
            levels=[*self._levels_in_use(), HOST],
            nodes=[self._kept[uid].report for uid in chosen],
            uids=[] if is_complete or not self._wants_whole else sorted(self._kept),
            removed=removed,
            digest=self.digest() if is_complete else "",
        )

    def acknowledge(self) -> None:
        """The plane has answered the request that carried the last delta."""
        if self._wants_whole:
            self._acknowledged = {}
        for uid, digest in self._in_flight.items():
            if digest is None:
                self._acknowledged.pop(uid, None)
            else:
                self._acknowledged[uid] = digest
        self._wants_whole = False
        self._in_flight = {}

    def digest(self) -> str:
        return inventory_digest((uid, kept.digest) for uid, kept in self._kept.items())

    def _levels_in_use(self) -> list[str]:
        """A level that no node bears would put each node into a domain of its own."""
        borne = {level for kept in self._kept.values() for level in kept.report.domains}
        return [level for level, _ in self.levels if level in borne]

    def _make(self, node: NodeFacts, pods: Sequence[PodFacts], made_from: tuple[object, ...]) -> _Kept:
        report = node_report(node, pods, self.levels)
        return _Kept(made_from, report, node_digest(report), len(report.model_dump_json()))


def foreign_pods(view: View, node: str, known: frozenset[str]) -> list[PodFacts]:
    """Pods on a node that are not finished and that no directive knows."""
    return [
        pod
        for pod in view.pods_on(node)
        if not pod.is_finished and not (pod.workload and object_id(pod.workload, pod.attempt) in known)
    ]


def node_report(node: NodeFacts, foreign: Sequence[PodFacts], levels: Sequence[tuple[str, str]]) -> NodeReport:
    """One node, whole."""
    reading = read_devices(node)
    labels = {name: cut(text) for name, text in sorted(node.labels.items()) if not name.startswith(LABELS_NOT_TOLD)}
    free = _free(node, foreign)
    return NodeReport(
        uid=node.uid,
        name=node.name,
        kind=_kind(node),
        ready=node.ready,
        ready_changed_at=node.ready_changed_at,
        cordoned=node.cordoned,
        deleting=node.deleting,
        taints=[dict(taint) for taint in node.taints[:64]],
        labels=dict(list(labels.items())[:LABELS_MAX]),
        domains={level: cut(node.labels[label]) for level, label in levels if node.labels.get(label)},
        cpu_milli=free.get("cpu", 0),
        memory_bytes=free.get("memory", 0),
        pods=free.get("pods", KUBELET_PODS),
        rdma=sum(amount for name, amount in free.items() if name.startswith(RDMA_RESOURCES)),
        hugepages_bytes=sum(amount for name, amount in free.items() if name.startswith(HUGEPAGES)),
        local_storage_bytes=free.get(LOCAL_STORAGE, 0),
        instance_type=cut(node.labels.get("node.kubernetes.io/instance-type", "")),
        provider_id=node.provider_id,
        driver_versions=reading.driver_versions,
        resources=_resources(node, foreign),
        devices=reading.devices,
        foreign_pods=_foreign(foreign),
        discrepancies=reading.discrepancies,
    )


def _free(node: NodeFacts, foreign: Sequence[PodFacts]) -> dict[str, int]:
    """What the node allows of all but devices, less what foreign pods take, by Kubernetes' names; never below 0."""
    free = {name: amount_of(name, text) for name, text in node.allocatable.items()}
    for pod in foreign:
        for name, amount in (("pods", 1), *pod.needs.items(), *pod.requests.items()):
            if name in free:
                free[name] = max(0, free[name] - amount)
    return free


def _resources(node: NodeFacts, foreign: Sequence[PodFacts]) -> list[ResourceCount]:
    """What the API server says; a number that is none is left out, and the reader has named it."""
    counts = []
    for name in extended(node)[:64]:
        capacity = quantities.count(node.capacity.get(name, "0"))
        allocatable = quantities.count(node.allocatable.get(name, "0"))
        if capacity is not None and allocatable is not None:
            used = sum(pod.requests.get(name, 0) for pod in foreign)
            counts.append(ResourceCount(resource=name, capacity=capacity, allocatable=allocatable, foreign=used))
    return counts


def _foreign(pods: Sequence[PodFacts]) -> list[ForeignPod]:
    asking = [(pod, name, amount) for pod in pods for name, amount in sorted(pod.requests.items()) if amount]
    return [
        ForeignPod(namespace=pod.namespace, name=pod.name, uid=pod.uid, owner=pod.owner, resource=name, amount=amount)
        for pod, name, amount in asking[:FOREIGN_PODS_MAX]
    ]


def _kind(node: NodeFacts) -> Literal["real", "virtual", "fake"]:
    if any(node.labels.get(label) == value for label, value in VIRTUAL_LABELS):
        return "virtual"
    if any(taint.get("key") in VIRTUAL_TAINTS for taint in node.taints):
        return "virtual"
    return "fake" if FAKE_MARK in node.annotations else "real"
