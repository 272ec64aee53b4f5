"""Each text file beside this one is a story; `REWRITE=1 pytest tests/scenarios` writes what comes of it now."""

import os
from pathlib import Path

import pytest

from tests.scenarios.script import told

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.stem)
def test_the_story_goes_as_written(story: Path) -> None:
    written = story.read_text(encoding="utf-8")
    now = told(written)
    if os.environ.get("REWRITE"):
        story.write_text(now, encoding="utf-8")
        written = now
    assert now == written


def test_every_strategy_has_its_story() -> None:
    assert {"pack", "spread"} <= {story.stem for story in STORIES}
