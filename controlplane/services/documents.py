"""Plain values to documents: which kind is it, and is it one."""

from collections.abc import Mapping

from controlplane.contract.rest.common import API_VERSION
from controlplane.contract.rest.documents import DOCUMENT, KINDS, Document
from controlplane.services.errors import Invalid
from controlplane.services.manifests import document_of_job
from controlplane.services.reading import Value
from controlplane.services.validation import parsed


def document_from(value: Value) -> tuple[Document, Mapping[str, object] | None]:
    """The document, and the Kubernetes manifest that it was made from where it was one; raises Invalid."""
    if not isinstance(value, dict):
        raise Invalid("a document is an object with apiVersion, kind, metadata and spec", slug="invalid-document")
    kind = value.get("kind")
    if kind not in KINDS:
        known = ", ".join(KINDS)
        words = "kind is missing" if kind is None else f"{kind!r} is no kind that is taken here"
        raise Invalid(f"{words}; there are {known}"[:400], slug="kind-not-allowed")
    if kind == "Job":
        return document_of_job(value), value
    if value.get("apiVersion") != API_VERSION:
        raise Invalid(f"a {kind} has apiVersion {API_VERSION}", slug="kind-not-allowed")
    return parsed(DOCUMENT, value, tagged=True), None
