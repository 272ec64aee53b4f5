"""Every kind of document that people write, and the answer to applying some."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from controlplane.contract.rest.common import RestModel, Warned
from controlplane.contract.rest.fleet import ClusterDocument, FlavorDocument
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


class Applied(RestModel):
    """What came of one document."""

    kind: str
    name: str
    result: Literal["created", "changed", "unchanged", "submitted"]
    id: str = ""
    warnings: list[Warned] = Field(default_factory=list)


class ApplyAnswer(RestModel):
    """All of the documents were taken, or none was."""

    applied: list[Applied]
