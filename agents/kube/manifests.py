"""From a directive to the Kubernetes objects of an Attempt; pure, and the same for real and simulated clusters.

Names are made from workload, its uid and the attempt, so that a second creation meets the first, and no other try. Pods
are born gated; Job pods are pinned and ranked by a patch (`agents/kube/apply.py`), plain pods from birth. A Job never
retries by itself: what its controller makes anew is gated again, and the agent lets only disrupted pods go on.
"""

import copy
import hashlib
import json
from collections.abc import Mapping

from agents import memory
from agents.facts import (
    ANNOTATION_ORDER,
    HOSTNAME,
    LABEL_INDEX,
    Json,
    effective_requests,
)
from controlplane.contract.agent import names
from controlplane.contract.agent.attempts import (
    ANNOTATION_DIRECTIVE,
    ANNOTATION_GENERATION,
    ANNOTATION_RANK,
    ANNOTATION_SPEC_HASH,
    GATE,
    LABEL_ATTEMPT,
    LABEL_NAME,
    LABEL_POD_SET,
    LABEL_WORKLOAD,
    ApplyBody,
    Directive,
    Pin,
    PodSetOrder,
)

PRIORITY_CLASS = "muster-workload"
MASTER_PORT = 29500
LAST_LINES = "FallbackToLogsOnError"  # the kubelet keeps the last lines of a program that failed, and we tell them
BACKOFF_LIMIT = 2**31 - 1  # out of the way: who retries is the plane's decision
UNDISTURBED = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
KEPT_JOB_FIELDS = ("activeDeadlineSeconds",)
DROPPED_POD_FIELDS = ("nodeName", "priority", "preemptionPolicy", "hostname", "subdomain")
COUNTED_BY_RANK = ("MUSTER_RANK", "RANK", "JAX_PROCESS_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
COUNTED_BY_WORLD = ("MUSTER_WORLD_SIZE", "WORLD_SIZE", "JAX_NUM_PROCESSES", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
base_name, job_name, pod_name = names.base_name, names.job_name, names.pod_name


def service(directive: Directive) -> Json:
    """The headless Service: the members' addresses, and the anchor that remembers the directive."""
    body = _body(directive)
    manifest: Json = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(directive, base_name(body, directive.workload, directive.attempt)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # members look for each other before they are ready
            "selector": {LABEL_WORKLOAD: directive.workload, LABEL_ATTEMPT: str(directive.attempt)},
            "ports": [{"name": "rendezvous", "port": MASTER_PORT, "protocol": "TCP"}],
        },
    }
    _sign(manifest)
    manifest["metadata"]["annotations"] |= {
        ANNOTATION_DIRECTIVE: memory.encode(directive),
        ANNOTATION_ORDER: "prepare",
    }
    return manifest


def job(directive: Directive, order: PodSetOrder) -> Json:
    """An Indexed Job for one PodSet."""
    body = _body(directive)
    kept = {name: order.job[name] for name in KEPT_JOB_FIELDS if name in order.job}
    manifest: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(
            directive, job_name(body, directive.workload, directive.attempt, order.name), pod_set=order.name
        ),
        "spec": {
            **kept,
            "completions": order.replicas,
            "parallelism": order.replicas,
            "completionMode": "Indexed",
            "backoffLimit": BACKOFF_LIMIT,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ],
            },
            "template": _template(directive, order),
        },
    }
    _sign(manifest)
    return manifest


def pod(directive: Directive, order: PodSetOrder, pin: Pin, hostname: str) -> Json:
    """One plain pod, pinned from birth."""
    body = _body(directive)
    template = _template(directive, order)
    name = pod_name(body, directive.workload, directive.attempt, order.name, pin.index)
    metadata = template["metadata"]
    metadata |= {"name": name, "namespace": body.namespace}
    metadata["labels"] |= {LABEL_INDEX: str(pin.index)}
    metadata["annotations"] |= {ANNOTATION_RANK: str(pin.rank)}
    spec = template["spec"]
    spec["hostname"] = name
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), HOSTNAME: hostname}
    manifest: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    _sign(manifest)
    return manifest


def master_address(directive: Directive) -> str:
    """Where rank 0 is found, if it is in this cluster."""
    body = _body(directive)
    first = next((pin for pin in body.pins if pin.rank == 0), None)
    if first is None:
        return body.environment.get("MUSTER_MASTER_ADDR", "")
    host = pod_name(body, directive.workload, directive.attempt, first.pod_set, first.index)
    return f"{host}.{base_name(body, directive.workload, directive.attempt)}.{body.namespace}.svc"


