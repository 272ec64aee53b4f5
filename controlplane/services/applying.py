"""Documents that people apply, put and delete: all of a request or none of it, and what a dry run would say of it.

Documents of one request are compared with what is stored, kind by kind; what says nothing new is written nowhere. One
writer of documents at a time, so that of two who saw the same state one wins.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.contract.rest.common import Warned
from controlplane.contract.rest.documents import Applied, ApplyAnswer, Document
from controlplane.contract.rest.fleet import ClusterDocument
from controlplane.contract.rest.workloads import WorkloadDocument
from controlplane.core.facts.tenancy import Principal
from controlplane.core.facts.workloads import NewWorkload
from controlplane.services import cluster_documents, pools, queues
from controlplane.services.authz import Action, Caller, require, sees
from controlplane.services.divisions import require_division
from controlplane.services.edits import Edit
from controlplane.services.errors import Conflict, Forbidden, Malformed, NotFound
from controlplane.services.forms import EDITED, Form, basis_of, form_of, form_of_stored
from controlplane.services.ports.unit_of_work import UnitOfWork
from controlplane.services.preconditions import UNCONDITIONAL, Expected
from controlplane.services.recent import RecentWorld
from controlplane.services.submission import Submission, Submitted, submit

KINDS_IN_ORDER = ("Pool", "Policy", "Cluster", "Flavor", "Window", "Queue", "Workload")
PRUNED = ("Queue", "Policy", "Pool")
_RIGHT: Mapping[str, Action] = {"Queue": Action.QUEUE_WRITE, "Cluster": Action.CLUSTER_WRITE}
Stored = Mapping[str, Mapping[str, Form]]


@dataclass(frozen=True, slots=True)
class Sent:
    """One document of a request and its place in it; `manifest` where it came as a Kubernetes object."""

    document: Document
    manifest: Mapping[str, object] | None = None
    place: int | None = None


@dataclass(slots=True)
class WouldBe:
    """What a request would make of what is stored, for whoever plans on it: filled by `apply`."""

    queues: dict[str, Form] = field(default_factory=dict)  # every one that there would be, where any changes
    edits: list[Edit] = field(default_factory=list)
    work: list[tuple[WorkloadDocument, NewWorkload]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class How:
    """What else the caller said. `expected` is asked of the basis; `prune`: labels of what goes unless it was sent."""

    expected: Expected = UNCONDITIONAL
    prune: tuple[tuple[str, str], ...] | None = None
    dry_run: bool = False

    def said(self) -> bytes:
        """All of it in one form, the same in every process; what a repeated request is known by."""
        expected = [sorted(self.expected.tags), self.expected.anything, self.expected.nothing]
        return json.dumps([expected, self.prune, self.dry_run]).encode()


def apply(
    uow: UnitOfWork,
    caller: Caller,
    sent: Sequence[Sent],
    new_id: Callable[[], str],
    how: How | None = None,
    would_be: WouldBe | None = None,
) -> ApplyAnswer:
    """Take every document, parents before children whatever their order; `would_be`, if given, is told of it.

    Raises Invalid, Conflict, Forbidden, PreconditionFailed. The caller rolls a dry run back.
    """
    how, would_be = how or How(), would_be or WouldBe()
    ordered = sorted(sent, key=_order)
    _refuse_twice(ordered)
    documents = [one for one in ordered if not _is_work(one)]
    kinds = {one.document.kind for one in documents} | set(PRUNED if how.prune is not None else ())
    _require_rights(caller.principal, documents, kinds)
    if kinds and not how.dry_run:
        uow.documents.lock()
    stored = _stored(uow, kinds)
    edits = [_edit(one, stored) for one in documents]
    edits += _pruned(stored, edits, how.prune)
    _refuse_policies_without_pools(edits)
    basis = basis_of({(each.kind, each.name): stored.get(each.kind, {}).get(each.name) for each in edits})
    how.expected.check(basis, "what is stored of these documents")
    _carry_out(uow, caller, edits, stored, dry_run=how.dry_run, writes=not how.dry_run or len(ordered) > len(documents))
    stand = stored if how.dry_run else _stored(uow, {each.kind for each in edits if each.is_change}, stored)
    applied = [each.applied(stand.get(each.kind, {}).get(each.name)) for each in edits]
    would_be.edits, would_be.work = [each for each in edits if each.is_change], []  # also where it is tried again
    would_be.queues = _queues_after(would_be.edits, stored)
    recent = RecentWorld()  # of this transaction: read once for all of its Workloads
    for document, manifest in [(one.document, one.manifest) for one in ordered]:
        if isinstance(document, WorkloadDocument):
            made = submit(uow, caller, Submission(document, manifest), new_id, recent)
            would_be.work.append((document, made.new))
            applied.append(_submitted(document, made, dry_run=how.dry_run))
    return ApplyAnswer(applied=applied, dry_run=how.dry_run, basis=basis)


def put(uow: UnitOfWork, caller: Caller, sent: Sent, expected: Expected) -> Applied:
    """Take one document under a precondition on it; raises also PreconditionFailed."""
    kind, name = sent.document.kind, sent.document.metadata.name
    require(caller.principal, _right(kind), name if kind == "Queue" else None)
    uow.documents.lock()
    stored = _stored(uow, {kind})
    edit, stands = _edit(sent, stored), stored[kind].get(name)
    expected.check(None if stands is None else stands.etag(), f"{kind} {name}")
    _carry_out(uow, caller, [edit], stored)
    return edit.applied(_stored(uow, {kind})[kind].get(name))


def delete(uow: UnitOfWork, caller: Caller, kind: str, name: str, expected: Expected) -> None:
    """Take one document away; raises NotFound, PreconditionFailed, and Conflict where something lives in it."""
    require(caller.principal, _right(kind), name if kind == "Queue" else None)
    uow.documents.lock()
    stored = _stored(uow, {kind})
    before = stored[kind].get(name)
    if before is None:
        raise NotFound(f"there is no {kind.lower()} {name[:600]}")
    expected.check(before.etag(), f"{kind} {name}")
    if kind == "Cluster":
        words = f"what runs in a cluster has to be thought of: DELETE /api/v1/clusters/{name} removes it"
        raise Conflict(words, slug="use-removal")
    _carry_out(uow, caller, [Edit(kind, name, before, None)], stored)


def _require_rights(principal: Principal, documents: Sequence[Sent], kinds: set[str]) -> None:
    """Each kind's own right; for a Queue where it is, in the same words whether or not it is there."""
    for kind in sorted(kinds - {"Queue"}):
        require(principal, _RIGHT.get(kind, Action.POLICY_WRITE))
    for name in sorted(one.document.metadata.name for one in documents if one.document.kind == "Queue"):
        if not sees(principal, name):
            raise Forbidden(f"{principal.name} may not do {Action.QUEUE_WRITE} in {name}")
        require(principal, Action.QUEUE_WRITE, name)


