"""What of a newer OpenAPI document would break a client that was written against an older one: a small set of rules.

Of what is sent, less may not be taken: no field or value fewer, nothing newly required, no type or bound narrower. Of
what is answered, less may not be promised: no field fewer, none that may now be missing, no type that was not there.
Answers that refuse are not looked at: a new way to refuse breaks nobody who looks at the status.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
DEPTH_MAX = 24
METHODS = ("get", "put", "post", "delete", "patch")
LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


def broken(old: Schema, new: Schema) -> list[str]:
    """One sentence for each break, in order."""
    return sorted(set(_Comparison(old, new).breaks()))


class _Comparison:
    def __init__(self, old: Schema, new: Schema) -> None:
        self._old = old
        self._new = new

    def breaks(self) -> Iterator[str]:
        for path, methods in self._old["paths"].items():
            now = self._new["paths"].get(path)
            if now is None:
                yield f"{path}: the path is gone"
                continue
            for method in METHODS:
                if method in methods and method not in now:
                    yield f"{method.upper()} {path}: the method is gone"
                elif method in methods:
                    yield from self._operation(f"{method.upper()} {path}", methods[method], now[method])

    def _operation(self, where: str, old: Schema, new: Schema) -> Iterator[str]:
        yield from self._parameters(where, _parameters(old), _parameters(new))
        yield from self._body(where, old.get("requestBody"), new.get("requestBody"))
        for status, answer in old["responses"].items():
            if not status.startswith("2"):
                continue
            now = new["responses"].get(status)
            if now is None:
                yield f"{where}: {status} is not answered any more"
                continue
            for kind, media in answer.get("content", {}).items():
                if kind not in now.get("content", {}):
                    yield f"{where}: {status} does not come as {kind} any more"
                else:
                    place = f"{where}: in the answer"
                    yield from self._answered(place, media.get("schema", {}), now["content"][kind].get("schema", {}), 0)

    def _parameters(self, where: str, old: Mapping[str, Schema], new: Mapping[str, Schema]) -> Iterator[str]:
        for name, parameter in old.items():
            if name not in new:
                yield f"{where}: {name} is not taken any more"
            else:
                if new[name].get("required") and not parameter.get("required"):
                    yield f"{where}: {name} is required now"
                yield from self._taken(f"{where}: {name}", parameter.get("schema", {}), new[name].get("schema", {}), 0)
        for name in new.keys() - old.keys():
            if new[name].get("required"):
                yield f"{where}: {name} is new and required"

    def _body(self, where: str, old: Schema | None, new: Schema | None) -> Iterator[str]:
        if new is None:
            if old is not None:
                yield f"{where}: no body is taken any more"
            return
        if old is None:
            if new.get("required"):
                yield f"{where}: a body is required now"
            return
        for kind, media in old["content"].items():
            if kind not in new["content"]:
                yield f"{where}: a body is not taken as {kind} any more"
            else:
                yield from self._taken(f"{where}: in the body", media["schema"], new["content"][kind]["schema"], 0)

    def _taken(self, where: str, old: Schema, new: Schema, depth: int) -> Iterator[str]:
        """Everything that was taken must be taken."""
        was, now = self._branches(self._old, old), self._branches(self._new, new)
        if depth > DEPTH_MAX or {} in now.values():
            return
        for name in was.keys() - now.keys():
            if name == "integer" and "number" in now:
                continue
            yield f"{where}: {name} is not taken any more"
        for name in was.keys() & now.keys():
            yield from self._narrowed(where, was[name], now[name])
            yield from self._fields_taken(where, was[name], now[name], depth)

    def _narrowed(self, where: str, old: Schema, new: Schema) -> Iterator[str]:
        values = _values(new)
        if values is not None and (lost := [each for each in _values(old) or ["another"] if each not in values]):
            yield f"{where}: the value {lost[0]} is not taken any more"
        for bound in LEAST:
            if bound in new and new[bound] > old.get(bound, float("-inf")):
                yield f"{where}: {bound} rose to {new[bound]}"
        for bound in MOST:
            if bound in new and new[bound] < old.get(bound, float("inf")):
                yield f"{where}: {bound} fell to {new[bound]}"
        if "pattern" in new and new["pattern"] != old.get("pattern"):
            yield f"{where}: the pattern is another"

    def _fields_taken(self, where: str, old: Schema, new: Schema, depth: int) -> Iterator[str]:
        fields, now = old.get("properties", {}), new.get("properties", {})
        is_closed = new.get("additionalProperties") is False
        if is_closed and old.get("additionalProperties") is not False and "properties" in old:
            yield f"{where}: fields of other names are not taken any more"
        for name in new.get("required", ()):
            if name not in old.get("required", ()):
                yield f"{where}: the field {name} is required now"
        for name, field in fields.items():
            if name in now:
                yield from self._taken(_at(where, name), field, now[name], depth + 1)
            elif is_closed:
                yield f"{where}: the field {name} is not taken any more"
        for key in ("items", "additionalProperties"):
            if isinstance(old.get(key), Mapping) and isinstance(new.get(key), Mapping):
                yield from self._taken(_at(where, "*"), old[key], new[key], depth + 1)

    def _answered(self, where: str, old: Schema, new: Schema, depth: int) -> Iterator[str]:
        """Nothing may come that could not come, and nothing that came may be missing."""
        was, now = self._branches(self._old, old), self._branches(self._new, new)
        if depth > DEPTH_MAX or {} in was.values():
            return
        for name in now.keys() - was.keys():
            if not (name == "integer" and "number" in was):
                yield f"{where}: {name} may come now, and could not"
        for name in was.keys() & now.keys():
            old_one, new_one = was[name], now[name]
            fields = new_one.get("properties", {})
            for field, schema in old_one.get("properties", {}).items():
                if field not in fields:
                    yield f"{where}: the field {field} is gone"
                    continue
                if field in old_one.get("required", ()) and field not in new_one.get("required", ()):
                    yield f"{where}: the field {field} may be missing now"
                yield from self._answered(_at(where, field), schema, fields[field], depth + 1)
            for key in ("items", "additionalProperties"):
                if isinstance(old_one.get(key), Mapping) and isinstance(new_one.get(key), Mapping):
                    yield from self._answered(_at(where, "*"), old_one[key], new_one[key], depth + 1)

    def _branches(self, document: Schema, schema: Schema) -> dict[str, Schema]:
        """What it may be, by type, and objects by their title and kind, so that alternatives are told apart."""
        while "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        several = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        if several:
            return {name: one for each in several for name, one in self._branches(document, each).items()}
        types = schema.get("type")
        if types is None:
            types = "any" if not schema.keys() & {"const", "enum"} else "value"
        names = types if isinstance(types, list) else [types]
        kind = schema.get("properties", {}).get("kind", {}).get("const", "")
        return {f"{name} {kind}".strip(): {} if name == "any" else schema for name in names}


def _parameters(operation: Schema) -> dict[str, Schema]:
    return {f"{each['in']} parameter {each['name']}": each for each in operation.get("parameters", ())}


def _values(schema: Schema) -> list[object] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _at(where: str, name: str) -> str:
    return f"{where}/{name}" if ": in " in where.rpartition("/")[0] else f"{where} /{name}"
