"""The OpenAPI document of an app, complete: every route says what it takes, and every way in which it may refuse.

What a route can be refused for follows from what it is (does it want a token, take a body, change something?), so a new
route says nothing of it. All it must say is what its body is, since bodies are read raw: `openapi_extra=takes(Model)`.
A status of its own it names in `responses=`, as everywhere in FastAPI.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from controlplane.api.auth import caller_of
from controlplane.api.bodies import JSON, YAML, body_of
from controlplane.api.preconditions import demanded
from controlplane.api.problems import MEDIA_TYPE, TITLES
from controlplane.contract.agent.enrolment import AUTH_SCHEME
from controlplane.contract.rest.common import Problem

Schema = dict[str, Any]

_COMPONENT = "#/components/schemas/{model}"
_FRAMEWORKS = ("HTTPValidationError", "ValidationError")
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_SCHEMES: Mapping[str, Schema] = {
    "Bearer": {"type": "http", "scheme": "bearer", "description": "A token, as `muster token create` shows it once."},
    AUTH_SCHEME: {
        "type": "http", "scheme": AUTH_SCHEME,
        "description": "A JWS by the agent's own key over method, path, body, time and place in the Session.",
    },
}  # fmt: skip
SIGNED: Schema = {"security": [{AUTH_SCHEME: []}]}
"""For `openapi_extra` of a route whose requests an agent signs."""

_models: dict[str, type[BaseModel]] = {}
_schemas: dict[str, Schema] = {}


def takes(
    *models: type[BaseModel], others: Mapping[str, Schema] | None = None, many: bool = False, yaml: bool = True
) -> Schema:
    """For `openapi_extra`: the body is one of these models, or of `others` (JSON Schema by name); `many`: or a list."""
    _models.update({model.__name__: model for model in models})
    _schemas.update(others or {})
    refs = [_ref(name) for name in (*(model.__name__ for model in models), *(others or {}))]
    one = refs[0] if len(refs) == 1 else {"anyOf": refs}
    schema = {"anyOf": [*refs, {"type": "array", "items": one, "minItems": 1}]} if many else one
    kinds = sorted(JSON | YAML if yaml else JSON)
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}


def describe(app: FastAPI, routes: Sequence[APIRoute]) -> Schema:
    """The whole document."""
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    schemas: Schema = document.setdefault("components", {}).setdefault("schemas", {})
    used: set[int] = set()
    for route, operation in _operations(document, routes):
        if _needs(route.dependant, caller_of):
            operation["security"] = [{"Bearer": []}]
        answers: Schema = operation["responses"]
        if "application/json" in answers.get("422", {}).get("content", {}):
            del answers["422"]  # the framework's own form, which nobody is ever answered in
        for status in sorted(_refusals(route, operation)):
            answers.setdefault(str(status), {"$ref": f"#/components/responses/{status}"})
            used.add(status)
        operation["responses"] = dict(sorted(answers.items()))
    for name in _FRAMEWORKS:
        schemas.pop(name, None)
    sent = _sent(document)
    assert not {name for name in schemas.keys() & sent.keys() if schemas[name] != sent[name]}, "one name, two shapes"
    document["components"] = {
        "schemas": dict(sorted({**schemas, **sent}.items())),
        "responses": {str(status): _refusal(status) for status in sorted(used)},
        "securitySchemes": {name: scheme for name, scheme in _SCHEMES.items() if _mentions(document, {name: []})},
    }
    return document


def bodies_left_unsaid(document: Schema, routes: Sequence[APIRoute]) -> list[str]:
    """What to do about each route that reads a body and does not say what that is."""
    return [
        f"{' '.join(sorted(route.methods or ()))} {route.path} needs openapi_extra=takes(Model)"
        for route, operation in _operations(document, routes)
        if _needs(route.dependant, body_of) and "requestBody" not in operation
    ]


def _operations(document: Schema, routes: Sequence[APIRoute]) -> Iterator[tuple[APIRoute, Schema]]:
    for route in routes:
        if route.include_in_schema:
            for method in sorted(route.methods or ()):
                yield route, document["paths"][route.path_format][method.lower()]


def _refusals(route: APIRoute, operation: Schema) -> frozenset[int]:
    """How a route with these traits may refuse."""
    wants_token = _needs(route.dependant, caller_of)
    headers = {each["name"].lower() for each in operation.get("parameters", ()) if each["in"] == "header"}
    traits = (
        (True, {400}),
        (wants_token, {401, 403, 404, 429, 503}),
        (wants_token and bool(_CHANGING.intersection(route.methods or ())), {409, 422}),
        ("requestBody" in operation, {408, 413, 415, 422}),
        ("if-match" in headers, {412}),
        (_needs(route.dependant, demanded), {428}),
        (route.path.startswith("/agent/"), {401, 403, 409, 426, 429, 503}),
    )
    return frozenset(status for has_it, statuses in traits if has_it for status in statuses)


def _needs(dependant: Dependant, wanted: Callable[..., object]) -> bool:
    return any(each.call is wanted or _needs(each, wanted) for each in dependant.dependencies)


def _sent(document: Schema) -> Schema:
    """The schemas of bodies that this document names, and of what is in them."""
    models = [(model, "validation") for name, model in _models.items() if _mentions(document, _ref(name))]
    _, found = models_json_schema([*models, (Problem, "validation")], ref_template=_COMPONENT)  # type: ignore[list-item]  # its mode is a Literal
    others = {name: schema for name, schema in _schemas.items() if _mentions(document, _ref(name))}
    return {**found["$defs"], **others}


def _mentions(value: object, wanted: Schema) -> bool:
    if isinstance(value, dict):
        return value == wanted or any(_mentions(each, wanted) for each in value.values())
    return isinstance(value, list) and any(_mentions(each, wanted) for each in value)


def _ref(name: str) -> Schema:
    return {"$ref": _COMPONENT.format(model=name)}


def _refusal(status: int) -> Schema:
    words = TITLES.get(status, HTTPStatus(status).phrase)
    return {"description": words, "content": {MEDIA_TYPE: {"schema": _ref(Problem.__name__)}}}
