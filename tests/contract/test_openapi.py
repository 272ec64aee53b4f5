"""The OpenAPI documents stand in files: a change shows as a difference, and one that would break clients is refused.

`make openapi` writes the files anew. When a version is released, `make openapi RELEASE=--release` makes them the ones
that later versions are held to.
"""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.routing import APIRoute

from controlplane.api.app import ROUTERS
from controlplane.api.openapi import bodies_left_unsaid
from tests.contract.breaking import broken
from tests.contract.documents import FOLDER, NAMES, RELEASED, documents, text_of

Document = dict[str, Any]

ACCEPTED: dict[str, str] = {}
"""Breaks of the last release's documents that were meant, by their sentence, with the reason for the changelog."""


@pytest.fixture(scope="module")
def served() -> dict[str, Document]:
    return documents()


@pytest.mark.parametrize("name", NAMES)
def test_the_document_is_what_its_file_says(served: dict[str, Document], name: str) -> None:
    kept = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    differing = sorted(_leaves(kept) ^ _leaves(served[name]))[:10]
    assert not differing, "run `make openapi` and look at the difference:\n" + "\n".join(differing)
    assert text_of(served[name]) == (FOLDER / f"{name}.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_breaks_who_was_written_against_the_last_release(served: dict[str, Document], name: str) -> None:
    released = json.loads((RELEASED / f"{name}.json").read_text(encoding="utf-8"))
    breaks = [sentence for sentence in broken(released, served[name]) if sentence not in ACCEPTED]
    assert not breaks, (
        "clients of the last release would break; keep what they use, or list it with a reason in ACCEPTED:\n"
        + "\n".join(breaks)
    )


def test_every_route_that_takes_a_body_says_which(served: dict[str, Document]) -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    assert bodies_left_unsaid(served["people"], routes) == []


def test_every_answer_of_an_error_is_a_problem_document(served: dict[str, Document]) -> None:
    for document in served.values():
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                assert "400" in operation["responses"], (method, path)
                for status, answer in operation["responses"].items():
                    if status.startswith("4"):
                        assert answer["$ref"] == f"#/components/responses/{status}", (method, path)
        for answer in document["components"]["responses"].values():
            assert list(answer["content"]) == ["application/problem+json"]


def test_what_a_route_may_refuse_follows_from_what_it_is(served: dict[str, Document]) -> None:
    people, agents = served["people"]["paths"], served["agents"]["paths"]

    def refusals(operation: Document) -> set[str]:
        return {status for status in operation["responses"] if status.startswith("4")}

    assert refusals(people["/healthz"]["get"]) == {"400"}
    assert refusals(people["/api/v1/queues"]["get"]) == {"400", "401", "403", "404", "429"}
    submit = people["/api/v1/workloads"]["post"]
    assert refusals(submit) >= {"401", "403", "404", "408", "409", "413", "415", "422", "429"}
    assert submit["security"] == [{"Bearer": []}]
    assert set(submit["requestBody"]["content"]) >= {"application/json", "application/yaml"}
    assert "426" in agents["/agent/v1/sync"]["post"]["responses"]
    assert agents["/agent/v1/sync"]["post"]["security"] == [{"AgentPoP": []}]
    assert "security" not in agents["/agent/v1/enrol"]["post"], "its body proves the key"


OLD: Document = {
    "paths": {
        "/things": {
            "get": {
                "parameters": [
                    {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 500}},
                    {"name": "state", "in": "query", "schema": {"enum": ["a", "b"], "type": "string"}},
                ],
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/View"}}}}
                },
            },
            "post": {
                "requestBody": {
                    "required": True,
                    "content": {
                        kind: {"schema": {"$ref": "#/components/schemas/Thing"}}
                        for kind in ("application/json", "application/yaml")
                    },
                },
                "responses": {"201": {}, "422": {}},
            },
        }
    },
    "components": {
        "schemas": {
            "Thing": {
                "type": "object",
                "required": ["name"],
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string", "maxLength": 63},
                    "size": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]},
                    "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}},
                },
            },
            "View": {
                "type": "object",
                "required": ["id", "items"],
                "properties": {
                    "id": {"type": "integer"},
                    "items": {"type": "array", "items": {"type": "string"}},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
            },
        }
    },
}


def _thing(document: Document) -> Document:
    thing: Document = document["components"]["schemas"]["Thing"]
    return thing


def _view(document: Document) -> Document:
    view: Document = document["components"]["schemas"]["View"]
    return view


def _get(document: Document) -> Document:
    get: Document = document["paths"]["/things"]["get"]
    return get


def _post(document: Document) -> Document:
    post: Document = document["paths"]["/things"]["post"]
    return post


