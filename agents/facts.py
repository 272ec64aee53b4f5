"""What the agent keeps of each Kubernetes object: the few facts that decisions read, not the whole JSON.

The projection happens once per event, where raw JSON enters; memory grows with facts, not with managedFields. Nothing
here decides. Texts are cut to what a message may carry.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agents import quantities
from controlplane.contract.agent.attempts import (
    ANNOTATION_DIRECTIVE,
    ANNOTATION_GENERATION,
    ANNOTATION_SPEC_HASH,
    GATE,
    LABEL_ATTEMPT,
    LABEL_POD_SET,
    LABEL_WORKLOAD,
)

Json = dict[str, Any]
"""One Kubernetes object as it came. It is read here, in `facts` and in `manifests`, and nowhere else."""

TEXT_MAX = 1024
HOSTNAME = "kubernetes.io/hostname"
LABEL_INDEX = "muster.dev/index"
ANNOTATION_ORDER = "muster.dev/order"
ANNOTATION_DONE = "muster.dev/done"
ANNOTATION_RAN = "muster.dev/ran"
ANNOTATION_REJECTION = "muster.dev/rejection"
JOB_INDEX = "batch.kubernetes.io/job-completion-index"
FINISHED = frozenset({"Succeeded", "Failed"})
HUGEPAGES = "hugepages-"
LOCAL_STORAGE = "ephemeral-storage"
INDEXES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node as its object says; vendors' readers look at labels and resources."""

    name: str
    uid: str
    version: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    ready: bool = False
    ready_changed_at: datetime | None = None
    cordoned: bool = False
    deleting: bool = False
    capacity: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)
    provider_id: str = ""
    kubelet_version: str = ""

    @property
    def hostname(self) -> str:
        """The value that pins a pod to it; most clusters use the node's name."""
        return self.labels.get(HOSTNAME, self.name)

    @property
    def is_good(self) -> bool:
        """Whether a replacement may be let go to it now."""
        return self.ready and not self.deleting and not self.cordoned


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod, ours or somebody else's."""

    namespace: str
    name: str
    uid: str
    version: str
    phase: str = "Pending"
    node: str = ""
    pinned: str = ""
    has_selector: bool = False
    deleting: bool = False
    gates: tuple[str, ...] = ()
    workload: str = ""
    attempt: int = 0
    pod_set: str = ""
    index: int = -1
    owner: str = ""
    requests: Mapping[str, int] = field(default_factory=dict)
    needs: Mapping[str, int] = field(default_factory=dict)  # all else that it requests: CPU, memory, disk
    ready: bool = False
    exit_code: int | None = None
    disrupted: bool = False
    reason: str = ""
    message: str = ""
    unschedulable: str = ""
    unschedulable_at: datetime | None = None
    waiting: str = ""
    created_at: datetime | None = None
    scheduled_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    device_keys: tuple[str, ...] = ()

    @property
    def is_gated(self) -> bool:
        return GATE in self.gates

    @property
    def is_finished(self) -> bool:
        return self.phase in FINISHED

    @property
    def key(self) -> tuple[str, int]:
        return self.pod_set, self.index


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """A Job or Service with our labels."""

    kind: str
    namespace: str
    name: str
    uid: str
    version: str
    workload: str = ""
    attempt: int = 0
    pod_set: str = ""
    generation: int = 0
    spec_hash: str = ""
    directive: str = ""
    order: str = ""
    done: str = ""
    ran: str = ""
    rejection: str = ""
    deleting: bool = False
    completed: frozenset[int] = frozenset()
    created_at: datetime | None = None


def object_id(workload: str, attempt: int) -> str:
    return f"{workload}.{attempt}"


