"""Every kind of document that people write, and the answer to applying some."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from controlplane.contract.rest.common import Json, RestModel, Warned
from controlplane.contract.rest.fleet import ClusterDocument, FlavorDocument
from controlplane.contract.rest.planning import ForeseenPlan
from controlplane.contract.rest.tenancy import PolicyDocument, PoolDocument, QueueDocument, WindowDocument
from controlplane.contract.rest.workloads import WorkloadDocument

Document = (
    WorkloadDocument | QueueDocument | ClusterDocument | PoolDocument | PolicyDocument | FlavorDocument | WindowDocument
)
DOCUMENT: TypeAdapter[Document] = TypeAdapter(Annotated[Document, Field(discriminator="kind")])
DOCUMENT_KINDS: dict[str, type[RestModel]] = {
    "Workload": WorkloadDocument,
    "Queue": QueueDocument,
    "Cluster": ClusterDocument,
    "Pool": PoolDocument,
    "Policy": PolicyDocument,
    "Flavor": FlavorDocument,
    "Window": WindowDocument,
}
KINDS = (*DOCUMENT_KINDS, "Job")
"""What may be applied; `Job` is a `batch/v1` manifest with the label `muster.dev/queue`."""


def _is_missing(value: object) -> bool:
    return value is None


class Change(RestModel):
    """One value of a document that differs; the side where it is not there is left out.

    `path` is a JSON pointer; a Queue's quotas are named by Flavor (`/spec/quotas/nvidia-h100-80gb/nominal`).
    """

    path: str
    before: Json = Field(default=None, exclude_if=_is_missing)
    after: Json = Field(default=None, exclude_if=_is_missing)


JOB_SCHEMA: dict[str, Json] = {
    "title": "Job",
    "description": "A `batch/v1` Job with the label `muster.dev/queue` (its path with dots). Kubernetes owns the rest.",
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "batch/v1"},
        "kind": {"const": "Job"},
        "metadata": {"type": "object", "required": ["name", "labels"]},
        "spec": {"type": "object", "required": ["template"]},
    },
}


class Applied(RestModel):
    """What came of one document; after a dry run: what would come of it. `etag`: of what stands now, if anything."""

    kind: str
    name: str
    result: Literal["created", "changed", "unchanged", "submitted", "deleted"]
    id: str = ""
    etag: str = ""
    changes: list[Change] = Field(default_factory=list)
    warnings: list[Warned] = Field(default_factory=list)


class ApplyAnswer(RestModel):
    """All of the documents were taken, or none was.

    `basis` stands for every document that the request touches, as it was before: sent as `If-Match` after a dry run,
    it keeps the request from changing anything that the dry run has not shown. `plan`: by Pool, where it was asked for.
    """

    applied: list[Applied]
    dry_run: bool = False
    basis: str = ""
    plan: list[ForeseenPlan] | None = Field(default=None, exclude_if=_is_missing)


class DocumentView(RestModel):
    """A stored document as people write it, defaults left out; applying it again changes nothing."""

    kind: str
    name: str
    version: int | None = None  # where its kind counts them: Queue, Policy
    etag: str
    labels: dict[str, str] = Field(default_factory=dict)
    document: dict[str, Json]
