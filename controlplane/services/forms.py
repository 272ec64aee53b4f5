"""Documents in the one form in which they are compared, shown and hashed: defaults left out, quotas in order.

A stored document and the same one sent again have equal forms, so that applying it again changes nothing.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pydantic.alias_generators import to_camel

from controlplane.contract.rest.common import API_VERSION, Json, RestModel
from controlplane.contract.rest.documents import Change, Document
from controlplane.contract.rest.fleet import ClusterDocument, ClusterSpec, FlavorSpec
from controlplane.contract.rest.tenancy import PoolSpec, QueueSpec
from controlplane.core.facts.tenancy import StoredDocument
from controlplane.services.validation import pointer

Values = dict[str, Json]


def _dumped(spec: RestModel) -> Values:
    values: Values = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return values


_DEFAULTS: Mapping[str, Values] = {
    "Queue": {**_dumped(QueueSpec()), "namespace": ""},
    "Pool": _dumped(PoolSpec()),
    "Policy": {},
    "Cluster": _dumped(ClusterSpec()),
    "Flavor": _dumped(FlavorSpec()),
}
EDITED = ("Queue", "Pool", "Policy", "Cluster")
"""The kinds that are stored, and read, written and deleted one by one."""


@dataclass(frozen=True, slots=True)
class Form:
    """One document; `id` and `version` are its row's, where it is stored."""

    kind: str
    name: str
    labels: Mapping[str, str]
    spec: Values
    id: int | None = None
    version: int | None = None

    def document(self) -> Values:
        """As people write it."""
        metadata: Values = {"name": self.name, **({"labels": dict(self.labels)} if self.labels else {})}
        return {"apiVersion": API_VERSION, "kind": self.kind, "metadata": metadata, "spec": self.spec}

    def sha256(self) -> bytes:
        """Of the document; what the audit log keeps of it."""
        return hashlib.sha256(_text(self.document())).digest()

    def etag(self) -> str:
        """Differs whenever the document does, and when another thing has its name."""
        return hashlib.sha256(_text([self.id, self.document()])).hexdigest()[:20]

    def says_what(self, other: "Form | None") -> bool:
        """Whether the other says the same."""
        return other is not None and self.labels == other.labels and self.spec == other.spec


def form_of(document: Document) -> Form:
    """The form of a document that was sent."""
    spec = _dumped(document.spec) if isinstance(document.spec, RestModel) else dict(document.spec)
    if isinstance(document, ClusterDocument):
        spec.pop("nodes", None)  # read by worlds and simulated clusters, never stored
    return _form(document.kind, document.metadata.name, document.metadata.labels, spec)


def form_of_stored(stored: StoredDocument) -> Form:
    """The form of a document's row."""
    named = to_camel if stored.kind == "Policy" else str
    spec = {named(name): cast("Json", value) for name, value in stored.spec.items()}
    return _form(stored.kind, stored.name, stored.labels, spec, stored.id, stored.version)


def changes_between(before: Form | None, after: Form | None) -> list[Change]:
    """What differs, by JSON pointer, in order."""
    found: list[Change] = []
    _differ(_compared(before), _compared(after), (), found)
    return found


def basis_of(forms: Mapping[tuple[str, str], Form | None]) -> str:
    """One text for the state of all of these; None stands for a document that is not there."""
    states = [[*key, None if form is None else form.etag()] for key, form in sorted(forms.items())]
    return hashlib.sha256(_text(states)).hexdigest()[:32]


def _form(
    kind: str, name: str, labels: Mapping[str, str], spec: Values, number: int | None = None, version: int | None = None
) -> Form:
    if kind == "Queue":
        spec = {**spec, "quotas": _quotas(spec.get("quotas"), is_root="/" not in name)}
    return Form(kind, name, dict(labels), _without_defaults(spec, _DEFAULTS[kind]), number, version)


def _quotas(listed: Json, *, is_root: bool) -> list[Json]:
    """By Flavor. Below a root no nominal is 0; at a root it is what clusters own, so 0 must be said."""
    quotas: dict[str, Json] = {}
    for quota in listed if isinstance(listed, list) else []:
        assert isinstance(quota, dict)
        said: Values = {name: each for name, each in quota.items() if is_root or (name, each) != ("nominal", 0)}
        quotas[str(quota["flavor"])] = said
    return [quotas[flavor] for flavor in sorted(quotas)]


def _without_defaults(values: Values, defaults: Values) -> Values:
    kept: Values = {}
    for name, value in values.items():
        usual = defaults.get(name)
        if isinstance(value, dict) and isinstance(usual, dict):
            value = _without_defaults(value, usual)  # noqa: PLW2901 - what is left of it
            if value:
                kept[name] = value
        elif name not in defaults or value != usual:
            kept[name] = value
    return kept


def _compared(form: Form | None) -> Values:
    if form is None:
        return {}
    spec = dict(form.spec)
    quotas = spec.get("quotas")
    if isinstance(quotas, list):
        spec["quotas"] = {str(each["flavor"]): _rest(each) for each in quotas if isinstance(each, dict)}
    compared: Values = {"metadata": {"labels": dict(form.labels)}} if form.labels else {}
    return {**compared, "spec": spec} if spec else compared


def _rest(quota: Values) -> Values:
    return {name: value for name, value in quota.items() if name != "flavor"}


def _differ(before: Json, after: Json, path: tuple[str, ...], found: list[Change]) -> None:
    if before == after:
        return
    if (isinstance(before, dict) or before is None) and (isinstance(after, dict) or after is None):
        names = sorted({*(before or {}), *(after or {})})
        for name in names:
            _differ((before or {}).get(name), (after or {}).get(name), (*path, name), found)
        if names:
            return
    found.append(Change(path=pointer(path), before=before, after=after))


def _text(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
