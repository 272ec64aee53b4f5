"""The machine of `make mutants` works: one mutant is made and found, and the texts of all are still there."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.machine import ROOT, Fate, is_there, tried
from tests.mutants.mutants import MUTANTS, Mutant

QUICK = next(mutant for mutant in MUTANTS if mutant.name == "sums pass the largest number")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_mutant_replaces_is_still_there(mutant: Mutant) -> None:
    assert is_there(mutant), f"adapt tests/mutants/mutants.py: {mutant.file} has changed"


@pytest.mark.parametrize("test", sorted({test for mutant in MUTANTS for test in mutant.found_by}))
def test_what_must_find_a_mutant_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert f"def {name.partition('[')[0]}(" in text if name else text


def test_there_are_enough_and_no_two_are_the_same() -> None:
    assert len(MUTANTS) >= 20
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert all(mutant.before != mutant.after and mutant.why_wrong for mutant in MUTANTS)


def test_a_mutant_is_killed_by_the_tests_that_are_named(tmp_path: Path) -> None:
    verdict = tried(QUICK, tmp_path)
    assert verdict.fate is Fate.KILLED, verdict.words
    assert verdict.words.startswith("tests/core/test_resources.py::test_")


def test_a_change_that_changes_nothing_survives_and_one_without_its_text_is_not_made(tmp_path: Path) -> None:
    assert tried(replace(QUICK, after=QUICK.before), tmp_path / "same").fate is Fate.SURVIVED
    assert tried(replace(QUICK, before="no such text"), tmp_path / "gone").fate is Fate.NOT_MADE
