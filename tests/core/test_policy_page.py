"""The page of knobs tells every knob and its true default."""

import re
from dataclasses import fields
from pathlib import Path

from controlplane.core.policy import Policy

PAGE = Path(__file__).parents[2] / "controlplane/core/POLICY.md"
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)


def test_every_knob_stands_on_the_page_with_its_default() -> None:
    told = {name: default.replace(",", "").strip() for name, default in ROW.findall(PAGE.read_text())}
    assert told == {_camel(each.name): _written(getattr(Policy(), each.name)) for each in fields(Policy)[1:]}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.title() for each in others)


def _written(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)
