"""One document that stands to change, and the row of the audit log that says so. What is lawful is its kind's to say.

An Edit that changes nothing is written nowhere and told to nobody.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from controlplane.contract.rest.common import Warned
from controlplane.contract.rest.documents import Applied, Change, Document
from controlplane.core.facts.ledger import AuditEntry
from controlplane.services.authz import Caller
from controlplane.services.errors import Fault, Invalid
from controlplane.services.forms import Form, changes_between
from controlplane.services.ports.unit_of_work import UnitOfWork

_CHANGES_TOLD_MAX = 20


@dataclass(frozen=True, slots=True)
class Edit:
    """A document before and after; None: there is none. `document` and its place in what was sent, where it was."""

    kind: str
    name: str
    before: Form | None
    after: Form | None
    document: Document | None = None
    place: int | None = None
    warnings: list[Warned] = field(default_factory=list)

    @property
    def is_change(self) -> bool:
        """Whether anything has to be written."""
        if self.before is None or self.after is None:
            return self.before is not self.after
        return not self.after.says_what(self.before)

    @property
    def is_new(self) -> bool:
        """Whether the document is made by this."""
        return self.before is None and self.after is not None

    def changes(self) -> list[Change]:
        """What differs."""
        return changes_between(self.before, self.after)

    def applied(self, stands: Form | None) -> Applied:
        """How the caller is told; `stands` is the document as it is stored now."""
        return Applied(
            kind=self.kind, name=self.name, result=self._result(), id="" if stands is None else str(stands.id),
            etag="" if stands is None else stands.etag(), changes=self.changes(), warnings=self.warnings,
        )  # fmt: skip

    def refused(self, pointer: str, slug: str, words: str) -> Invalid:
        """Why this document cannot stand; `pointer` into it."""
        where = f"{'' if self.place is None else f'/{self.place}'}{pointer}"
        return Invalid(words, slug=slug, faults=(Fault(where, words, slug),))

    def _result(self) -> Literal["created", "changed", "unchanged", "deleted"]:
        if not self.is_change:
            return "unchanged"
        if self.after is None:
            return "deleted"
        return "created" if self.before is None else "changed"


def record(
    uow: UnitOfWork, caller: Caller, edits: Iterable[Edit], more: Mapping[str, Mapping[str, object]] | None = None
) -> None:
    """Note each in the audit log, with the hashes of the document before and after; `more` facts by name."""
    uow.audit.record_many(
        [
            AuditEntry(
                actor=caller.principal.actor,
                action=f"{edit.kind.lower()}.{'delete' if edit.after is None else 'write'}",
                object_kind=edit.kind.lower(),
                object_id=edit.name,
                facts={
                    "changes": [change.path for change in edit.changes()[:_CHANGES_TOLD_MAX]],
                    **(more or {}).get(edit.name, {}),
                },
                request_id=caller.request_id,
                before_sha256=None if edit.before is None else edit.before.sha256(),
                after_sha256=None if edit.after is None else edit.after.sha256(),
            )
            for edit in edits
        ]
    )