def _right(kind: str) -> Action:
    if kind not in EDITED:
        raise NotFound(f"documents of kind {kind[:40]!r} are not stored; those of {', '.join(EDITED)} are")
    return _RIGHT.get(kind, Action.POLICY_WRITE)


def _carry_out(
    uow: UnitOfWork,
    caller: Caller,
    edits: Sequence[Edit],
    stored: Stored,
    *,
    dry_run: bool = False,
    writes: bool = True,
) -> None:
    """Write each kind after those that it needs and before those that need it."""
    of = {kind: [each for each in edits if each.kind == kind] for kind in KINDS_IN_ORDER}
    pools.write_pools(uow, caller, of["Pool"])
    pools.write_policies(uow, caller, of["Policy"])
    cluster_documents.write(uow, caller, of["Cluster"])
    if of["Queue"]:
        require_division(caller.principal, of["Queue"], stored["Queue"])
        queues.edit(uow, caller, of["Queue"], stored["Queue"], dry_run=dry_run, writes=writes)
    pools.delete_policies(uow, caller, of["Policy"])
    pools.delete_pools(uow, caller, of["Pool"])
    for each in of["Flavor"]:
        words = "flavors come from what agents report, so there is nothing to store"
        each.warnings.append(Warned(code="nothing-to-do", detail=words))
    if any(each.is_change for each in edits):
        for pool in uow.tenancy.pools():
            uow.wake_pool(pool.id)


