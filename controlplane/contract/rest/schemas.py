"""JSON Schema of every kind of document, each field with its meaning: what `muster schema` prints."""

from collections.abc import Mapping
from typing import cast

from pydantic import TypeAdapter

from controlplane.contract.rest.common import Json, RestModel
from controlplane.contract.rest.documents import DOCUMENT_KINDS, JOB_SCHEMA
from controlplane.contract.rest.field_words import FIELDS
from controlplane.contract.rest.worlds import WORLD_KINDS

SCHEMA_KINDS = (*DOCUMENT_KINDS, *(kind for kind in WORLD_KINDS if kind not in DOCUMENT_KINDS), "Job")


def schema_of(kind: str, *, in_world: bool = False) -> dict[str, Json]:
    """The schema of one of SCHEMA_KINDS; `in_world`: as `muster plan` takes it, where that takes more."""
    if kind == "Job":
        return JOB_SCHEMA
    kinds: Mapping[str, type[RestModel]] = WORLD_KINDS if in_world or kind not in DOCUMENT_KINDS else DOCUMENT_KINDS
    schema = TypeAdapter(kinds[kind]).json_schema(by_alias=True)
    for name, part in [(str(schema["title"]), schema), *schema.get("$defs", {}).items()]:
        for field, words in FIELDS.get(name, {}).items():
            if field in part.get("properties", {}):
                part["properties"][field] = _described(part["properties"][field], words)
    return cast("dict[str, Json]", schema)


def _described(field: dict[str, object], words: str) -> dict[str, object]:
    """The words first; what the model itself says stays where it says more."""
    return {"description": words, **{name: value for name, value in field.items() if name != "description"}}
