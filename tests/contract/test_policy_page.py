"""The knobs of a Pool: the page that explains them, documents that set them and the planner that obeys them agree."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from controlplane.contract.rest.tenancy import PolicySpec
from controlplane.core.policy import Policy
from controlplane.services.core_values import policy_of
from tests.support.databases import ROOT

PAGE = ROOT / "controlplane" / "core" / "POLICY.md"
ROW = re.compile(r"\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")


@dataclass(frozen=True)
class Row:
    """One knob, as the page tells it."""

    default: str
    range: str
    meaning: str
    when: str


def page() -> dict[str, Row]:
    """By name, in order; a name that stands there twice fails."""
    found = ROW.findall(PAGE.read_text(encoding="utf-8"))
    rows = {name: Row(*(cell.strip() for cell in cells)) for name, *cells in found}
    assert len(rows) == len(found), "a knob stands there twice"
    return rows


def knobs() -> dict[str, Field[Any]]:
    """What the planner obeys, by its name in documents."""
    return {to_camel(each.name): each for each in fields(Policy) if each.name != "version"}


def default_of(knob: Field[Any]) -> object:
    if knob.default is not MISSING:
        return knob.default
    assert knob.default_factory is not MISSING
    return knob.default_factory()


def said() -> dict[str, Mapping[str, Any]]:
    """The schema of each knob, as documents are held to it; without the null that leaves its default."""
    schema = PolicySpec.model_json_schema()["properties"]
    return {name: next(each for each in one["anyOf"] if each != {"type": "null"}) for name, one in schema.items()}


def range_of(schema: Mapping[str, Any]) -> str:
    if schema["type"] == "boolean":
        return "true or false"
    if schema["type"] == "object":
        (values,) = schema["patternProperties"].values()
        return f"{range_of(values)} by cluster"
    return f"{schema['minimum']:,} to {schema['maximum']:,}"


def written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else str(value)


def other_than(schema: Mapping[str, Any], default: object) -> object:
    """A value in range that is not the default."""
    if schema["type"] == "boolean":
        return not default
    if schema["type"] == "object":
        return {"eu-west": 7}
    return schema["maximum"] if default != schema["maximum"] else schema["minimum"]


def test_page_documents_and_planner_know_the_same_knobs() -> None:
    assert list(page()) == list(knobs()), "the page lists them in the order of core/policy.py"
    assert said().keys() == knobs().keys()


@pytest.mark.parametrize("name", sorted(knobs()))
def test_the_page_tells_default_and_range_as_they_are(name: str) -> None:
    row = page()[name]
    assert row.default == written(default_of(knobs()[name]))
    assert row.range == range_of(said()[name])


@pytest.mark.parametrize("name", sorted(knobs()))
def test_the_page_says_what_a_knob_means_and_when_to_change_it(name: str) -> None:
    row = page()[name]
    assert row.meaning.endswith("."), "in sentences"
    assert row.when.endswith(".")


@pytest.mark.parametrize("name", sorted(knobs()))
def test_a_default_is_in_range_and_what_a_document_says_is_obeyed(name: str) -> None:
    knob = knobs()[name]
    default, wanted = default_of(knob), other_than(said()[name], default_of(knob))
    assert policy_of(3, PolicySpec.model_validate({name: default})) == Policy(version=3)
    obeyed = policy_of(3, PolicySpec.model_validate({name: wanted}))
    assert getattr(obeyed, knob.name) == wanted
    assert obeyed.version == 3
    changed = {each.name for each in fields(Policy) if getattr(obeyed, each.name) != getattr(Policy(3), each.name)}
    assert changed == {knob.name}, "and nothing else"


@pytest.mark.parametrize("name", sorted(name for name, schema in said().items() if schema["type"] == "integer"))
def test_what_is_out_of_range_is_refused(name: str) -> None:
    for wrong in (said()[name]["minimum"] - 1, said()[name]["maximum"] + 1, "7", 1.5, True):
        with pytest.raises(ValidationError):
            PolicySpec.model_validate({name: wrong})
