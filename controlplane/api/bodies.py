"""Bodies: read within a time, of a known type, as plain values. What they mean is the services' to say."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from controlplane.services.errors import Invalid, Malformed
from controlplane.services.reading import Value, read_json, read_yaml

READ_SECONDS = 30.0
_JSON = frozenset({"application/json"})
_YAML = frozenset({"application/yaml", "application/x-yaml", "text/yaml"})


@dataclass(frozen=True, slots=True)
class Body:
    """What was sent: its bytes, and the documents in it (one of JSON, any number of YAML)."""

    raw: bytes
    values: list[Value]

    @property
    def one(self) -> Value:
        """The only document; raises Malformed."""
        if len(self.values) != 1:
            raise Malformed(f"one document is expected here, not {len(self.values)}", slug="too-many-documents")
        return self.values[0]


async def body_of(request: Request) -> Body:
    """A dependency: reads the whole body, then parses it; raises Malformed or Invalid."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _JSON | _YAML:
        raise Malformed("send application/json or application/yaml", slug="unsupported-media-type")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Malformed("compressed bodies are not taken", slug="unsupported-media-type")
    try:
        raw = await asyncio.wait_for(request.body(), READ_SECONDS)
    except TimeoutError:
        raise Malformed("the body did not arrive in time", slug="request-timeout") from None
    return await asyncio.to_thread(_parse, raw, is_json=kind in _JSON)


def _parse(raw: bytes, *, is_json: bool) -> Body:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("the body is no UTF-8", slug="malformed-json" if is_json else "malformed-yaml") from None
    if not is_json and "\x00" in text:
        raise Invalid("a string holds a NUL", slug="invalid-character")
    return Body(raw, [read_json(text)] if is_json else read_yaml(text))


SentBody = Annotated[Body, Depends(body_of)]
"""The type of a route's argument that is the body."""
