"""Core values and stored rows into the agents' contract, and back. Translation only: nothing is decided here.

The environment of a gang (rank, world size, address of rank 0, what launchers expect) is left to the agent, which
knows the host names in its cluster; a directive's `environment` holds only what is the same for every rank.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from controlplane.contract.agent import names
from controlplane.contract.agent.attempts import ApplyBody, Budgets, Directive, Rejection
from controlplane.contract.agent.inventory import DeviceReport, DiscrepancyReport, NodeReport, node_digest
from controlplane.core.facts.attempts import PodPin, WorkloadOrder
from controlplane.core.facts.fleet import Card, Document, FlavorCount, NodeWrite, NumberedDirective, ToldResource
from controlplane.core.facts.ledger import AttemptKey
from controlplane.core.ids import ClusterId, FlavorName
from controlplane.core.reasons import Reason, ReasonCode, reason

_JOB_FIELDS_KEPT = frozenset({"activeDeadlineSeconds", "podFailurePolicy"})
_YEAR = timedelta(days=365)
_ILL = frozenset({"unhealthy", "lost"})


def apply_body(order: WorkloadOrder, pins: Sequence[PodPin], budgets: Document | None = None) -> dict[str, Any]:
    """The body of an apply directive: one cluster's part of an Attempt, `pins` being its pods in order of rank.

    Each PodSet is as large as the number of its pins here, while `world_size` counts the whole Attempt. The part of a
    divided one that does not begin with its first pod is plain pods, since a Job counts its own from 0. A pin names
    the Kubernetes resource of its Flavor on its node: `uow.fleet.resources` tells it. `budgets` is what the Cluster's
    document says of them.
    """
    indexes: dict[str, list[int]] = {}
    for pin in pins:
        indexes.setdefault(pin.pod_set, []).append(pin.index)
    body: dict[str, Any] = {
        "name": order.name,
        "namespace": order.namespace,
        "world_size": order.world_size,
        "pod_sets": [_pod_set(order, name, found) for name, found in indexes.items()],
        "pins": [
            {"pod_set": p.pod_set, "index": p.index, "rank": p.rank, "node": p.node, "resource": p.resource,
             "amount": p.amount}
            for p in pins
        ],
        "environment": {
            "MUSTER_WORKLOAD": order.name,
            "MUSTER_WORKLOAD_UID": order.key.workload,
            "MUSTER_ATTEMPT": str(order.key.attempt),
        },
    }  # fmt: skip
    if budgets and (stated := budgets_of(budgets).model_dump(exclude_defaults=True)):
        body["budgets"] = stated
    if order.on_cluster_loss == "replace":
        body["on_cluster_loss"] = "replace"
    # Plain values, since a cycle writes thousands of pins; what an agent would refuse is refused here all the same.
    ApplyBody.model_validate(body)
    return body


def tell_of_rank_zero(
    key: AttemptKey, bodies: Mapping[ClusterId, dict[str, Any]], addresses: Mapping[ClusterId, str]
) -> None:
    """Tell the parts of a divided gang where rank 0 is, if its cluster says how its pods are called from others."""
    for cluster, body in bodies.items():
        first = next((pin for pin in body["pins"] if pin["rank"] == 0), None)
        if first is None or not addresses.get(cluster):
            continue
        made = ApplyBody.model_validate(body)
        address = addresses[cluster]
        for part, name in (
            ("{host}", names.pod_name(made, key.workload, key.attempt, first["pod_set"], first["index"])),
            ("{service}", names.base_name(made, key.workload, key.attempt)),
            ("{namespace}", made.namespace),
        ):
            address = address.replace(part, name)
        for other in bodies:
            if other != cluster:
                bodies[other]["environment"]["MUSTER_MASTER_ADDR"] = address


def budgets_of(stated: Document) -> Budgets:
    """The budgets of a Cluster's document, as its agent is told them; what it leaves out is as usual."""
    names = {"prepare_seconds": "prepareSeconds", "bind_seconds": "bindSeconds", "pull_seconds": "pullSeconds",
             "ready_seconds": "readySeconds"}  # fmt: skip
    return Budgets.model_validate({name: stated[key] for name, key in names.items() if key in stated})


