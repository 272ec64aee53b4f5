"""Stored documents as people write them: one, or a page of those that the caller may see. Never writes."""

from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.contract.rest.common import Page
from controlplane.contract.rest.documents import DocumentView
from controlplane.core.facts.queries import PageOf
from controlplane.core.facts.tenancy import Principal
from controlplane.services import authz
from controlplane.services.authz import Action
from controlplane.services.cursors import Listing, Paging
from controlplane.services.errors import Malformed, NotFound
from controlplane.services.forms import EDITED, Form, form_of_stored
from controlplane.services.ports.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """Which documents; labels are all wanted."""

    kind: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


def document(uow: UnitOfWork, principal: Principal, kind: str, name: str) -> DocumentView:
    """One; raises NotFound, also for what the caller may not see."""
    if kind not in EDITED:
        raise NotFound(f"documents of kind {kind[:40]!r} are not stored; those of {', '.join(EDITED)} are")
    found = [form_of_stored(each) for each in uow.documents.stored(kind, name)]
    if not found or not _sees(principal, found[0]):
        raise NotFound(f"there is no {kind.lower()} {name[:600]}")
    return _view(found[0])


def documents(uow: UnitOfWork, principal: Principal, wanted: DocumentFilter, paging: Paging) -> Page[DocumentView]:
    """By kind and name; raises Malformed."""
    if wanted.kind is not None and wanted.kind not in EDITED:
        raise Malformed(f"a stored document's kind is one of {', '.join(EDITED)}", slug="invalid-filter")
    listing = Listing(principal, "documents", wanted, paging)
    key = listing.key(2)
    after = None if key is None else (key[0], key[1])
    found: list[Form] = []
    for kind in sorted(EDITED):
        if wanted.kind in {None, kind} and len(found) <= paging.limit and (after is None or kind >= after[0]):
            found.extend(_of_kind(uow, principal, wanted, kind, after))
    more = found[paging.limit - 1] if len(found) > paging.limit else None
    items = [_view(form) for form in found[: paging.limit]]
    return listing.page(PageOf(items, None if more is None else (more.kind, more.name)))


def _of_kind(
    uow: UnitOfWork, principal: Principal, wanted: DocumentFilter, kind: str, after: tuple[str, str] | None
) -> Iterable[Form]:
    for stored in uow.documents.stored(kind):
        if after is not None and (kind, stored.name) <= after:
            continue
        if all(stored.labels.get(key) == value for key, value in wanted.labels):
            form = form_of_stored(stored)
            if _sees(principal, form):
                yield form


def _sees(principal: Principal, form: Form) -> bool:
    """A Queue is its tenants'; the other kinds are no tenant's, and any role anywhere will do."""
    if form.kind == "Queue":
        return authz.may(principal, Action.DOCUMENT_READ, form.name)
    return authz.may(principal, Action.CLUSTER_READ)


def _view(form: Form) -> DocumentView:
    return DocumentView(
        kind=form.kind, name=form.name, version=form.version, etag=form.etag(), labels=dict(form.labels),
        document=form.document(),
    )  # fmt: skip
