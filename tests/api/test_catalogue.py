"""The catalogue of bad input is covered: each of its rows names tests, and each of those exists."""

import re
from pathlib import Path

from tests.architecture.sources import ROOT, python_files, text_of

CATALOGUE = Path(__file__).with_name("README.md")
ROWS = frozenset(
    (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 23, 25, 26, 27, 29, 30, 31, 33, 35, 37, 38, 39, 41, 42,
     43, 45, 46, 47, 50, 51, 53, 54, 55, 57, 58, 59, 61, 62, 63, 65, 66, 67, 69, 70, 71, 73, 74, 75)
)  # fmt: skip
LINE = re.compile(r"^\| (?P<rows>[0-9, ]+) \| [^|]+ \| (?P<tests>[^|]+) \| [^|]+ \|$", re.MULTILINE)


def test_every_row_names_tests_that_exist() -> None:
    files = python_files("tests")
    there = {name for path in files for name in re.findall(r"^def (test_\w+)", text_of(path), re.MULTILINE)}
    told: set[int] = set()
    for line in LINE.finditer(CATALOGUE.read_text(encoding="utf-8")):
        told |= {int(row) for row in line["rows"].split(",")}
        named = re.findall(r"`(test_\w+)`", line["tests"])
        assert named, line[0]
        assert set(named) <= there, (line["rows"], set(named) - there)
    assert told == ROWS, f"{CATALOGUE.relative_to(ROOT)}: rows {sorted(ROWS ^ told)}"
