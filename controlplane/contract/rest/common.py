"""Shapes that every document and view shares: strictness, names, labels, pages, problems.

Documents refuse unknown fields and loose types. What a refusal is called (`slug`) is decided here, by the
type of the pydantic error; how it travels is `api.problems`.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

Item = TypeVar("Item")

API_VERSION = "muster.dev/v1"
OUR_PREFIX = "muster.dev/"
SIMULATED_PREFIX = "simulated.muster.dev/"  # read by simulated clusters alone, so users may set it
COUNT_MAX = 2**31 - 1
RESERVED_NAMES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})

_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_FLAVOR = re.compile(r"[a-z0-9]([a-z0-9.-]{0,98}[a-z0-9])?")
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


def refusal(slug: str, words: str) -> PydanticCustomError:
    """A validation error whose problem type is `/problems/<slug>`."""
    # The words may hold braces of the caller's text; pydantic would read them as a template.
    return PydanticCustomError("muster", "{words}", {"slug": slug, "words": words})


def _plain(text: str) -> str:
    """NFC, and no control characters save line breaks and tabs: Postgres takes no NUL, terminals obey the rest."""
    if any(unicodedata.category(letter) in {"Cc", "Cf", "Cs"} and letter not in "\n\t" for letter in text):
        raise refusal("invalid-character", "control and formatting characters are not allowed here")
    return unicodedata.normalize("NFC", text)


def _dns_label(text: str) -> str:
    if _DNS_LABEL.fullmatch(text) is None:
        raise refusal(
            "invalid-name", "a name is 1 to 63 of a-z, 0-9 and '-', and begins and ends with a letter or digit"
        )
    return text


def _not_reserved(text: str) -> str:
    if text in RESERVED_NAMES:
        raise refusal("reserved-name", f"the name {text} is reserved")
    return text


def _queue_path(text: str) -> str:
    for segment in text.split("/"):
        _not_reserved(_dns_label(segment))
    return text


def _flavor_name(text: str) -> str:
    if _FLAVOR.fullmatch(text) is None:
        raise refusal("invalid-name", "a Flavor's name is 1 to 100 of a-z, 0-9, '-' and '.'")
    return text


def is_label(key: str, value: str) -> bool:
    """Whether Kubernetes would take it for a label."""
    return _LABEL_KEY.fullmatch(key) is not None and _LABEL_VALUE.fullmatch(value) is not None


def _labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    for key, value in labels.items():
        if not is_label(key, value):
            raise refusal("invalid-label", f"{key!r}: {value!r} is no Kubernetes label")
        if key.startswith(OUR_PREFIX):
            raise refusal("reserved-metadata", f"labels under {OUR_PREFIX} are the plane's own; {key} is not for users")
    return labels


def _pattern(expression: re.Pattern[str]) -> WithJsonSchema:
    """What our own validator asks for, told to readers of the JSON Schema too."""
    return WithJsonSchema({"type": "string", "pattern": f"^{expression.pattern}$"}, mode="validation")


_SEGMENT = _DNS_LABEL.pattern
_QUEUE_PATH = re.compile(f"{_SEGMENT}(/{_SEGMENT}){{0,63}}")
PlainText = Annotated[str, StringConstraints(max_length=1024), AfterValidator(_plain)]
Name = Annotated[str, StringConstraints(max_length=253), AfterValidator(_dns_label), _pattern(_DNS_LABEL)]
FreeName = Annotated[Name, AfterValidator(_not_reserved)]
QueuePath = Annotated[str, StringConstraints(max_length=600), AfterValidator(_queue_path), _pattern(_QUEUE_PATH)]
FlavorText = Annotated[str, StringConstraints(max_length=253), AfterValidator(_flavor_name), _pattern(_FLAVOR)]
Labels = Annotated[dict[str, str], Field(max_length=64), AfterValidator(_labels)]
Count = Annotated[int, Field(strict=True, ge=0, le=COUNT_MAX)]
Positive = Annotated[int, Field(strict=True, ge=1, le=COUNT_MAX)]
Json = JsonValue


class RestModel(BaseModel):
    """A part of a document or view: snake_case here, camelCase outside."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True
    )


class Metadata(RestModel):
    """A document's name and labels."""

    name: Name
    labels: Labels = Field(default_factory=dict)


class QueueMetadata(RestModel):
    """A Queue's name is its path, parents first."""

    name: QueuePath
    labels: Labels = Field(default_factory=dict)


class DocumentHead(RestModel):
    """What every document begins with."""

    api_version: Literal["muster.dev/v1"]


class Page(RestModel, Generic[Item]):
    """Some items, and what to send as `cursor` for those that follow; None at the end."""

    items: list[Item]
    next: str | None = None


class ReasonView(RestModel):
    """Why not: a code, its numbers, one sentence."""

    code: str
    sentence: str
    facts: dict[str, int | str] = Field(default_factory=dict)


class ProblemItem(RestModel):
    """One thing that is wrong, and where: a JSON pointer into the body."""

    pointer: str
    detail: str
    slug: str


class Problem(RestModel):
    """RFC 9457. `type` is `/problems/<slug>`; some types carry further members."""

    model_config = ConfigDict(extra="ignore")

    type: str
    title: str
    status: int
    detail: str = ""
    request_id: str = ""
    errors: list[ProblemItem] = Field(default_factory=list)


class Warned(RestModel):
    """Something was done, and the caller should know that."""

    code: str
    detail: str


Moment = AwareDatetime

_QUANTITY_ERRORS = frozenset(
    {
        "int_type", "int_parsing", "int_from_float", "int_parsing_size", "greater_than", "greater_than_equal",
        "less_than", "less_than_equal", "finite_number", "float_type", "float_parsing", "bool_type", "bool_parsing",
    }
)  # fmt: skip
_SLUGS = {
    "extra_forbidden": "unknown-field",
    "missing": "missing-field",
    "string_too_long": "too-long",
    "too_long": "too-many",
    "too_short": "too-few",
    "union_tag_invalid": "kind-not-allowed",
    "union_tag_not_found": "kind-not-allowed",
}


def slug_of(error_type: str, context: Mapping[str, object] | None) -> str:
    """The problem type of one pydantic error."""
    if error_type == "muster" and context is not None:
        return str(context["slug"])
    if error_type in _QUANTITY_ERRORS:
        return "invalid-quantity"
    return _SLUGS.get(error_type, "invalid-value")
