"""Texts of files, and where in them a value stands: a pointer into a document becomes file, line and column.

Positions are looked up only for what is wrong; who reads a right file pays nothing for them.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import cast

import yaml

from controlplane.services.reading import Value

MISTAKES_SHOWN_MAX = 50
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLACE = re.compile(r"line (\d+),? column (\d+)(?:: | \(char \d+\))?")
_NULL = "tag:yaml.org,2002:null"
_VALUE_SHOWN_MAX = 60


@dataclass(frozen=True, slots=True)
class Source:
    """One file; `path` as somebody named it."""

    path: str
    text: str

    def place_of(self, position: int, pointer: str) -> str:
        """`path:line:column` of a JSON pointer into the document at `position`, or of what is nearest above it."""
        node: yaml.Node | None = None
        for count, each in enumerate(self._documents()):
            if count == position:
                node = each
        if node is None:
            return self.path
        for part in parts_of(pointer):
            found = _inside(node, part)
            if found is None:
                break
            node = found
        return f"{self.path}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"

    def unreadable(self, words: str) -> str:
        """What a reader said of the whole text, with its line and column in front, as of any other mistake."""
        match = _PLACE.search(words)
        if match is None:
            return f"{self.path}: {words}"
        rest = (words[: match.start()] + words[match.end() :]).rstrip(": ")
        return f"{self.path}:{match[1]}:{match[2]}: {rest}"

    def _documents(self) -> Iterable[yaml.Node]:
        """As `services.reading` gives them: empty ones left out, a list alone as what is in it."""
        listed = [each for each in yaml.compose_all(self.text, Loader=_LOADER) if each.tag != _NULL]
        if len(listed) == 1 and isinstance(listed[0], yaml.SequenceNode):
            return cast("list[yaml.Node]", listed[0].value)
        return listed


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong, and where."""

    place: str
    pointer: str
    words: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.place, self.pointer, self.words)))


class WrongWorld(Exception):
    """The files describe no world; all that is wrong is in it."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("\n".join(map(str, mistakes[:MISTAKES_SHOWN_MAX])))
        self.mistakes = tuple(mistakes)

    def lines(self) -> list[str]:
        """A line for each, the first ones where there are very many."""
        more = len(self.mistakes) - MISTAKES_SHOWN_MAX
        return [*map(str, self.mistakes[:MISTAKES_SHOWN_MAX]), *([f"and {more} more"] if more > 0 else [])]


def parts_of(pointer: str) -> list[str]:
    """The parts of a JSON pointer (RFC 6901)."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """That nothing of this name is there, and what it may have been meant to be."""
    near = get_close_matches(name, list(known), n=1)
    return f"there is no {what} {name} in these files" + (f"; is it {near[0]}?" if near else "")


def value_at(value: Value, pointer: str) -> str:
    """The plain value that a pointer names, as words to add: "" where there is none, or where it is no single one."""
    for part in parts_of(pointer):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return ""
    if isinstance(value, dict | list):
        return ""
    said = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return said if len(said) <= _VALUE_SHOWN_MAX else f"{said[:_VALUE_SHOWN_MAX]}…"


def _inside(node: yaml.Node, part: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and part.isdecimal() and int(part) < len(node.value):
        return cast("yaml.Node", node.value[int(part)])
    return None
