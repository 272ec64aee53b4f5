"""What somebody may not do is refused, and noted in the audit log: who, what, why; at most once a minute for each.

Beyond that a refusal says nothing new, and would let anybody with a token fill the log.
"""

from contextlib import suppress

from fastapi import Request
from fastapi.responses import Response

from controlplane.api.auth import container_of
from controlplane.api.limits import Limit
from controlplane.api.problems import on_known
from controlplane.core.facts.collisions import Collision, Unavailable
from controlplane.services.authz import Caller
from controlplane.services.errors import Forbidden, TooMany

NOTED_PER_SECOND, NOTED_AT_ONCE = 1 / 60, 1
ACTION = "refused"


class RefusalNotes:
    """FastAPI's handler of Forbidden, with its memory of what was noted."""

    def __init__(self) -> None:
        self._limit = Limit(NOTED_PER_SECOND, NOTED_AT_ONCE)

    def __call__(self, request: Request, error: Exception) -> Response:
        """Note it, and answer as every known error is answered. A log that cannot be written now does not matter."""
        assert isinstance(error, Forbidden)
        caller = getattr(request.state, "caller", None)
        if isinstance(caller, Caller):
            with suppress(TooMany, Collision, Unavailable):
                self._note(request, caller, error)
        return on_known(request, error)

    def _note(self, request: Request, caller: Caller, error: Forbidden) -> None:
        actor, what = caller.principal.actor, f"{request.method} {request.scope['route'].path}"
        self._limit.take(f"{actor} {what}")
        with container_of(request).uow_factory() as uow:
            uow.audit.record(
                actor=actor, action=ACTION, object_kind="route", object_id=what, request_id=caller.request_id,
                facts={"path": request.url.path[:600], "why": error.detail[:600]},
            )  # fmt: skip