def _edit(one: Sent, stored: Stored) -> Edit:
    kind, name = one.document.kind, one.document.metadata.name
    after = form_of(one.document)
    before = stored[kind].get(name) if kind in EDITED else after
    edit = Edit(kind, name, before, after, one.document, one.place)
    if isinstance(one.document, ClusterDocument) and one.document.spec.nodes is not None:
        words = "spec.nodes is read by worlds and simulated clusters; agents report what there is, so it is not stored"
        edit.warnings.append(Warned(code="not-stored", detail=words))
    if kind == "Policy" and before is None and not after.spec and not after.labels:
        return Edit(kind, name, after, after, one.document, one.place)  # it says nothing, which is what holds anyway
    return edit


def _pruned(stored: Stored, sent: Sequence[Edit], labels: tuple[tuple[str, str], ...] | None) -> list[Edit]:
    """What carries the labels and was not sent, children before parents."""
    if labels is None:
        return []
    if not labels:
        raise Malformed("prune takes only what carries a label: add label=key=value", slug="invalid-filter")
    named = {(each.kind, each.name) for each in sent}
    return [
        Edit(kind, form.name, form, None)
        for kind in PRUNED
        for form in sorted(stored[kind].values(), key=lambda form: (-form.name.count("/"), form.name))
        if (kind, form.name) not in named and all(form.labels.get(key) == value for key, value in labels)
    ]


def _refuse_policies_without_pools(edits: Sequence[Edit]) -> None:
    leaving = {each.name for each in edits if each.kind == "Pool" and each.after is None}
    for each in edits:
        if each.kind == "Policy" and each.after is not None and each.name in leaving:
            raise each.refused("/metadata/name", "pool-unknown", f"pool {each.name} was not sent and would be pruned")


def _stored(uow: UnitOfWork, kinds: set[str], known: Stored | None = None) -> dict[str, Mapping[str, Form]]:
    """By kind and name; those of `kinds` are read, others are as `known`."""
    forms: dict[str, Mapping[str, Form]] = dict(known or {})
    for kind in kinds & set(EDITED):
        forms[kind] = {each.name: form_of_stored(each) for each in uow.documents.stored(kind)}
    return forms


def _submitted(document: WorkloadDocument, made: Submitted, *, dry_run: bool) -> Applied:
    return Applied(
        kind="Workload", name=document.metadata.name, result="submitted", id="" if dry_run else made.id,
        warnings=list(made.warnings),
    )  # fmt: skip


def _queues_after(edits: Sequence[Edit], stored: Stored) -> dict[str, Form]:
    changed = {each.name: each.after for each in edits if each.kind == "Queue"}
    if not changed:
        return {}
    return {path: form for path, form in {**stored["Queue"], **changed}.items() if form is not None}


def _is_work(one: Sent) -> bool:
    return isinstance(one.document, WorkloadDocument)


def _order(one: Sent) -> tuple[int, int]:
    return KINDS_IN_ORDER.index(one.document.kind), one.document.metadata.name.count("/")


def _refuse_twice(sent: Sequence[Sent]) -> None:
    seen: set[tuple[str, str, str]] = set()
    for one in sent:
        queue = one.document.spec.queue if isinstance(one.document, WorkloadDocument) else ""
        key = (one.document.kind, one.document.metadata.name, queue)
        if key in seen:
            raise Conflict(f"{key[0]} {key[1]} stands there twice", slug="name-conflict")
        seen.add(key)