def directive(stored: NumberedDirective) -> Directive:
    """A stored directive as it is sent."""
    return Directive(
        number=stored.number,
        object_id=stored.object_id,
        gen=stored.gen,
        kind=cast("Any", stored.kind),  # the table's CHECK allows the contract's three words alone
        workload=stored.workload,
        attempt=stored.attempt,
        apply=ApplyBody.model_validate(stored.body) if stored.kind == "apply" else None,
    )


def cluster_spec(spec: Document) -> dict[str, object]:
    """What of a Cluster's document its agent needs: the node labels that name topology levels."""
    return {"topologyKeys": spec["topologyKeys"]} if spec.get("topologyKeys") else {}


def told_at_hello(spec: Document) -> tuple[object, ...]:
    """All that the answer to a hello takes from a Cluster's document, to see whether it has changed."""
    return cluster_spec(spec), spec.get("suspectSeconds")


def desired_digest(objects: Iterable[tuple[str, int]]) -> str:
    """The digest of (object, generation) pairs, as an agent counts it."""
    text = "\n".join(f"{name} {gen}" for name, gen in sorted(objects))
    return hashlib.sha256(text.encode()).hexdigest()


def rejection_reason(rejection: Rejection | None, message: str, cluster: str) -> Reason:
    """Why a cluster refused, in the words of `core.reasons`; facts that the agent left out are filled in."""
    if rejection is None:
        return reason(ReasonCode.REFUSED_BY_CLUSTER, cluster=cluster, words=message)
    defaults: dict[str, int | str] = {
        "cluster": cluster, "words": message, "amount": 0, "flavor": "devices", "node": ", ".join(rejection.nodes[:3]),
        "kind": "object", "name": "", "namespace": "", "goal": "ready", "limit": 0,
    }  # fmt: skip
    told = {name: fact for name, fact in rejection.facts.items() if name in defaults}  # others mean nothing here
    return reason(ReasonCode(rejection.code), **{**defaults, **told, "cluster": cluster})


def believable(moment: datetime | None, now: datetime) -> datetime | None:
    """A peer's time stamp, never in the future; one that is a year or more off in the past counts as now."""
    if moment is None:
        return None
    if moment > now or now - moment > _YEAR:
        return now
    return moment


def node_write(
    report: NodeReport, flavors: Mapping[str, FlavorName], now: datetime, cordoned: Collection[str] = ()
) -> NodeWrite:
    """One node's report as columns. `flavors` names each device's Flavor by its key; `cordoned` are keys, too."""
    return NodeWrite(
        uid=report.uid,
        name=report.name,
        row=_node_row(report, now),
        flavors=tuple(flavor_counts(told_resources(report), cards_of(report, flavors, cordoned))),
        devices=tuple(_device_row(device, flavors) for device in report.devices),
        discrepancies=tuple(_discrepancy_row(told) for told in report.discrepancies),
    )


def told_resources(report: NodeReport) -> list[ToldResource]:
    """What a node says of its resources."""
    return [ToldResource(told.resource, told.allocatable, told.foreign) for told in report.resources]


def cards_of(report: NodeReport, flavors: Mapping[str, FlavorName], cordoned: Collection[str] = ()) -> list[Card]:
    """A node's devices as far as they are counted."""
    return [
        Card(
            device_key=card.device_key,
            flavor=flavors[card.device_key],
            resource=card.resource,
            parent_key=card.parent_key,
            slots_total=card.slots_total,
            slots_allocatable=card.slots_allocatable,
            health=card.health,
            is_cordoned=card.device_key in cordoned,
        )
        for card in report.devices
    ]


