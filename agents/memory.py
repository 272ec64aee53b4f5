"""The agent's only memory is the cluster: a directive travels in an annotation of its Attempt's anchor.

The anchor is the Attempt's headless Service: made first, deleted last. Reading never raises; an annotation that
somebody spoilt is no directive, and its objects are reported as unknown until the plane speaks of them again.
"""

import base64
import json
import zlib

from agents.facts import indexes
from controlplane.contract.agent.attempts import Directive, Rejection

PACKED = "z:"
PLAIN_BYTES_MAX = 16_384
PACKED_BYTES_MAX = 240_000  # the API server takes 256 KiB of annotations per object
UNPACKED_BYTES_MAX = 64_000_000


class TooLarge(Exception):
    """A directive that does not fit into an annotation even when packed."""


def encode(directive: Directive) -> str:
    """Return the annotation's text; packed where it is long. Raise TooLarge where even that is too much."""
    text = directive.model_dump_json(exclude_defaults=True)
    if len(text) <= PLAIN_BYTES_MAX:
        return text
    packed = PACKED + base64.b64encode(zlib.compress(text.encode(), level=6)).decode()
    if len(packed) > PACKED_BYTES_MAX:
        raise TooLarge(f"the directive of {directive.object_id} takes {len(packed)} bytes of {PACKED_BYTES_MAX}")
    return packed


def decode(text: str) -> Directive | None:
    """The directive that `encode` wrote, or None."""
    try:
        if text.startswith(PACKED):
            packed = base64.b64decode(text.removeprefix(PACKED), validate=True)
            unpacker = zlib.decompressobj()
            text = unpacker.decompress(packed, UNPACKED_BYTES_MAX).decode()
        return Directive.model_validate_json(text)
    except (ValueError, zlib.error):  # of base64, of UTF-8, of pydantic
        return None


def decode_rejection(text: str) -> Rejection | None:
    """Why an Attempt was given up, if it was; what cannot be read still means that it was."""
    if not text:
        return None
    try:
        return Rejection.model_validate_json(text)
    except ValueError:
        return Rejection(code="refused-by-cluster", facts={"words": "given up; the reason was spoilt"})


def encode_done(done: dict[str, list[int]]) -> str:
    """Which pods have succeeded, per PodSet, as ranges: their objects may be cleaned away by anybody."""
    return json.dumps({name: ranges(sorted(numbers)) for name, numbers in sorted(done.items()) if numbers})


def decode_done(text: str) -> dict[str, frozenset[int]]:
    """What `encode_done` wrote; empty for anything else."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(name): indexes(ranges) for name, ranges in found.items() if isinstance(ranges, str)}


def ranges(numbers: list[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
