"""Submit a Workload: checked, written as pending and due now. Where and when it runs is a planner's to decide."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import cast

from controlplane.contract.rest.common import Json, Warned
from controlplane.contract.rest.workloads import (
    SPEED_UNIT,
    PodNeedsView,
    PodSetView,
    WorkloadDocument,
    WorkloadView,
    topology_words,
)
from controlplane.core.demand import PodSet
from controlplane.core.facts.ledger import AuditEntry
from controlplane.core.facts.workloads import NewWorkload, SubmissionSite
from controlplane.core.ids import FlavorName, WorkloadId
from controlplane.core.lifecycle import WorkloadState
from controlplane.core.nodes import words
from controlplane.services import authz, priorities
from controlplane.services.authz import Action, Caller
from controlplane.services.doubts import of_pod_sets
from controlplane.services.errors import Conflict, Fault, Invalid
from controlplane.services.manifests import warnings_of_job
from controlplane.services.pod_sets import flavors_among, pod_sets_of, shape_of, templates_of
from controlplane.services.podspec import PodFacts
from controlplane.services.pools import pool_named
from controlplane.services.ports.unit_of_work import UnitOfWork
from controlplane.services.recent import RecentWorld, World
from controlplane.services.satisfiable import never_satisfiable

Manifest = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Submitted:
    """A pending Workload as written, what its owner should know, and how a reader sees it now."""

    id: WorkloadId
    warnings: tuple[Warned, ...]
    view: WorkloadView
    new: NewWorkload


@dataclass(frozen=True, slots=True)
class Submission:
    """A Workload as sent; `manifest` where it came as a Kubernetes object."""

    document: WorkloadDocument
    manifest: Manifest | None = None


def submit(
    uow: UnitOfWork,
    caller: Caller,
    submission: Submission,
    new_id: Callable[[], str],
    recent: RecentWorld | None = None,
) -> Submitted:
    """Write it as pending; raises Invalid, NotFound, Forbidden or Conflict.

    `recent` is the process's memory of the quota tree; without one the tree is read.
    """
    document = submission.document
    known = recent or RecentWorld()
    site = _site(uow, caller, document)
    priorities.require_granted(caller, site.path, document.spec.priority_value())
    namespace = _namespace(site, submission.manifest)
    facts = templates_of(document, is_manifest=submission.manifest is not None)
    pod_sets = pod_sets_of(document, facts, lambda read: _known_flavors(uow, known, site, read))
    if (refused := never_satisfiable(uow, known, site.queue, pod_sets, document.spec.clusters.max)) is not None:
        raise Invalid(refused.sentence(), slug="never-satisfiable")
    name = document.metadata.name
    if site.live is not None:
        workload, state = site.live
        raise Conflict(f"{site.path} has a workload {name} that is {state} ({workload})", slug="name-conflict")
    assert site.pool is not None, "a site without a pool was refused"
    new = NewWorkload(
        id=WorkloadId(new_id()),
        name=name,
        queue=site.queue,
        pool=site.pool,
        owner=caller.principal.name,
        priority=document.spec.priority_value(),
        kind="Job" if submission.manifest is not None else "Workload",
        spec=_stored_spec(document, pod_sets, namespace),
        manifest=submission.manifest,
        labels=document.metadata.labels,
        shape=shape_of(document),
        max_attempts=document.spec.max_attempts,
        on_cluster_loss=document.spec.on_cluster_loss,
        pod_sets=pod_sets,
    )
    noted = AuditEntry(
        actor=caller.principal.actor, action=Action.WORKLOAD_SUBMIT, object_kind="workload", object_id=new.id,
        state_to=WorkloadState.PENDING, facts={"name": name, "queue": site.path}, request_id=caller.request_id,
    )  # fmt: skip
    if not uow.workloads.add(new, noted):
        raise _not_leaf(site.path)
    uow.wake_pool(site.pool)
    warnings = [warning for read in facts for warning in read.warnings]
    told = dict.fromkeys([*warnings, *warnings_of_job(submission.manifest or {})])
    of_template = [Warned(code="template", detail=words) for words in told]
    named = {flavor.name for each in document.spec.pod_sets for flavor in each.flavors}
    doubts = of_pod_sets(known.get(uow).shape, pod_sets, named)
    return Submitted(new.id, (*of_template, *doubts), _view(new, site.path, document.spec.pool, uow.now), new)


def _site(uow: UnitOfWork, caller: Caller, document: WorkloadDocument) -> SubmissionSite:
    path, pool = document.spec.queue, document.spec.pool
    site = uow.workloads.site(path, pool, document.metadata.name)
    if site is None or not authz.sees(caller.principal, path):
        raise _invalid("/spec/queue", "queue-unknown", f"there is no queue {path}")
    authz.require(caller.principal, Action.WORKLOAD_SUBMIT, path)
    if not site.is_leaf:
        raise _not_leaf(path)
    return site if site.pool is not None else replace(site, pool=pool_named(uow, pool).id)


def _namespace(site: SubmissionSite, manifest: Manifest | None) -> str:
    if not site.namespace:
        words = f"neither {site.path} nor a queue above it names a namespace (spec.namespace)"
        raise _invalid("/spec/queue", "queue-without-namespace", words)
    metadata = (manifest or {}).get("metadata")
    wanted = metadata.get("namespace") if isinstance(metadata, Mapping) else None
    if wanted not in (None, site.namespace):
        raise _invalid("/metadata/namespace", "pod-policy", f"work of {site.path} runs in namespace {site.namespace}")
    return site.namespace


def _view(new: NewWorkload, queue: str, pool: str, now: datetime) -> WorkloadView:
    """What a reader is shown of it right after this transaction, without reading it back."""
    return WorkloadView(
        id=new.id,
        name=new.name,
        queue=queue,
        pool=pool,
        owner=new.owner,
        state=WorkloadState.PENDING,
        priority=new.priority,
        kind=new.kind,
        labels=dict(new.labels),
        version=1,
        pod_sets=[
            PodSetView(
                name=each.name,
                replicas=each.replicas,
                devices=each.devices,
                flavors=list(each.flavors),
                topology=topology_words(
                    each.topology_mode, each.topology_level, (each.slice_size, each.slice_level), each.with_pod_set
                ),
                min_replicas=each.min_replicas,
                speeds=list(each.speeds),
                needs=PodNeedsView(**asdict(each.needs)),
                nodes=words(each.rules),
            )
            for each in new.pod_sets
        ],
        max_attempts=new.max_attempts,
        submitted_at=now,
        state_changed_at=now,
        spec=cast("dict[str, Json]", dict(new.spec)),
    )


def _known_flavors(uow: UnitOfWork, recent: RecentWorld, site: SubmissionSite, read: PodFacts) -> Sequence[FlavorName]:
    """Every Flavor of that resource that the Queue's tree or a cluster knows."""
    return _flavors_in(recent.get(uow), site, read) or _flavors_in(recent.fresh(uow), site, read)