PLANTED: dict[str, tuple[Callable[[Document], object], str]] = {
    "a path removed": (lambda d: d["paths"].pop("/things"), "/things: the path is gone"),
    "a method removed": (lambda d: d["paths"]["/things"].pop("get"), "GET /things: the method is gone"),
    "a parameter removed": (
        lambda d: _get(d)["parameters"].pop(0), "GET /things: query parameter limit is not taken any more",
    ),
    "a parameter that is required now": (
        lambda d: _get(d)["parameters"][0].update(required=True), "GET /things: query parameter limit is required now",
    ),
    "a new parameter that is required": (
        lambda d: _get(d)["parameters"].append({"name": "x", "in": "query", "required": True, "schema": {}}),
        "GET /things: query parameter x is new and required",
    ),
    "a lower maximum": (
        lambda d: _get(d)["parameters"][0]["schema"].update(maximum=100),
        "GET /things: query parameter limit: maximum fell to 100",
    ),
    "a value of an enumeration removed": (
        lambda d: _get(d)["parameters"][1]["schema"].update(enum=["a"]),
        "GET /things: query parameter state: the value b is not taken any more",
    ),
    "a kind of body removed": (
        lambda d: _post(d)["requestBody"]["content"].pop("application/yaml"),
        "POST /things: a body is not taken as application/yaml any more",
    ),
    "no body any more": (lambda d: _post(d).pop("requestBody"), "POST /things: no body is taken any more"),
    "a field of a body removed": (
        lambda d: _thing(d)["properties"].pop("size"),
        "POST /things: in the body: the field size is not taken any more",
    ),
    "a new field of a body that is required": (
        lambda d: (_thing(d)["properties"].update(x={}), _thing(d)["required"].append("x")),
        "POST /things: in the body: the field x is required now",
    ),
    "a type of a field removed": (
        lambda d: _thing(d)["properties"].update(size={"type": "integer", "minimum": 0}),
        "POST /things: in the body /size: string is not taken any more",
    ),
    "a higher minimum deep inside": (
        lambda d: _thing(d)["properties"]["size"]["anyOf"][0].update(minimum=1),
        "POST /things: in the body /parts/*/size: minimum rose to 1",
    ),
    "a pattern": (
        lambda d: _thing(d)["properties"]["name"].update(pattern="^a"),
        "POST /things: in the body /name: the pattern is another",
    ),
    "a field of an answer removed": (
        lambda d: _view(d)["properties"].pop("note"), "GET /things: in the answer: the field note is gone",
    ),
    "a field of an answer that may be missing": (
        lambda d: _view(d)["required"].remove("id"), "GET /things: in the answer: the field id may be missing now",
    ),
    "a field of an answer of another type": (
        lambda d: _view(d)["properties"].update(id={"type": "string"}),
        "GET /things: in the answer /id: string may come now, and could not",
    ),
    "items of an answer that may be null": (
        lambda d: _view(d)["properties"]["items"].update(items={"anyOf": [{"type": "string"}, {"type": "null"}]}),
        "GET /things: in the answer /items/*: null may come now, and could not",
    ),
    "another good status": (
        lambda d: _post(d)["responses"].update({"202": _post(d)["responses"].pop("201")}),
        "POST /things: 201 is not answered any more",
    ),
}  # fmt: skip

HARMLESS: dict[str, Callable[[Document], object]] = {
    "a new path": lambda d: d["paths"].update({"/more": {"get": {"responses": {"200": {}}}}}),
    "a new parameter": lambda d: _get(d)["parameters"].append({"name": "x", "in": "query", "schema": {}}),
    "a new field of a body": lambda d: _thing(d)["properties"].update(x={"type": "string"}),
    "a field of a body that need not be there": lambda d: _thing(d)["required"].remove("name"),
    "a wider type of a body": lambda d: _thing(d)["properties"]["size"]["anyOf"].append({"type": "null"}),
    "a number where an integer was taken": lambda d: _get(d)["parameters"][0]["schema"].update(type="number"),
    "a higher maximum": lambda d: _get(d)["parameters"][0]["schema"].update(maximum=1_000),
    "a new value of an enumeration": lambda d: _get(d)["parameters"][1]["schema"]["enum"].append("c"),
    "a new field of an answer": lambda d: _view(d)["properties"].update(x={"type": "string"}),
    "an answer that is never null": lambda d: _view(d)["properties"].update(note={"type": "string"}),
    "another refusal": lambda d: _post(d)["responses"].update({"409": {}}),
    "a refusal fewer": lambda d: _post(d)["responses"].pop("422"),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_break_is_told_in_a_sentence(case: str) -> None:
    change, sentence = PLANTED[case]
    new = copy.deepcopy(OLD)
    change(new)
    assert sentence in broken(OLD, new)


@pytest.mark.parametrize("case", HARMLESS)
def test_what_breaks_nobody_is_let_pass(case: str) -> None:
    new = copy.deepcopy(OLD)
    HARMLESS[case](new)
    assert broken(OLD, new) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_document_breaks_nothing_of_itself(served: dict[str, Document], name: str) -> None:
    assert broken(served[name], served[name]) == []


def _leaves(value: object, where: str = "") -> set[str]:
    """Every leaf with its place, so that a difference is told by its place."""
    if isinstance(value, dict) and value:
        return {leaf for key, each in value.items() for leaf in _leaves(each, f"{where}/{key}")}
    if isinstance(value, list) and value:
        return {leaf for index, each in enumerate(value) for leaf in _leaves(each, f"{where}/{index}")}
    return {f"{where}: {json.dumps(value)}"}
