"""What this cluster lets the plane do: the local policy, owned by the cluster's operator; pure, save for reading it.

The agent's account cannot write it. A compromised plane can do no more than stands here. The cluster's own admission
and RBAC stand behind it; this is the first fence, not the only one.
"""

import fnmatch
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field

from agents.devices.registry import is_device
from agents.facts import Json, effective_requests
from controlplane.contract.agent.attempts import ApplyBody, PodSetOrder, Rejection

NEVER = ("kube-*", "muster-system")
DEVICE_ENVIRONMENT = frozenset({"NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES"})
HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC")
PolicyField = Literal[
    "hostNetwork", "hostPID", "hostIPC", "hostPath", "privileged", "capabilities", "hostPort", "nodeName",
    "schedulerName", "serviceAccountToken", "serviceAccountName", "schedulingGates", "controlPlaneToleration",
    "deviceEnvironment",
]  # fmt: skip
FORBIDDEN_BY_DEFAULT: tuple[PolicyField, ...] = get_args(PolicyField)


class PolicyUnreadable(Exception):
    """The policy file is not what it must be; without it nothing may be applied."""


class LocalPolicy(BaseModel):
    """The file's content; every field has a default, and unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespaces: list[str] = Field(default=["*"], description="Patterns; kube-* and the agent's own never match.")
    kinds: list[Literal["Job", "Pods"]] = Field(default=["Job", "Pods"])
    registries: list[str] = Field(default=[], description="Prefixes of images; empty: any.")
    require_digest: bool = Field(default=False, alias="requireDigest")
    devices_max: Annotated[int, Field(ge=0)] | None = Field(default=None, alias="devicesMax")
    pods_max: Annotated[int, Field(ge=0)] | None = Field(default=None, alias="podsMax")
    runtime_classes: list[str] = Field(default=[], alias="runtimeClasses")
    forbidden: list[PolicyField] = Field(default=list(FORBIDDEN_BY_DEFAULT), alias="forbiddenPodFields")


def read(path: Path | None) -> LocalPolicy:
    """Return the policy of a YAML file; the strict defaults where there is none. Raise PolicyUnreadable."""
    if path is None:
        return LocalPolicy()
    try:
        return LocalPolicy.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise PolicyUnreadable(f"{path}: {error}") from error


def allows_namespace(policy: LocalPolicy, namespace: str) -> bool:
    if any(fnmatch.fnmatchcase(namespace, pattern) for pattern in NEVER):
        return False
    return any(fnmatch.fnmatchcase(namespace, pattern) for pattern in policy.namespaces)


def refusal(body: ApplyBody, policy: LocalPolicy) -> Rejection | None:
    """The first rule that the directive breaks, with numbers; None if it may be applied."""
    if not allows_namespace(policy, body.namespace):
        return _no("namespaces", namespace=body.namespace)
    devices = sum(pin.amount for pin in body.pins)
    if policy.devices_max is not None and devices > policy.devices_max:
        return _no("devicesMax", asked=devices, most=policy.devices_max)
    pods = max(len(body.pins), sum(order.replicas for order in body.pod_sets))
    if policy.pods_max is not None and pods > policy.pods_max:
        return _no("podsMax", asked=pods, most=policy.pods_max)
    for order in body.pod_sets:
        if order.kind not in policy.kinds:
            return _no("kinds", kind=order.kind)
        for rule, detail in _broken(order, body, policy):
            return _no(rule, podSet=order.name, detail=detail)
    return None


def _broken(order: PodSetOrder, body: ApplyBody, policy: LocalPolicy) -> Iterator[tuple[str, str]]:
    spec = order.template.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    for found in _forbidden(spec):
        if found in policy.forbidden:
            yield "forbiddenPodFields", found
    runtime = spec.get("runtimeClassName")
    if runtime and runtime not in policy.runtime_classes:
        yield "runtimeClasses", str(runtime)
    yield from _images(spec, policy)
    amounts = {pin.resource: pin.amount for pin in body.pins if pin.pod_set == order.name}
    for resource, asked in effective_requests(spec).items():
        # A template that asks for more devices than its pods were given would take what was sold to others.
        if (resource in amounts or is_device(resource)) and asked > amounts.get(resource, 0):
            yield "devices", f"{asked} {resource} asked, {amounts.get(resource, 0)} given"


def _forbidden(spec: Json) -> Iterator[str]:
    yield from (name for name in HOST_FIELDS if spec.get(name))
    yield from (name for name in ("nodeName", "schedulerName") if spec.get(name) not in (None, "", "default-scheduler"))
    if any(spec.get(name) not in (None, "", "default") for name in ("serviceAccountName", "serviceAccount")):
        yield "serviceAccountName"
    if spec.get("automountServiceAccountToken"):
        yield "serviceAccountToken"
    if spec.get("schedulingGates"):
        yield "schedulingGates"
    for toleration in _listed(spec.get("tolerations")):
        key = str(toleration.get("key") or "")
        if not key or key.startswith("node-role.kubernetes.io/"):
            yield "controlPlaneToleration"
    for volume in _listed(spec.get("volumes")):
        if "hostPath" in volume:
            yield "hostPath"
        sources = volume["projected"].get("sources") if isinstance(volume.get("projected"), dict) else None
        if any("serviceAccountToken" in source for source in _listed(sources)):
            yield "serviceAccountToken"
    for container in _containers(spec):
        yield from _forbidden_in(container)


def _forbidden_in(container: Json) -> Iterator[str]:
    security = container.get("securityContext")
    security = security if isinstance(security, dict) else {}
    capabilities = security.get("capabilities")
    if security.get("privileged") or security.get("allowPrivilegeEscalation"):
        yield "privileged"
    if isinstance(capabilities, dict) and capabilities.get("add"):
        yield "capabilities"
    if any(variable.get("name") in DEVICE_ENVIRONMENT for variable in _listed(container.get("env"))):
        yield "deviceEnvironment"
    if any(port.get("hostPort") for port in _listed(container.get("ports"))):
        yield "hostPort"


def _images(spec: Json, policy: LocalPolicy) -> Iterator[tuple[str, str]]:
    for container in _containers(spec):
        image = str(container.get("image", ""))
        if policy.registries and not any(image.startswith(prefix) for prefix in policy.registries):
            yield "registries", image
        if policy.require_digest and "@sha256:" not in image:
            yield "requireDigest", image


def _containers(spec: Json) -> list[Json]:
    return [*_listed(spec.get("initContainers")), *_listed(spec.get("containers"))]


def _listed(value: object) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _no(rule: str, **facts: str | int) -> Rejection:
    cut = {name: fact[:256] if isinstance(fact, str) else fact for name, fact in facts.items()}
    words = f"{rule}: " + ", ".join(f"{name} {fact}" for name, fact in cut.items())
    return Rejection(code="local-policy", facts={"rule": rule, "words": words[:1024], **cut})
