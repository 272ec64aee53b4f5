"""Bodies: read within a time, of a known type, as plain values. What they mean is the services' to say."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from controlplane.api.auth import container_of
from controlplane.services.errors import Invalid, Malformed
from controlplane.services.reading import Value, read_json, read_yaml

JSON = frozenset({"application/json"})
PARSED_AT_ONCE_BYTES = 16_384
"""JSON up to here is parsed sooner than a thread could be asked to."""

YAML = frozenset({"application/yaml", "application/x-yaml", "text/yaml"})


@dataclass(frozen=True, slots=True)
class Body:
    """What was sent: its bytes, and the documents in it (one of JSON, any number of YAML)."""

    raw: bytes
    values: list[Value]

    @property
    def one(self) -> Value:
        """The only document; raises Malformed."""
        if not self.values:
            raise Malformed("there is no document in the body; one is expected", slug="empty-body")
        if len(self.values) != 1:
            raise Malformed(f"one document is expected here, not {len(self.values)}", slug="too-many-documents")
        return self.values[0]


async def body_of(request: Request) -> Body:
    """A dependency: reads the whole body, then parses it; raises Malformed or Invalid."""
    kind = media_type(request)
    if kind not in JSON | YAML:
        raise Malformed("send application/json or application/yaml", slug="unsupported-media-type")
    raw = await read(request, container_of(request).settings.body_seconds)
    if kind in JSON and len(raw) <= PARSED_AT_ONCE_BYTES:
        return _parse(raw, is_json=True)
    return await asyncio.to_thread(_parse, raw, is_json=kind in JSON)


def media_type(request: Request) -> str:
    """What the request says that its body is; "" where it says nothing."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read(request: Request, seconds: float) -> bytes:
    """The whole body, as sent. Raises Malformed where it is compressed or takes longer; the edge bounds its size.

    Nothing is ever inflated, so no small body can become a large one.
    """
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Malformed("compressed bodies are not taken; send it as it is", slug="unsupported-encoding")
    try:
        return await asyncio.wait_for(request.body(), seconds)
    except TimeoutError:
        raise Malformed(f"the body did not arrive within {seconds:.0f} s", slug="request-timeout") from None


def _parse(raw: bytes, *, is_json: bool) -> Body:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("the body is no UTF-8", slug="malformed-json" if is_json else "malformed-yaml") from None
    if not text.strip():
        raise Malformed("the body is empty; a document is expected", slug="empty-body")
    if not is_json and "\x00" in text:
        raise Invalid("a string holds a NUL", slug="invalid-character")
    return Body(raw, [read_json(text)] if is_json else read_yaml(text))


SentBody = Annotated[Body, Depends(body_of)]
"""The type of a route's argument that is the body."""
