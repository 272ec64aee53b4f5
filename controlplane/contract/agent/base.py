"""The base of all messages between agents and the plane, and how their versions meet.

Messages in are strict about types and tolerant of unknown optional fields (a newer peer may add some);
messages out are exactly the model. Compatibility: the plane speaks versions N, N-1 and N-2.
"""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

PROTOCOL_VERSION = 1
PROTOCOL_OLDEST = 1

_NAME = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
Name = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=_NAME)]


def _without_nul(text: str) -> str:
    """Postgres stores no NUL, and words from a cluster must not be lost over one."""
    return text.replace("\x00", "")


def _cut(text: str) -> str:
    return _without_nul(text)[:WORDS_MAX]


WORDS_MAX = 1024
Text = Annotated[str, StringConstraints(max_length=1024), AfterValidator(_without_nul)]  # a name, a code
Words = Annotated[str, AfterValidator(_cut)]  # for people: what is too long is cut, since the rest of a report matters
Key = Annotated[str, StringConstraints(max_length=316), AfterValidator(_without_nul)]  # a label key, resource, device
Amount = Annotated[int, Field(ge=0, le=2**53, strict=True)]
Code = Annotated[int, Field(ge=-(2**31), lt=2**31)]  # an exit code
Moment = AwareDatetime


class WireModel(BaseModel):
    """One message, or part of one."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class VersionRefused(Exception):
    """No protocol version is spoken by both sides."""


def negotiate(oldest: int, newest: int) -> int:
    """Return the newest version that both sides speak; raise VersionRefused where there is none."""
    version = min(newest, PROTOCOL_VERSION)
    if version < max(oldest, PROTOCOL_OLDEST):
        raise VersionRefused(f"agent speaks {oldest} to {newest}, the plane {PROTOCOL_OLDEST} to {PROTOCOL_VERSION}")
    return version


def in_range(moment: datetime, now: datetime, slack_seconds: int) -> bool:
    """Whether a peer's time stamp is believable: not further than `slack_seconds` from `now`."""
    return abs((moment - now).total_seconds()) <= slack_seconds