def node_facts(raw: Json) -> NodeFacts:
    """The facts of a Node."""
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    ready: Json = next((each for each in status.get("conditions") or [] if each.get("type") == "Ready"), {})
    return NodeFacts(
        name=meta["name"],
        uid=meta.get("uid", ""),
        version=meta.get("resourceVersion", ""),
        labels=meta.get("labels") or {},
        annotations={key: cut(text) for key, text in (meta.get("annotations") or {}).items() if len(text) <= TEXT_MAX},
        taints=tuple({key: cut(str(text)) for key, text in taint.items()} for taint in spec.get("taints") or []),
        ready=ready.get("status") == "True",
        ready_changed_at=moment(ready.get("lastTransitionTime")),
        cordoned=bool(spec.get("unschedulable")),
        deleting="deletionTimestamp" in meta,
        capacity=status.get("capacity") or {},
        allocatable=status.get("allocatable") or {},
        provider_id=cut(spec.get("providerID", "")),
        kubelet_version=(status.get("nodeInfo") or {}).get("kubeletVersion", ""),
    )


def pod_facts(raw: Json) -> PodFacts:
    """The facts of a Pod."""
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels = meta.get("labels") or {}
    conditions = {each.get("type"): each for each in status.get("conditions") or []}
    scheduled = conditions.get("PodScheduled", {})
    refused = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    ended, started_at, waiting = _containers(status)
    owner: Json = next((each for each in meta.get("ownerReferences") or [] if each.get("controller")), {})
    selector = spec.get("nodeSelector")
    requests = effective_requests(spec)
    return PodFacts(
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        uid=meta.get("uid", ""),
        version=meta.get("resourceVersion", ""),
        phase=status.get("phase", "Pending"),
        node=spec.get("nodeName", ""),
        pinned=(selector or {}).get(HOSTNAME, ""),
        has_selector=selector is not None,
        deleting="deletionTimestamp" in meta,
        gates=tuple(each["name"] for each in spec.get("schedulingGates") or []),
        workload=labels.get(LABEL_WORKLOAD, ""),
        attempt=quantities.label_number(labels.get(LABEL_ATTEMPT)) or 0,
        pod_set=labels.get(LABEL_POD_SET, ""),
        index=_index(labels, meta.get("annotations") or {}),
        owner=cut(f"{owner['kind']}/{owner['name']}") if owner else "",
        requests={name: amount for name, amount in requests.items() if "/" in name},
        needs={name: amount for name, amount in requests.items() if "/" not in name},
        ready=conditions.get("Ready", {}).get("status") == "True",
        exit_code=ended.get("exitCode"),
        disrupted=conditions.get("DisruptionTarget", {}).get("status") == "True",
        reason=cut(status.get("reason") or ended.get("reason") or ""),
        message=cut(status.get("message") or _end_of(ended.get("message") or "")),
        unschedulable=cut(scheduled.get("message", "")) if refused else "",
        unschedulable_at=moment(scheduled.get("lastTransitionTime")) if refused else None,
        waiting=waiting,
        created_at=moment(meta.get("creationTimestamp")),
        scheduled_at=moment(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None,
        started_at=started_at,
        finished_at=moment(ended.get("finishedAt")),
        device_keys=_device_keys(status),
    )


def object_facts(kind: str, raw: Json) -> ObjectFacts:
    """The facts of a Job or Service of ours; `kind` is given, because items of a list do not say it."""
    meta, status = raw["metadata"], raw.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    return ObjectFacts(
        kind=kind,
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        uid=meta.get("uid", ""),
        version=meta.get("resourceVersion", ""),
        workload=labels.get(LABEL_WORKLOAD, ""),
        attempt=quantities.label_number(labels.get(LABEL_ATTEMPT)) or 0,
        pod_set=labels.get(LABEL_POD_SET, ""),
        generation=quantities.label_number(annotations.get(ANNOTATION_GENERATION)) or 0,
        spec_hash=annotations.get(ANNOTATION_SPEC_HASH, ""),
        directive=annotations.get(ANNOTATION_DIRECTIVE, ""),
        order=annotations.get(ANNOTATION_ORDER, ""),
        done=annotations.get(ANNOTATION_DONE, ""),
        ran=annotations.get(ANNOTATION_RAN, ""),
        rejection=annotations.get(ANNOTATION_REJECTION, ""),
        deleting="deletionTimestamp" in meta,
        completed=indexes(status.get("completedIndexes", "")),
        created_at=moment(meta.get("creationTimestamp")),
    )


def effective_requests(spec: Json) -> dict[str, int]:
    """What a pod takes, per resource: CPU in thousandths, memory in bytes, cards whole.

    The larger of all containers together and of the hungriest init container, sidecars counted with both (the
    scheduler's own rule). A request that is not whole is not counted; the API server refuses such pods.
    """
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or []:
        needs = _requests_of(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, needs)
            needs = sidecars
        else:
            needs = _sum(sidecars, needs)
        peak = {name: max(peak.get(name, 0), needs.get(name, 0)) for name in {*peak, *needs}}
    total = sidecars
    for container in spec.get("containers") or []:
        total = _sum(total, _requests_of(container))
    return {name: max(peak.get(name, 0), total.get(name, 0)) for name in {*peak, *total}}


def moment(text: object) -> datetime | None:
    """A time stamp of the API server, or None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


def cut(text: str) -> str:
    return text[:TEXT_MAX]


def _end_of(words: str) -> str:
    """A program's last words: the last of them count, and they start with a whole line where one fits."""
    kept = words.strip()
    if len(kept) <= TEXT_MAX:
        return kept
    kept = kept[-TEXT_MAX:]
    return kept.partition("\n")[2] or kept


def indexes(text: str) -> frozenset[int]:
    """Read "0-3,7" as the Job controller writes it; what is no such text is empty."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = quantities.label_number(first), quantities.label_number(last or first)
        if low is not None and high is not None and high < INDEXES_MAX:
            found.update(range(low, high + 1))
    return frozenset(found)


def _index(labels: Mapping[str, str], annotations: Mapping[str, str]) -> int:
    text = labels.get(JOB_INDEX, annotations.get(JOB_INDEX, labels.get(LABEL_INDEX)))
    number = quantities.label_number(text)
    return -1 if number is None else number


def _containers(status: Json) -> tuple[Json, datetime | None, str]:
    """The first bad end (else any end), the first start, and why containers wait."""
    ended: Json = {}
    started: list[datetime] = []
    waiting = ""
    for each in status.get("containerStatuses") or []:
        state = each.get("state") or {}
        terminated = state.get("terminated") or {}
        if terminated and (not ended or (not ended.get("exitCode") and terminated.get("exitCode"))):
            ended = terminated
        if began := moment((state.get("running") or terminated).get("startedAt")):
            started.append(began)
        if why := (state.get("waiting") or {}).get("reason"):
            waiting = waiting or cut(f"{why}: {state['waiting'].get('message', '')}".rstrip(": "))
    return ended, min(started, default=None), waiting


def _device_keys(status: Json) -> tuple[str, ...]:
    """The cards that the kubelet really gave, where it says so (`allocatedResourcesStatus`)."""
    found = {
        str(resource.get("resourceID", "")).partition("::")[0]
        for container in status.get("containerStatuses") or []
        for group in container.get("allocatedResourcesStatus") or []
        for resource in group.get("resources") or []
    }
    return tuple(sorted(key for key in found if key))[:64]


def _requests_of(container: Json) -> dict[str, int]:
    resources = container.get("resources") or {}
    merged = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount for name, text in merged.items() if (amount := amount_of(name, text))}


def amount_of(name: str, text: object) -> int:
    """A quantity of a resource: CPU in thousandths, what has a domain in its name in whole units, all else in bytes."""
    if name == "cpu":
        return quantities.milli(text)
    return (quantities.count(text) or 0) if "/" in name else quantities.size_bytes(text)


def _sum(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {*left, *right}}
