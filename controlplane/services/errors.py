"""What a use case may raise for its caller's mistakes. "Does not fit" is no error but a Reason.

Which HTTP status and problem type each becomes is one table in `api.problems`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with what was sent; `pointer` is a JSON pointer into it."""

    pointer: str
    detail: str
    slug: str


class ServiceError(Exception):
    """A use case refused; nothing was written. `slug` names the problem type."""

    slug = "refused"

    def __init__(self, detail: str, *, slug: str | None = None, faults: tuple[Fault, ...] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.slug = slug or type(self).slug
        self.faults = faults


class Malformed(ServiceError):
    """It cannot be read at all."""

    slug = "malformed"


class Unauthenticated(ServiceError):
    """Nobody knows who calls."""

    slug = "unauthenticated"


class Forbidden(ServiceError):
    """The caller may not do this, and may know that the thing exists."""

    slug = "forbidden"


class NotFound(ServiceError):
    """There is no such thing, or the caller may not know of it."""

    slug = "not-found"


class Conflict(ServiceError):
    """It contradicts what is stored now."""

    slug = "conflict"


class Invalid(ServiceError):
    """It can be read and means nothing allowed."""

    slug = "invalid"


class TooLarge(ServiceError):
    """It is larger than the plane takes."""

    slug = "body-too-large"


class TooNew(ServiceError):
    """An agent speaks no protocol version that the plane still speaks."""

    slug = "agent-too-new"


class TooMany(ServiceError):
    """Asked too often; later it may be heard."""

    slug = "rate-limited"


class PreconditionRequired(ServiceError):
    """The caller does not say what it believes to change."""

    slug = "precondition-required"


class PreconditionFailed(ServiceError):
    """It is no longer what the caller saw; `etag` is what stands now, None where nothing does."""

    slug = "precondition-failed"

    def __init__(self, detail: str, *, etag: str | None = None) -> None:
        super().__init__(detail)
        self.etag = etag
