"""The driver's errors in words that services understand (`core.facts.collisions`)."""

from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from controlplane.core.facts.collisions import Collision, Refused, Unavailable

COLLIDED = frozenset({"40001", "40P01"})
# Lock and statement time-outs; shutdown and crash of the server; no connection left.
UNAVAILABLE = frozenset({"55P03", "57014", "57P01", "57P02", "57P03", "25P03", "53300"})


def translated(error: BaseException) -> Exception | None:
    """What `error` means to a service; None where it means nothing special."""
    if isinstance(error, PoolTimeout):
        return Unavailable("no connection to the database became free in time")
    if not isinstance(error, DBAPIError):
        return None
    code = getattr(error.orig, "sqlstate", None)
    if code in COLLIDED:
        return Collision(str(error.orig))
    if code in UNAVAILABLE or error.connection_invalidated:
        return Unavailable(str(error.orig))
    if isinstance(error, IntegrityError):
        return Refused(_rule(error), str(error.orig))
    if isinstance(error, OperationalError | InterfaceError) and code is None:
        return Unavailable(str(error.orig))
    return None


def _rule(error: IntegrityError) -> str:
    diagnosis = getattr(error.orig, "diag", None)
    return str(getattr(diagnosis, "constraint_name", None) or "")
