"""A Kubernetes manifest as a Workload: a `batch/v1` Job with the label `muster.dev/queue` is one.

Its other wishes stand in annotations `muster.dev/<field>`. What the plane does in its own way (retries, deletion
after the end) is left out of what agents apply, with a warning.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter

from controlplane.contract.rest.common import OUR_PREFIX
from controlplane.contract.rest.workloads import WorkloadDocument
from controlplane.services.errors import Fault, Invalid
from controlplane.services.validation import parsed

LABEL_QUEUE = "muster.dev/queue"
POD_SET = "main"
DEADLINE_MAX = 31_622_400

_DROPPED = {
    "backoffLimit": "a gang is tried again whole (annotation muster.dev/max-attempts)",
    "ttlSecondsAfterFinished": "the plane deletes what has ended, after it was recorded",
    "suspend": "the plane holds pods back by gates until it starts them",
    "completionMode": "every pod has an index, as with Indexed",
    "podReplacementPolicy": "pods are replaced only when they have failed",
}
_KEPT = frozenset({"parallelism", "completions", "template", "activeDeadlineSeconds"})
_NOT_YET = frozenset(
    {
        "backoffLimitPerIndex", "managedBy", "manualSelector", "maxFailedIndexes", "podFailurePolicy", "selector",
        "successPolicy",
    }
)  # fmt: skip
_METADATA = frozenset({"name", "namespace", "labels", "annotations", "creationTimestamp"})


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _whole(text: str) -> object:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else text


def _pairs(text: str) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in _words(text))


_TEXT: Callable[[str], object] = str
ANNOTATIONS: Mapping[str, tuple[tuple[str, ...], Callable[[str], object]]] = {
    "topology-required": (("podSets", "topology", "required"), _TEXT),
    "topology-preferred": (("podSets", "topology", "preferred"), _TEXT),
    "slice-size": (("podSets", "topology", "slices", "size"), _whole),
    "slice-level": (("podSets", "topology", "slices", "required"), _TEXT),
    "flavors": (("podSets", "flavors"), lambda text: [{"name": name} for name in _words(text)]),
    "min-replicas": (("podSets", "minReplicas"), _whole),
    "pool": (("pool",), _TEXT),
    "priority": (("priority",), _whole),
    "priority-class": (("priorityClass",), _TEXT),
    "strategy": (("strategy",), _TEXT),
    "max-attempts": (("maxAttempts",), _whole),
    "max-runtime": (("maxRuntime",), _TEXT),
    "on-cluster-loss": (("onClusterLoss",), _TEXT),
    "clusters-avoid": (("clusters", "avoid"), _words),
    "clusters-selector": (("clusters", "selector"), _pairs),
    "clusters-max": (("clusters", "max"), _whole),
    "requires-storage": (("requires", "storage"), _words),
    "requires-data": (("requires", "data"), _words),
}
"""The published fields: what an annotation `muster.dev/<field>` sets in the Workload's spec."""


def document_of_job(manifest: Mapping[str, object]) -> WorkloadDocument:
    """The Workload that the Job asks for; raises Invalid."""
    if manifest.get("apiVersion") != "batch/v1":
        raise Invalid("a Job has apiVersion batch/v1", slug="kind-not-allowed")
    for key in manifest.keys() - {"apiVersion", "kind", "metadata", "spec", "status"}:
        raise _invalid(f"/{key}", "unknown-field", "a Job has metadata and spec")
    metadata = _object(manifest, "metadata")
    for key in metadata.keys() - _METADATA:
        raise _invalid(f"/metadata/{key}", "reserved-metadata", f"{key} is not for users to set")
    labels = {key: str(value) for key, value in _object(metadata, "labels").items()}
    annotations = {key: str(value) for key, value in _object(metadata, "annotations").items()}
    spec: dict[str, Any] = {"queue": _queue(labels), "podSets": {"name": POD_SET}}
    spec["podSets"] |= _gang(_object(manifest, "spec"))
    for key, text in annotations.items():
        if key.startswith(OUR_PREFIX):
            _set(spec, key.removeprefix(OUR_PREFIX), text)
    spec["podSets"] = [spec["podSets"]]
    document = {
        "apiVersion": "muster.dev/v1",
        "kind": "Workload",
        "metadata": {
            "name": metadata.get("name", ""),
            "labels": {key: value for key, value in labels.items() if key != LABEL_QUEUE},
        },
        "spec": spec,
    }
    return parsed(TypeAdapter(WorkloadDocument), document)


def warnings_of_job(manifest: Mapping[str, object]) -> list[str]:
    """What of the Job's spec is left out, and why."""
    spec = _object(manifest, "spec")
    without_effect = {"completionMode": "Indexed"}
    return [
        f"{field} is left out: {why}"
        for field, why in _DROPPED.items()
        if field in spec and spec[field] != without_effect.get(field)
    ]


def _queue(labels: Mapping[str, str]) -> str:
    """A label's value holds no slash, so a path is written with dots there."""
    queue = labels.get(LABEL_QUEUE)
    if not queue:
        words = f"the label {LABEL_QUEUE} is missing: it names the queue, as in a.b for a/b"
        raise _invalid("/metadata/labels", "missing-field", words)
    return queue.replace(".", "/")


def _gang(spec: Mapping[str, object]) -> dict[str, object]:
    for field in sorted(spec.keys() - _KEPT - _DROPPED.keys()):
        if field not in _NOT_YET:
            raise _invalid(f"/spec/{field}", "unknown-field", f"a Job's spec has no field {field}")
        raise _invalid(f"/spec/{field}", "not-yet", f"{field} of a Job is not obeyed yet, so it is not accepted")
    deadline = spec.get("activeDeadlineSeconds", 1)
    if not isinstance(deadline, int) or isinstance(deadline, bool) or not 1 <= deadline <= DEADLINE_MAX:
        words = f"activeDeadlineSeconds is 1 to {DEADLINE_MAX}"
        raise _invalid("/spec/activeDeadlineSeconds", "invalid-quantity", words)
    parallelism = spec.get("parallelism", 1)
    completions = spec.get("completions", parallelism)
    if completions != parallelism:
        words = f"all pods of a gang run at once: completions ({completions!s:.20}) = parallelism ({parallelism!s:.20})"
        raise _invalid("/spec/completions", "invalid-value", words)
    return {"replicas": parallelism, "template": spec.get("template")}


def _set(spec: dict[str, Any], field: str, text: str) -> None:
    if field not in ANNOTATIONS:
        known = ", ".join(sorted(ANNOTATIONS))
        raise _invalid("/metadata/annotations", "reserved-metadata", f"{OUR_PREFIX}{field} is none of: {known}")
    path, read = ANNOTATIONS[field]
    at = spec
    for part in path[:-1]:
        at = at.setdefault(part, {})
    at[path[-1]] = read(text)


def _object(parent: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _invalid(f"/{key}", "invalid-value", f"{key} is an object")
    return value


def _invalid(pointer: str, slug: str, words: str) -> Invalid:
    return Invalid(words, slug=slug, faults=(Fault(pointer, words, slug),))