def flavor_counts(resources: Iterable[ToldResource], devices: Sequence[Card]) -> list[FlavorCount]:
    """Units per Flavor: what is known, what works, and what of that is ours to give.

    A card that is cut into partitions is counted by its partitions. Where the API server counts fewer than the
    cards that look well, or foreign pods hold some, nobody can say which: they are taken off in order of name. Of two
    resources that give the same Flavor, the one with more to give counts, since a pod asks for one.
    """
    parents = {card.parent_key for card in devices}
    counts: dict[FlavorName, FlavorCount] = {}
    for told in resources:
        cards = [card for card in devices if card.resource == told.resource and card.device_key not in parents]
        names = sorted({card.flavor for card in cards})
        owned = {name: sum(card.slots_total for card in cards if card.flavor == name) for name in names}
        well = {name: sum(_usable(card) for card in cards if card.flavor == name) for name in names}
        kept = {name: sum(_withheld(card) for card in cards if card.flavor == name) for name in names}
        missing = max(0, sum(well.values()) - told.allocatable)
        foreign = told.foreign
        for name in names:
            short = min(well[name], missing)
            missing -= short
            used = min(well[name] - short, foreign)
            foreign -= used
            usable = well[name] - short
            count = FlavorCount(name, told.resource, owned[name], usable, used, usable - used, kept[name])
            counts[name] = max(counts.get(name, count), count, key=lambda each: each.capacity)
    return list(counts.values())


def _usable(card: Card) -> int:
    return 0 if card.is_cordoned or card.health in _ILL else card.slots_allocatable


def _withheld(card: Card) -> int:
    return card.slots_allocatable if card.is_cordoned and card.health not in _ILL else 0


def _pod_set(order: WorkloadOrder, name: str, indexes: Sequence[int]) -> dict[str, Any]:
    stated = order.spec.get("podSets")
    assert isinstance(stated, list)
    found = next(one for one in stated if one["name"] == name)
    told: dict[str, Any] = {"name": name, "replicas": len(indexes), "template": found.get("template") or {}}
    if min(indexes):
        told["kind"] = "Pods"
    job = order.manifest.get("spec") if order.manifest is not None else None
    kept = {key: value for key, value in job.items() if key in _JOB_FIELDS_KEPT} if isinstance(job, Mapping) else {}
    return {**told, "job": kept} if kept else told


def _node_row(report: NodeReport, now: datetime) -> dict[str, Any]:
    changed = believable(report.ready_changed_at, now)
    return {
        "uid": report.uid,
        "name": report.name,
        "kind": report.kind,
        "provider_id": report.provider_id,
        "instance_type": report.instance_type,
        "ready": report.ready,
        "ready_changed_at": None if changed is None else changed.isoformat(),
        "cordoned": report.cordoned,
        "deleting": report.deleting,
        "taints": report.taints,
        "domains": report.domains,
        "labels": report.labels,
        "driver_versions": report.driver_versions,
        "cpu_milli": report.cpu_milli,
        "memory_bytes": report.memory_bytes,
        "pods": report.pods,
        "rdma": report.rdma,
        "hugepages_bytes": report.hugepages_bytes,
        "local_storage_bytes": report.local_storage_bytes,
        "foreign_pods": [pod.model_dump(mode="json") for pod in report.foreign_pods],
        "discrepancies": [told.model_dump(mode="json") for told in report.discrepancies],
        "digest": node_digest(report),
        "resources": [
            {"resource": told.resource, "allocatable": told.allocatable, "foreign": told.foreign}
            for told in report.resources
        ],
    }


def _device_row(device: DeviceReport, flavors: Mapping[str, FlavorName]) -> dict[str, Any]:
    row: dict[str, Any] = device.model_dump(mode="json", exclude={"health_reasons"})
    row["flavor"] = flavors[device.device_key]
    row["health_reasons"] = [why.model_dump(mode="json", exclude_none=True) for why in device.health_reasons]
    return row


def _discrepancy_row(told: DiscrepancyReport) -> dict[str, Any]:
    return told.model_dump(mode="json")
