"""What services ask of the store of Queues, Pools, Policies, Principals, tokens and idempotency keys."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from controlplane.core.facts.tenancy import (
    NewToken,
    PoolFact,
    Principal,
    QueueFact,
    StoredAnswer,
)
from controlplane.core.ids import PoolId
from controlplane.core.tenancy import Queue


class TenancyStore(Protocol):
    """`uow.tenancy`."""

    def queues(self) -> Sequence[QueueFact]:
        """Every live Queue, by path; parents before children."""

    def queue(self, path: str) -> QueueFact | None:
        """The live Queue at this path."""

    def tree(self) -> Sequence[Queue]:
        """Every live Queue with its listed Quotas, as the quota tree takes them; parents first."""

    def pool(self, name: str) -> PoolFact | None:
        """The Pool of this name."""

    def pools(self) -> Sequence[PoolFact]:
        """Every Pool, by name."""

    def policy(self, pool: PoolId) -> Mapping[str, object]:
        """The spec of the version in force; empty where none was applied."""

    def principal_of_token(self, token_sha256: bytes) -> Principal | None:
        """Whose live bearer token has this hash."""

    def principal(self, kind: str, name: str) -> Principal | None:
        """The enabled Principal of this name."""

    def put_principal(self, kind: str, name: str) -> int:
        """Write it if it is not there; return its id."""

    def add_token(self, token: NewToken) -> int:
        """Store a token's hash."""

    def has_admin_token(self, besides: int = 0) -> bool:
        """Whether a token (besides this one) lives whose bearer may do everything with it."""

    def revoke_token(self, token_id: int) -> bool:
        """End a token; False where there is none that lives."""

    def hold_key(self, principal_id: int, key: str) -> bool:
        """Keep others off an idempotency key until the transaction ends; False where another has it now."""

    def claim_key(self, principal_id: int, key: str, body_sha256: bytes) -> StoredAnswer | None:
        """Insert an idempotency key, or return what an earlier request stored under it."""

    def store_answer(self, principal_id: int, key: str, status: int, response: Mapping[str, object]) -> None:
        """Keep the answer for whoever sends the same request again."""

    def drop_idempotency_keys(self, before: datetime, limit: int) -> int:
        """Delete idempotency keys older than `before`; return how many went."""
