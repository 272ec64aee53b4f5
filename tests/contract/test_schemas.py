"""JSON Schema of documents: every kind has one, and every field in it says what it means."""

from typing import Any

import pytest

from controlplane.contract.rest.documents import KINDS
from controlplane.contract.rest.field_words import FIELDS
from controlplane.contract.rest.schemas import SCHEMA_KINDS, schema_of

OURS = [kind for kind in SCHEMA_KINDS if kind != "Job"]


def parts(kind: str) -> dict[str, dict[str, Any]]:
    """Every object of a kind's schema by its model's name, as it is applied and as a world says it."""
    found: dict[str, dict[str, Any]] = {}
    for in_world in (False, True):
        schema: dict[str, Any] = schema_of(kind, in_world=in_world)
        found |= {schema["title"]: schema, **schema.get("$defs", {})}
    return {name: part for name, part in found.items() if "properties" in part}


def test_every_kind_that_can_be_applied_or_planned_has_a_schema() -> None:
    assert set(SCHEMA_KINDS) == {*KINDS, "Running", "World"}
    assert schema_of("Job")["title"] == "Job"


@pytest.mark.parametrize("kind", OURS)
def test_every_field_says_what_it_means(kind: str) -> None:
    silent = [
        f"{name}.{field}"
        for name, part in parts(kind).items()
        for field in part["properties"]
        if not FIELDS.get(name, {}).get(field)
    ]
    assert silent == [], "give each a line in controlplane/contract/rest/field_words.py"
    said = [value.get("description") for part in parts(kind).values() for value in part["properties"].values()]
    assert all(said)


def test_no_words_are_kept_for_a_field_that_is_not_there() -> None:
    there = {(name, field) for kind in OURS for name, part in parts(kind).items() for field in part["properties"]}
    assert {(name, field) for name, words in FIELDS.items() for field in words} - there == set()
