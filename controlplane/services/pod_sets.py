"""PodSets as a planner counts them: what a document says, joined with what its templates ask for. Values only.

A submit and a described world read documents by this one module, so that neither takes what the other refuses.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from controlplane.contract.rest.workloads import (
    SPEED_UNIT,
    PodSetSpec,
    Requires,
    TopologyRequest,
    WorkloadDocument,
)
from controlplane.core.demand import PodNeeds, PodSet, TopologyMode
from controlplane.core.ids import FlavorName
from controlplane.services.errors import Fault, Invalid
from controlplane.services.podspec import VENDORS, PodFacts, TemplateReader

MIG = "-mig-"
_NO_LEVEL = TopologyRequest.model_construct()
Known = Callable[[PodFacts], Sequence[FlavorName]]
"""Every Flavor of what a pod asks for that the Queue's tree or a cluster knows; asked where a document names none."""


def templates_of(document: WorkloadDocument, *, is_manifest: bool, is_needed: bool = True) -> list[PodFacts]:
    """What each PodSet's template asks for; raises Invalid with every fault, pointers as the document was sent.

    Where none `is_needed`, as in worlds, a PodSet without one asks for its `devices` and no more.
    """
    facts, faults = [], []
    for index, each in enumerate(document.spec.pod_sets):
        where = "/spec/template" if is_manifest else f"/spec/podSets/{index}/template"
        if each.template is None and not is_needed:
            facts.append(PodFacts(0, "", PodNeeds()))
            continue
        if each.template is None:
            faults.append(Fault(where, f"PodSet {each.name} has no template", "missing-field"))
            continue
        reader = TemplateReader(each.template, where)
        facts.append(reader.read())
        faults.extend(reader.faults)
    if faults:
        raise Invalid(faults[0].detail, slug=faults[0].slug, faults=tuple(faults))
    return facts


def pod_sets_of(document: WorkloadDocument, facts: Sequence[PodFacts], known: Known) -> tuple[PodSet, ...]:
    """The PodSets of a document, with `facts` of their templates in the same order; raises Invalid."""
    requires = document.spec.requires or Requires()
    return tuple(
        _pod_set(each, read, known, requires) for each, read in zip(document.spec.pod_sets, facts, strict=True)
    )


def flavors_among(listed: Iterable[str], read: PodFacts) -> list[FlavorName]:
    """Those of these Flavors that a pod's resource may be, by name."""
    profile = next((read.resource.removeprefix(prefix) for prefix in VENDORS if read.resource.startswith(prefix)), "")
    mig = f"-{profile}" if profile.startswith("mig-") else ""
    return sorted(
        FlavorName(name)
        for name in listed
        if name.startswith(f"{read.vendor}-" if read.vendor else "") and (mig in name if mig else MIG not in name)
    )


def shape_of(document: WorkloadDocument) -> str:
    """Pods of equal templates have one shape: what a scheduler refused for one it refuses for the other."""
    templates = [each.template for each in document.spec.pod_sets]
    return hashlib.sha256(json.dumps(templates, sort_keys=True).encode()).hexdigest()[:32]


def _pod_set(spec: PodSetSpec, read: PodFacts, known: Known, requires: Requires) -> PodSet:
    devices = read.devices if spec.devices is None else spec.devices
    if read.devices and devices != read.devices:
        words = f"PodSet {spec.name} says {devices} devices per pod, its template's limits say {read.devices}"
        raise _invalid("/spec/podSets", "invalid-value", words)
    flavors = tuple(FlavorName(flavor.name) for flavor in spec.flavors)
    if devices and not flavors:
        flavors = _of_one_vendor(known(read), read)
    elif devices and read.vendor and not all(flavor.startswith(read.vendor) for flavor in flavors):
        words = f"the template asks for {read.resource}, which none but {read.vendor}'s flavors are"
        raise _invalid("/spec/podSets", "invalid-value", words)
    topology = spec.topology or _NO_LEVEL
    mode = TopologyMode.NONE if topology.preferred is None else TopologyMode.PREFERRED
    return PodSet(
        name=spec.name,
        replicas=spec.replicas,
        devices=devices,
        flavors=flavors if devices else (),
        needs=_needs(read.needs, requires),
        topology_mode=mode if topology.required is None else TopologyMode.REQUIRED,
        topology_level=topology.required or topology.preferred or "",
        speeds=_speeds(spec),
        min_replicas=spec.min_replicas,
        slice_size=0 if topology.slices is None else topology.slices.size,
        slice_level="" if topology.slices is None else topology.slices.required,
        with_pod_set=topology.with_ or "",
        rules=read.rules,
    )


def _needs(of_template: PodNeeds, requires: Requires) -> PodNeeds:
    """What each pod needs: the larger of what its template asks for and of what the Workload requires."""
    return replace(
        of_template,
        rdma=max(of_template.rdma, requires.rdma or 0),
        hugepages_bytes=max(of_template.hugepages_bytes, requires.hugepages or 0),
        local_storage_bytes=max(of_template.local_storage_bytes, requires.local_storage or 0),
    )


def _speeds(spec: PodSetSpec) -> tuple[int, ...]:
    """In thousandths of the first, whatever number that one was given; nothing where all are alike."""
    speeds = [flavor.speed for flavor in spec.flavors]
    return tuple(max(1, SPEED_UNIT * each // speeds[0]) for each in speeds) if len(set(speeds)) > 1 else ()


def _of_one_vendor(found: Sequence[FlavorName], read: PodFacts) -> tuple[FlavorName, ...]:
    if not found:
        words = f"no flavor is known for {read.resource or 'devices'}; name one (flavors)"
        raise _invalid("/spec/podSets", "missing-field", words)
    if len({name.partition("-")[0] for name in found}) > 1:  # an image runs on one vendor's devices
        words = f"devices of several vendors are known ({', '.join(found)[:400]}); name those that will do (flavors)"
        raise _invalid("/spec/podSets", "missing-field", words)
    return tuple(found)


def _invalid(pointer: str, slug: str, words: str) -> Invalid:
    return Invalid(words, slug=slug, faults=(Fault(pointer, words, slug),))