def labels(directive: Directive, pod_set: str = "") -> dict[str, str]:
    """What every object of an Attempt carries."""
    body = _body(directive)
    found = {
        "app.kubernetes.io/managed-by": "muster-agent",
        LABEL_WORKLOAD: directive.workload,
        LABEL_ATTEMPT: str(directive.attempt),
        LABEL_NAME: body.name[:63].rstrip("._-"),
    }
    return found | ({LABEL_POD_SET: pod_set} if pod_set else {})


def _template(directive: Directive, order: PodSetOrder) -> Json:
    """The user's pod template with what placement, members and operators need. Never the user's own object."""
    body = _body(directive)
    given = copy.deepcopy(order.template)
    metadata, spec = _mapping(given.get("metadata")), _mapping(given.get("spec"))
    for field in DROPPED_POD_FIELDS:
        spec.pop(field, None)
    _ask_for_devices(spec, next((pin for pin in body.pins if pin.pod_set == order.name), None))
    variables = _environment(directive, body)
    for container in [*_listed(spec.get("initContainers")), *_listed(spec.get("containers"))]:
        container.setdefault("terminationMessagePolicy", LAST_LINES)
        taken = {each.get("name") for each in _listed(container.get("env"))}
        container["env"] = [
            *_listed(container.get("env")),
            *(each for each in variables if each["name"] not in taken),
        ]
    if body.grace_seconds is not None:
        spec["terminationGracePeriodSeconds"] = body.grace_seconds
    gates = [gate for gate in _listed(spec.get("schedulingGates")) if gate.get("name") != GATE]
    spec |= {
        "restartPolicy": "Never",  # a restart in place would be a retry that nobody decided
        "automountServiceAccountToken": False,  # a program of a user's has no business with its cluster's API
        "priorityClassName": PRIORITY_CLASS,
        "subdomain": base_name(body, directive.workload, directive.attempt),
        "schedulingGates": [*gates, {"name": GATE}],
    }
    return {
        "metadata": {
            "labels": {**_mapping(metadata.get("labels")), **labels(directive, order.name)},
            "annotations": {**_mapping(metadata.get("annotations")), **UNDISTURBED},
        },
        "spec": spec,
    }


def _environment(directive: Directive, body: ApplyBody) -> list[Json]:
    """Rank comes from the pod's annotation, since all pods of a Job share one template."""
    address = master_address(directive)
    texts = {
        **{name: str(body.world_size) for name in COUNTED_BY_WORLD},
        "MUSTER_ATTEMPT": str(directive.attempt),
        "MUSTER_WORKLOAD_UID": directive.workload,
        **({"MUSTER_MASTER_ADDR": address, "MASTER_ADDR": address} if address else {}),
        **({"JAX_COORDINATOR_ADDRESS": f"{address}:{MASTER_PORT}"} if address else {}),
        "MASTER_PORT": str(MASTER_PORT),
        **body.environment,
    }
    rank = {"fieldRef": {"fieldPath": f"metadata.annotations['{ANNOTATION_RANK}']"}}
    ranked: list[Json] = [{"name": name, "valueFrom": rank} for name in COUNTED_BY_RANK if name not in body.environment]
    return ranked + [{"name": name, "value": value} for name, value in sorted(texts.items())]


def _ask_for_devices(spec: Json, pin: Pin | None) -> None:
    """A template that names no devices asks for what its pods were given, and each puts up with their nodes' taint.

    The API server adds that toleration too, where its admission plugin for extended resources is on; the planner counts
    on it everywhere.
    """
    if pin is None or not pin.amount:
        return
    own = {"key": pin.resource, "operator": "Exists"}
    spec["tolerations"] = [*(each for each in _listed(spec.get("tolerations")) if each != own), own]
    containers = _listed(spec.get("containers"))
    if not containers or effective_requests(spec).get(pin.resource):
        return
    resources = containers[0].setdefault("resources", {})
    resources.setdefault("limits", {})[pin.resource] = str(pin.amount)


def _metadata(directive: Directive, name: str, pod_set: str = "") -> Json:
    return {
        "name": name,
        "namespace": _body(directive).namespace,
        "labels": labels(directive, pod_set),
        "annotations": {ANNOTATION_GENERATION: str(directive.gen)},
    }


def _sign(manifest: Json) -> None:
    """Note what was asked for, so that a second creation knows its own work."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    annotations = manifest["metadata"].setdefault("annotations", {})
    annotations[ANNOTATION_SPEC_HASH] = hashlib.sha256(text.encode()).hexdigest()[:32]


def _body(directive: Directive) -> ApplyBody:
    assert directive.apply is not None, "only an apply directive makes objects"
    return directive.apply


def _mapping(value: object) -> Json:
    return dict(value) if isinstance(value, Mapping) else {}


def _listed(value: object) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
