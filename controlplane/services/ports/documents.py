"""What services ask of the store of documents: Queues with their Quotas, Pools, Policies, and all of a kind as written.

Every method is a fixed number of statements, whatever the length of its arguments.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from controlplane.core.facts.tenancy import NewQueue, StoredDocument, Use
from controlplane.core.ids import PoolId, QueueId


class DocumentStore(Protocol):
    """`uow.documents`."""

    def lock(self) -> None:
        """Keep other writers of documents out until this transaction ends; comes before every other lock."""

    def stored(self, kind: str, name: str | None = None) -> Sequence[StoredDocument]:
        """Every live document of this kind, or the one of this name, by name."""

    def hold_queues(self, queues: Collection[QueueId]) -> None:
        """Keep new work out of these Queues until this transaction ends; comes after the locks of accounts."""

    def queue_uses(self, queues: Collection[QueueId]) -> Mapping[QueueId, Use]:
        """What lives in each of them."""

    def put_queues(self, queues: Sequence[NewQueue]) -> None:
        """Write each at its path, parents before children; versions of those that were there rise."""

    def move_queue(self, queue: QueueId, parent: QueueId | None, path: str) -> None:
        """Give it, and all below it, new paths; a deleted Queue that has one of them gives it up."""

    def delete_queues(self, queues: Collection[QueueId]) -> int:
        """Mark them deleted, withdraw their Quotas, end roles and tokens bound to them; how many roles those were."""

    def put_pool(self, name: str, labels: Mapping[str, str], spec: Mapping[str, object]) -> PoolId:
        """Write the Pool."""

    def pool_use(self, pool: PoolId) -> Use:
        """What lives in it; new clusters and work stay out until this transaction ends."""

    def delete_pool(self, pool: PoolId) -> None:
        """Mark it deleted."""

    def add_policy(self, pool: PoolId, labels: Mapping[str, str], spec: Mapping[str, object], created_by: str) -> int:
        """Write the Pool's next Policy version, which counts from the next cycle; return it."""