def _flavors_in(world: World, site: SubmissionSite, read: PodFacts) -> list[FlavorName]:
    listed = set(world.totals)
    if site.queue in world.tree.queues:
        for queue in world.tree.path(site.queue):
            listed.update(quota.flavor for quota in world.tree.queues[queue].quotas)
    return flavors_among(listed, read)


def _stored_spec(document: WorkloadDocument, pod_sets: Sequence[PodSet], namespace: str) -> dict[str, object]:
    """The document's spec with what was read out of it, so that nobody has to read it again."""
    spec: dict[str, object] = document.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    spec["namespace"] = namespace
    spec["podSets"] = [
        {
            **given.model_dump(mode="json", by_alias=True, exclude_defaults=True),
            "replicas": each.replicas,
            "devices": each.devices,
            "flavors": _stored_flavors(each),
        }
        for given, each in zip(document.spec.pod_sets, pod_sets, strict=True)
    ]
    return spec


def _stored_flavors(pod_set: PodSet) -> list[dict[str, object]]:
    speeds = pod_set.speeds or (SPEED_UNIT,) * len(pod_set.flavors)
    chosen = zip(pod_set.flavors, speeds, strict=True)
    return [{"name": name} if speed == SPEED_UNIT else {"name": name, "speed": speed} for name, speed in chosen]


def _not_leaf(path: str) -> Invalid:
    return _invalid("/spec/queue", "queue-not-leaf", f"{path} has queues below it; only leaf queues take workloads")


def _invalid(pointer: str, slug: str, words: str) -> Invalid:
    return Invalid(words, slug=slug, faults=(Fault(pointer, words, slug),))
