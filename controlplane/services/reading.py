"""Text to plain values: JSON and the core of YAML 1.2, strictly. No alias, no tag, no duplicate key, no surprise.

`no`, `22:22` and `2024-01-01` are strings, as YAML 1.2 has it. Whether the values make a document is
`services.documents`.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import NoReturn

import yaml

from controlplane.services.errors import Invalid, Malformed

DEPTH_MAX = 64
DOCUMENTS_MAX = 1_000
_DIGITS_MAX = 19
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_WORDS = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip

Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]


def read_json(text: str) -> Value:
    """One JSON value; raises Malformed, or Invalid for a NUL."""
    try:
        value: Value = json.loads(
            text, object_pairs_hook=_without_duplicates, parse_int=_whole, parse_constant=_no_constant
        )
    except RecursionError:
        raise Malformed(f"more than {DEPTH_MAX} levels deep", slug="too-deep") from None
    except ValueError as error:
        raise Malformed(f"this is no JSON: {error}", slug="malformed-json") from None
    _check(value)
    return value


def read_yaml(text: str, documents_max: int = DOCUMENTS_MAX) -> list[Value]:
    """Every YAML document in `text`; empty ones are left out. Raises Malformed, or Invalid for a NUL."""
    try:
        # Events, not nodes: aliases and tags are refused before anything is built, whatever they would blow up to.
        documents = list(_documents(iter(yaml.parse(text, Loader=_LOADER)), documents_max))
    except yaml.YAMLError as error:
        raise Malformed(f"this is no YAML: {_words(error)}", slug="malformed-yaml") from None
    for document in documents:
        _check(document)
    return [document for document in documents if document is not None]


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Event = yaml.Event


def _documents(events: Iterator[_Event], most: int) -> Iterator[Value]:
    count = 0
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            count += 1
            if count > most:
                raise Malformed(f"more than {most} documents", slug="too-many")
            yield _value(next(events), events, 1)


def _value(event: _Event, events: Iterator[_Event], depth: int) -> Value:
    if depth > DEPTH_MAX:
        _refuse(event, "too-deep", f"more than {DEPTH_MAX} levels deep")
    if isinstance(event, yaml.AliasEvent):
        _refuse(event, "aliases-forbidden", "aliases (*name) are not taken; write it out")
    if getattr(event, "tag", None) not in {None, "!"}:
        _refuse(event, "tags-forbidden", "tags (!name) are not taken")
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Value] = []
        while not isinstance(inner := next(events), yaml.SequenceEndEvent):
            items.append(_value(inner, events, depth + 1))
        return items
    return _mapping(events, depth)


def _mapping(events: Iterator[_Event], depth: int) -> dict[str, Value]:
    result: dict[str, Value] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        if not isinstance(event, yaml.ScalarEvent):
            _refuse(event, "malformed-yaml", "a key is a plain word here, no list and no mapping")
        key = event.value
        if event.tag not in {None, "!"}:
            _refuse(event, "tags-forbidden", "tags (!name) are not taken")
        if key in result:
            _refuse(event, "duplicate-key", f"the key {key[:80]} stands there twice")
        result[key] = _value(next(events), events, depth + 1)
    return result


def _scalar(event: yaml.ScalarEvent) -> Value:
    text: str = event.value
    if event.style or not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return _whole(text)
    if _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
        return int(text, 0) if len(text) <= _DIGITS_MAX else _whole("9" * (_DIGITS_MAX + 1))
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _refuse(event: _Event, slug: str, words: str) -> NoReturn:
    mark = event.start_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    raise Malformed(f"{where}{words}", slug=slug)


def _words(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark is not None else str(problem)


def _without_duplicates(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Malformed(f"the key {twice[:80]} stands there twice", slug="duplicate-key")
    return result


def _whole(text: str) -> int:
    if len(text.lstrip("+-")) > _DIGITS_MAX:
        raise Malformed(f"a number of more than {_DIGITS_MAX} digits", slug="number-out-of-range")
    return int(text)


def _no_constant(text: str) -> NoReturn:
    raise Malformed(f"{text} is no JSON number", slug="malformed-json")


def _check(value: Value) -> None:
    """Depth, and characters that Postgres does not take; without recursion, since the depth is what is in doubt."""
    stack: list[tuple[Value, int]] = [(value, 1)]
    while stack:
        each, depth = stack.pop()
        if depth > DEPTH_MAX:
            raise Malformed(f"more than {DEPTH_MAX} levels deep", slug="too-deep")
        if isinstance(each, str):
            _check_text(each)
        elif isinstance(each, list):
            stack.extend((item, depth + 1) for item in each)
        elif isinstance(each, dict):
            for key in each:
                _check_text(key)
            stack.extend((item, depth + 1) for item in each.values())
        elif isinstance(each, float) and not math.isfinite(each):
            raise Malformed("a number without a value", slug="number-out-of-range")


def _check_text(text: str) -> None:
    if _UNSTORABLE.search(text):
        raise Invalid("a string holds a NUL or half a surrogate pair", slug="invalid-character")
