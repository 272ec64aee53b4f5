"""What a pod template asks for, and what it may not contain.

Refused is what would go round the planner, the quota or the ledger; what else a cluster does not want is its own
local policy's business and is asked again there. Templates stay JSON: Kubernetes owns their schema.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic_core import PydanticCustomError

from controlplane.contract.agent.inventory import RDMA_RESOURCES
from controlplane.contract.rest.common import OUR_PREFIX, SIMULATED_PREFIX
from controlplane.contract.rest.quantities import cpu_milli, memory_bytes, whole_units
from controlplane.core.demand import NodeRules, PodNeeds
from controlplane.core.nodes import NO_RULES
from controlplane.services.errors import Fault
from controlplane.services.noderules import RulesReader

RDMA, HUGEPAGES, STORAGE = "rdma", "hugepages-", "ephemeral-storage"  # of the first two, all kinds count together
TEMPLATE_BYTES_MAX = 262_144
IMAGE_LENGTH_MAX = 512
VENDORS: Mapping[str, str] = {
    "nvidia.com/": "nvidia",
    "amd.com/": "amd",
    "gpu.intel.com/": "intel",
    "habana.ai/": "intel",
    "google.com/tpu": "google",
    "aws.amazon.com/neuron": "aws",
    "huawei.com/": "huawei",
    "cambricon.com/": "cambricon",
}
"""Kubernetes resources that are devices, by prefix, and the vendor that begins their Flavors' names."""

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?P<digest>@sha256:[0-9a-f]{64})?"
)
_OURS = {
    "nodeName": "the plane chooses nodes",
    "schedulingGates": "the plane gates pods itself",
    "priorityClassName": "pods carry the plane's own PriorityClass; give the Workload a priority",
    "priority": "pods carry the plane's own PriorityClass; give the Workload a priority",
    "preemptionPolicy": "pods carry the plane's own PriorityClass",
    "hostNetwork": "it reaches past the pod",
    "hostPID": "it reaches past the pod",
    "hostIPC": "it reaches past the pod",
    "ephemeralContainers": "nobody adds containers to a pod that does not run yet",
    "resourceClaims": "claims of devices are not counted by quota yet",
}
_USER_METADATA = frozenset({"labels", "annotations", "name", "creationTimestamp"})
_DEVICE_ENVIRONMENT = frozenset({"NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES"})
_CONTAINERS = ("containers", "initContainers")


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What one pod of a template asks for. `resource` is "" and `devices` 0 where it names no device."""

    devices: int
    resource: str
    needs: PodNeeds
    warnings: tuple[str, ...] = ()
    rules: NodeRules = NO_RULES

    @property
    def vendor(self) -> str:
        """Whose devices they are; "" where there are none."""
        return next((vendor for prefix, vendor in VENDORS.items() if self.resource.startswith(prefix)), "")


class TemplateReader:
    """Reads one template; what is wrong with it gathers in `faults`, with pointers below `pointer`."""

    def __init__(self, template: Mapping[str, object], pointer: str) -> None:
        self._template = template
        self._pointer = pointer
        self._warnings: list[str] = []
        self.faults: list[Fault] = []

    def read(self) -> PodFacts:
        """What the pod asks for; meaningless if `faults` is not empty afterwards."""
        if len(json.dumps(self._template)) > TEMPLATE_BYTES_MAX:
            self._wrong("", "too-long", f"a pod template is at most {TEMPLATE_BYTES_MAX // 1024} KiB")
        self._check_metadata()
        spec = self._object(self._template, "spec", "/spec")
        self._check_spec(spec)
        facts = self._facts(spec)
        if not facts.devices and "nvidia" in str(spec.get("runtimeClassName")):
            self._wrong("/spec/runtimeClassName", "pod-policy", "this runtime shows devices, and the pod asks for none")
        rules = self._rules(spec)
        return replace(facts, warnings=tuple(dict.fromkeys(self._warnings)), rules=rules)

    def _wrong(self, where: str, slug: str, words: str) -> None:
        self.faults.append(Fault(self._pointer + where, words, slug))

    def _object(self, parent: Mapping[str, object], key: str, where: str) -> Mapping[str, object]:
        value = parent.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._wrong(where, "invalid-value", f"{key} is an object")
            return {}
        return value

    def _objects(
        self, parent: Mapping[str, object], key: str, where: str
    ) -> Iterator[tuple[str, Mapping[str, object]]]:
        value = parent.get(key)
        if value is None:
            return
        if not isinstance(value, Sequence) or isinstance(value, str):
            self._wrong(where, "invalid-value", f"{key} is a list")
            return
        for index, each in enumerate(value):
            if isinstance(each, Mapping):
                yield f"{where}/{index}", each
            else:
                self._wrong(f"{where}/{index}", "invalid-value", f"{key} is a list of objects")

    def _check_metadata(self) -> None:
        for key in self._template.keys() - {"metadata", "spec", "apiVersion", "kind"}:
            self._wrong(f"/{key}", "unknown-field", "a pod template has metadata and spec")
        metadata = self._object(self._template, "metadata", "/metadata")
        for key in metadata.keys() - _USER_METADATA:
            self._wrong(f"/metadata/{key}", "reserved-metadata", f"{key} is not for users to set")
        for kind in ("labels", "annotations"):
            for key in self._object(metadata, kind, f"/metadata/{kind}"):
                if OUR_PREFIX in key and not key.startswith(SIMULATED_PREFIX):
                    self._wrong(
                        f"/metadata/{kind}", "reserved-metadata", f"keys under {OUR_PREFIX} are the plane's own"
                    )

    def _check_spec(self, spec: Mapping[str, object]) -> None:
        for field, why in _OURS.items():
            if spec.get(field) not in (None, False):
                self._wrong(f"/spec/{field}", "pod-policy", f"{field} is not for users to set: {why}")
        if spec.get("schedulerName") not in (None, "default-scheduler"):
            self._wrong("/spec/schedulerName", "pod-policy", "schedulerName is not for users to set")
        if spec.get("restartPolicy") == "Always":
            self._wrong("/spec/restartPolicy", "invalid-value", "restartPolicy Always would never end; use Never")
        elif spec.get("restartPolicy") == "OnFailure":
            self._warnings.append(
                "restartPolicy OnFailure is taken as Never: a gang is tried again whole (maxAttempts)"
            )
        for field in ("serviceAccountName", "serviceAccount"):
            if spec.get(field) not in (None, "", "default"):
                self._wrong(f"/spec/{field}", "pod-policy", "pods run under the service account default and no other")
        deadline = spec.get("activeDeadlineSeconds")
        if deadline is not None and (isinstance(deadline, bool) or not isinstance(deadline, int) or deadline < 1):
            self._wrong("/spec/activeDeadlineSeconds", "invalid-quantity", "activeDeadlineSeconds is 1 or more")
        if spec.get("automountServiceAccountToken"):
            self._wrong("/spec/automountServiceAccountToken", "pod-policy", "pods get no token for their cluster's API")
        self._check_volumes(spec)
        for key in _CONTAINERS:
            for where, container in self._objects(spec, key, f"/spec/{key}"):
                self._check_container(container, where)

    def _check_volumes(self, spec: Mapping[str, object]) -> None:
        for where, volume in self._objects(spec, "volumes", "/spec/volumes"):
            if "hostPath" in volume:
                self._wrong(where, "pod-policy", "hostPath volumes reach past the pod")
            projected = self._object(volume, "projected", f"{where}/projected")
            for place, source in self._objects(projected, "sources", f"{where}/projected/sources"):
                if "serviceAccountToken" in source:
                    self._wrong(place, "pod-policy", "pods get no token for their cluster's API")

    def _rules(self, spec: Mapping[str, object]) -> NodeRules:
        reader = RulesReader(spec)
        rules = reader.read()
        for where, slug, words in dict.fromkeys(reader.wrong):
            self._wrong(f"/spec{where}", slug, words)
        self._warnings.extend(reader.warnings)
        return rules

    def _check_container(self, container: Mapping[str, object], where: str) -> None:
        image = container.get("image")
        match = _IMAGE.fullmatch(image) if isinstance(image, str) and len(image) <= IMAGE_LENGTH_MAX else None
        if match is None:
            self._wrong(f"{where}/image", "invalid-image", "an image is written like registry.example/team/name:tag")
        elif match["digest"] is None:
            self._warnings.append(f"image {image} has no digest: pods of one gang may get different builds of it")
        if self._object(container, "securityContext", f"{where}/securityContext").get("privileged"):
            self._wrong(f"{where}/securityContext/privileged", "pod-policy", "a privileged pod sees every device")
        for place, variable in self._objects(container, "env", f"{where}/env"):
            if variable.get("name") in _DEVICE_ENVIRONMENT:
                self._wrong(place, "pod-policy", f"{variable.get('name')} would show devices that others hold")

    def _facts(self, spec: Mapping[str, object]) -> PodFacts:
        """Kubernetes' own rule: the sum over containers, or the hungriest init container; sidecars count with both."""
        containers = [self._asked(each, where) for where, each in self._objects(spec, "containers", "/spec/containers")]
        if not containers:
            self._wrong("/spec/containers", "missing-field", "a pod has at least one container")
        first = [
            (self._asked(each, where), each.get("restartPolicy") == "Always")
            for where, each in self._objects(spec, "initContainers", "/spec/initContainers")
        ]
        listed = [*containers, *(asked for asked, _ in first)]
        resources = sorted({resource for asked in listed for resource in asked if "/" in resource})
        if len(resources) > 1:
            self._wrong(
                "/spec/containers", "not-yet", f"one pod asks for {' and '.join(resources)}; one kind is counted"
            )

        def total(resource: str) -> int:
            sidecars, peak = 0, 0
            for asked, is_sidecar in first:
                peak = max(peak, sidecars + asked.get(resource, 0))
                sidecars += asked.get(resource, 0) if is_sidecar else 0
            return max(peak, sidecars + sum(asked.get(resource, 0) for asked in containers))

        resource = resources[0] if resources else ""
        return PodFacts(total(resource), resource, PodNeeds(*map(total, ("cpu", "memory", RDMA, HUGEPAGES, STORAGE))))

    def _asked(self, container: Mapping[str, object], where: str) -> dict[str, int]:
        resources = self._object(container, "resources", f"{where}/resources")
        limits = self._object(resources, "limits", f"{where}/resources/limits")
        requests = self._object(resources, "requests", f"{where}/resources/requests")
        asked = Counter[str]()
        for name, value in {**limits, **requests}.items():
            try:
                if name == "cpu":
                    asked[name] = cpu_milli(value)
                elif name in {"memory", STORAGE}:
                    asked[name] = memory_bytes(value)
                elif name.startswith(HUGEPAGES):
                    asked[HUGEPAGES] += memory_bytes(value)
                elif name.startswith(RDMA_RESOURCES):
                    asked[RDMA] += whole_units(value)
                elif any(name.startswith(prefix) for prefix in VENDORS) and (units := whole_units(value)):
                    asked[name] = units
            except PydanticCustomError as error:
                self._wrong(f"{where}/resources", "invalid-quantity", f"{name}: {error.message()}")
        return asked
