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
KINDS = ("Workload", "Queue", "Cluster", "Pool", "Policy", "Flavor", "Window", "Job")
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
