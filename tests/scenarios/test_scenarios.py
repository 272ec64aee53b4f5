"""Each text file beside this one is a story; `REWRITE=1 pytest tests/scenarios` writes what comes of it now."""

import os
import re
from pathlib import Path

import pytest

from controlplane.core.demand import StrategyName
from tests.scenarios.script import told

HERE = Path(__file__).parent
STORIES = sorted(HERE.glob("*.txt"))
HOLDER = re.compile(r"`([^`]+\.txt|tests/[^`]+::[^`]+)`")
CASES: tuple[int, ...] = (
    1,
    2,
    3,
    5,
    6,
    10,
    11,
    13,
    14,
    15,
    17,
    18,
    19,
    21,
    22,
    23,
    25,
    26,
    27,
    29,
    31,
    33,
    37,
    38,
    39,
    41,
    42,
    49,
    50,
)
CASES += (51, 53, 54, 55, 57, 59, 66, 67, 70, 71, 75, 77, 78, 79, 89, 90, 91, 93, 97, 99, 102)


def rows() -> dict[str, list[str]]:
    """By case, the stories and tests that the README says hold it."""
    lines = (HERE / "README.md").read_text(encoding="utf-8").splitlines()
    cells = [line.split("|") for line in lines if line.startswith("| T")]
    return {each[1].strip(): HOLDER.findall(each[3]) for each in cells}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.stem)
def test_the_story_goes_as_written(story: Path) -> None:
    written = story.read_text(encoding="utf-8")
    now = told(written)
    if os.environ.get("REWRITE"):
        story.write_text(now, encoding="utf-8")
        written = now
    assert now == written


def test_every_strategy_has_its_story() -> None:
    assert set(StrategyName) <= {story.stem for story in STORIES}


def test_every_case_is_held_by_something() -> None:
    assert list(rows()) == [f"T{number:02}" for number in CASES]
    assert all(rows().values())


@pytest.mark.parametrize("case", rows())
def test_what_holds_a_case_is_there(case: str) -> None:
    for holder in rows()[case]:
        file, _, name = holder.partition("::")
        text = (HERE / file if not name else HERE.parents[1] / file).read_text(encoding="utf-8")
        assert f"def {name}(" in text if name else re.search(rf"\b{case}\b", text), f"{holder} does not hold {case}"


def test_every_story_of_a_case_is_in_the_table() -> None:
    listed = {holder for holders in rows().values() for holder in holders}
    named = {story.name for story in STORIES if re.search(r"\bT\d\d+\b", story.read_text(encoding="utf-8"))}
    assert named <= listed
