"""Errors as `application/problem+json`, in one table: what a use case raised, the status, the title.

No stack and no secret ever leaves; the request id joins an answer to the log.
"""

from collections.abc import Mapping, Sequence

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from controlplane.contract.rest.common import Problem, ProblemItem
from controlplane.core.facts.collisions import Collision, Refused, Unavailable
from controlplane.services.errors import (
    Conflict,
    Fault,
    Forbidden,
    Invalid,
    Malformed,
    NotFound,
    PreconditionFailed,
    PreconditionRequired,
    ServiceError,
    TooLarge,
    TooMany,
    TooNew,
    Unauthenticated,
)

SUMMARY_PLACES = 5
MEDIA_TYPE = "application/problem+json"

TABLE: Mapping[type[Exception], tuple[int, str]] = {
    Malformed: (400, "The request cannot be read"),
    Unauthenticated: (401, "Nobody knows who you are"),
    Forbidden: (403, "You may not do this"),
    NotFound: (404, "There is no such thing"),
    Conflict: (409, "It contradicts what is stored"),
    PreconditionFailed: (412, "It is not what you saw"),
    TooLarge: (413, "The request is too large"),
    TooNew: (426, "The agent is newer than the plane"),
    PreconditionRequired: (428, "Say what you believe to change"),
    TooMany: (429, "That was too often"),
    Invalid: (422, "The request means nothing allowed"),
    Refused: (409, "It contradicts what is stored"),
    Collision: (503, "Others were in the way; try again"),
    Unavailable: (503, "The database does not answer; try again"),
}
TITLES: Mapping[int, str] = {
    **dict(reversed(list(TABLE.values()))),
    408: "The request did not arrive in time",
    415: "The body is of a kind that is not taken",
}
"""What each status means here, for the OpenAPI documents."""
_STATUS_OF_SLUG: Mapping[str, int] = {
    "unsupported-media-type": 415,
    "unsupported-encoding": 415,
    "request-timeout": 408,
    "not-ready": 503,
}
_HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": 'Bearer realm="muster"'},
    408: {"Connection": "close"},  # what is left of the body is not read
    413: {"Connection": "close"},
    429: {"Retry-After": "1"},
    503: {"Retry-After": "1"},
}
_HEADERS_OF_SLUG: Mapping[str, Mapping[str, str]] = {
    "in-progress": {"Retry-After": "1"},
    "unsupported-encoding": {"Accept-Encoding": "identity"},
}
_RULES: Mapping[str, str] = {"uq_workload_name_live": "name-conflict", "uq_cluster_name_live": "name-conflict"}
_HTTP = {404: "not-found", 405: "method-not-allowed"}


def problem(
    request_id: str,
    status: int,
    slug: str,
    title: str,
    detail: str = "",
    faults: tuple[Fault, ...] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """One problem document."""
    body = Problem(
        type=f"/problems/{slug}",
        title=title,
        status=status,
        detail=detail,
        request_id=request_id,
        errors=[ProblemItem(pointer=each.pointer, detail=each.detail, slug=each.slug) for each in faults],
    )
    text = body.model_dump_json(by_alias=True, exclude_defaults=True)
    return Response(text, status, {**_HEADERS.get(status, {}), **(headers or {})}, MEDIA_TYPE)


def of_error(request_id: str, error: Exception) -> Response:
    """What a known error becomes; raises KeyError for an unknown one."""
    status, title = next(known for kind, known in TABLE.items() if isinstance(error, kind))
    if isinstance(error, ServiceError):
        status = _STATUS_OF_SLUG.get(error.slug, status)
        headers = _HEADERS_OF_SLUG.get(error.slug)
        if isinstance(error, PreconditionFailed) and error.etag is not None:
            headers = {"ETag": f'"{error.etag}"'}
        return problem(request_id, status, error.slug, title, _summary(error), error.faults, headers)
    if isinstance(error, Refused):
        return problem(request_id, status, _RULES.get(error.rule, "conflict"), title)
    return problem(request_id, status, "unavailable", title)


def _summary(error: ServiceError) -> str:
    """The only mistake's sentence, or of several how many and where: each one's sentence stands in `errors`."""
    if len(error.faults) < 2 or not error.detail.endswith(error.faults[0].detail):
        return error.detail
    places = [fault.pointer or "/" for fault in error.faults[:SUMMARY_PLACES]]
    more = len(error.faults) - len(places)
    where = ", ".join(places) + (f" and {more} more" if more else "")
    return f"{error.detail.removesuffix(error.faults[0].detail)}{len(error.faults)} mistakes, at {where}"


def request_id_of(request: Request) -> str:
    """The id that the edge gave this request."""
    return str(request.scope.get("muster.request_id", ""))


def on_known(request: Request, error: Exception) -> Response:
    """FastAPI's handler for everything in the table."""
    return of_error(request_id_of(request), error)


def on_parameters(request: Request, error: Exception) -> Response:
    """A query or path parameter that is none."""
    assert isinstance(error, RequestValidationError)
    told = (f"{each['loc'][-1]}: {each['msg']}" for each in error.errors()[:SUMMARY_PLACES])
    return problem(request_id_of(request), 400, "invalid-parameter", "A parameter is wrong", "; ".join(told))


def on_http(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: no such route, no such method."""
    assert isinstance(error, HTTPException)
    slug = _HTTP.get(error.status_code, "refused")
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_allowed(request)))
    return problem(request_id_of(request), error.status_code, slug, str(error.detail), headers=headers)


def _allowed(request: Request) -> set[str]:
    """Every method that this path has; the framework names those of the first route that it meets."""
    routes: Sequence[Route] = request.app.state.routes
    fitting = (route for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    return {method for route in fitting for method in route.methods or ()}
