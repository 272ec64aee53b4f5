"""Do it once: a request with an `Idempotency-Key` is carried out once and answered the same way again.

The key is inserted in the transaction of the deed, so either both are there or neither; who comes meanwhile is told to
come again. Keys are kept for a week (`workers.periodic`).
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controlplane.core.facts.tenancy import Principal
from controlplane.services.errors import Conflict, Invalid, Malformed
from controlplane.services.ports.unit_of_work import UnitOfWork, UnitOfWorkFactory, run

_KEY = re.compile(r"[A-Za-z0-9._:/+=-]{1,255}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the caller is told; `is_replayed` where it was stored by an earlier request.

    `shown_once` replaces parts of the body in the first answer only, and is not stored: secrets.
    """

    status: int
    body: Mapping[str, object]
    is_replayed: bool = False
    shown_once: Mapping[str, object] = field(default_factory=dict)

    @property
    def told(self) -> dict[str, object]:
        """The body with what is shown this once."""
        return {**self.body, **self.shown_once}


@dataclass(frozen=True, slots=True)
class Once:
    """Whose key it is, and a hash of everything that the request says."""

    principal: Principal
    key: str
    digest: bytes


def once(principal: Principal, key: str | None, *said: bytes) -> Once | None:
    """The key with what belongs to it; None without a key. Raises Malformed."""
    if key is None:
        return None
    if _KEY.fullmatch(key) is None:
        words = "an Idempotency-Key is 1 to 255 of letters, digits and . _ : / + = -"
        raise Malformed(words, slug="invalid-idempotency-key")
    return Once(principal, key, hashlib.sha256(b"\0".join(said)).digest())


def carry_out(factory: UnitOfWorkFactory, asked: Once | None, work: Callable[[UnitOfWork], Answer]) -> Answer:
    """Do `work` in one transaction, or return what was answered before.

    Raises Invalid where the requests differ, Conflict while an earlier one is not done.
    """

    def attempt(uow: UnitOfWork) -> Answer:
        if asked is None:
            return work(uow)
        if not uow.tenancy.hold_key(asked.principal.id, asked.key):
            raise Conflict("a request with this Idempotency-Key is being carried out", slug="in-progress")
        stored = uow.tenancy.claim_key(asked.principal.id, asked.key, asked.digest)
        if stored is None:
            answer = work(uow)
            uow.tenancy.store_answer(asked.principal.id, asked.key, answer.status, answer.body)
            return answer
        if stored.body_sha256 != asked.digest:
            raise Invalid("this Idempotency-Key was used for another request", slug="idempotency-mismatch")
        assert stored.status is not None
        assert stored.response is not None
        return Answer(stored.status, stored.response, is_replayed=True)

    return run(factory, attempt)
