"""ETag, If-Match and If-None-Match: one helper for everything that is edited.

A GET of one editable thing marks its answer (`mark`). PUT, PATCH and DELETE take a `Demanded` argument: without a
precondition they are refused (428). POST actions take a `Stated` one: obeyed when sent. Both come behind `Calling`, so
that nobody without a token gets further; the service compares inside its transaction (`Expected.check`).
"""

import re
from typing import Annotated

from fastapi import Depends, Header, Request
from fastapi.responses import Response

from controlplane.services.errors import Malformed, PreconditionRequired
from controlplane.services.preconditions import Expected

_TAG = re.compile(r'(?:W/)?"([\x21\x23-\x7e]{0,200})"')
_TAGS_MAX = 20
_HEADER = Header(
    alias="If-Match",
    description='`"<ETag>"` of the thing as it was read, or `*`: whatever stands, but it must be there',
)
_ABSENT = Header(alias="If-None-Match", description="`*`: it must not be there yet")

IfMatch = Annotated[str | None, _HEADER]
IfNoneMatch = Annotated[str | None, _ABSENT]


def stated(request: Request, if_match: IfMatch = None, if_none_match: IfNoneMatch = None) -> Expected:
    """A dependency: what the caller says must stand, if anything; raises Malformed."""
    # Read from the request: a header may come in several lines, and an empty one is no precondition but a mistake.
    del if_match, if_none_match
    match, none_match = (_lines(request, name) for name in ("if-match", "if-none-match"))
    if match is not None and none_match is not None:
        raise _malformed("send If-Match or If-None-Match, not both")
    if none_match is not None:
        if none_match != "*":
            raise _malformed("If-None-Match takes * alone here: it must not be there yet")
        return Expected(nothing=True)
    if match is None:
        return Expected()
    return Expected(anything=True) if match == "*" else Expected(tags=_tags(match))


def demanded(expected: "Stated") -> Expected:
    """A dependency: the same, and something must be said; raises PreconditionRequired."""
    if not expected:
        raise PreconditionRequired('send If-Match: "<ETag>" of what you saw, or If-Match: * for whatever stands')
    return expected


def mark(response: Response, tag: object) -> None:
    """Say which state of the thing this answer shows."""
    response.headers["ETag"] = f'"{tag}"'


Stated = Annotated[Expected, Depends(stated)]
Demanded = Annotated[Expected, Depends(demanded)]


def _lines(request: Request, name: str) -> str | None:
    lines = request.headers.getlist(name)
    return ",".join(lines).strip() if lines else None


def _tags(text: str) -> frozenset[str]:
    """Weak tags are no tags here: If-Match compares strongly (RFC 9110, 13.1.1), so they match nothing."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > _TAGS_MAX or not all(_TAG.fullmatch(part) for part in parts):
        raise _malformed(f'If-Match is * or up to {_TAGS_MAX} ETags in double quotes, as in "7"')
    strong = [part.strip('"') for part in parts if not part.startswith("W/")]
    return frozenset(strong or ["W/"])


def _malformed(words: str) -> Malformed:
    return Malformed(words, slug="invalid-precondition")
