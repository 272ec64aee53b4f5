"""Every `muster …` line of every page names a command and options that there are."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from typer.main import get_command

from controlplane.cli.main import app
from tests.architecture.sources import ROOT, source_files

LINE = re.compile(r"(?:^|[`(|&;]|\buntil |\$\()\s*(muster (?!-)[^`|&;<>\n\\)]*)", re.MULTILINE)
WORD = re.compile(r"[a-z][a-z-]*")


def lines() -> Iterator[tuple[Path, list[str]]]:
    for path in source_files():
        if path.suffix == ".md" and path.name != "CHANGELOG.md":
            for match in LINE.finditer(path.read_text(encoding="utf-8")):
                yield path.relative_to(ROOT), shlex.split(match[1].replace("'", "").replace('"', ""))


def complaint(words: list[str]) -> str:
    """What is wrong with a line; "" for nothing. A noun alone, or one in capitals, speaks of many commands."""
    command: object = get_command(app)
    at = 1
    while children := getattr(command, "commands", None):
        if at == len(words) or not WORD.fullmatch(words[at]):
            return ""
        if words[at] not in children:
            return f"there is no {' '.join(words[: at + 1])}"
        command = children[words[at]]
        at += 1
    parameters = getattr(command, "params", [])
    known = {"--help", "-", *(option for each in parameters for option in (*each.opts, *each.secondary_opts))}
    given = words[at : words.index("--")] if "--" in words else words[at:]
    unknown = [word for word in given if word.startswith("-") and word.partition("=")[0] not in known]
    return f"{' '.join(words[:at])} has no {', '.join(unknown)}" if unknown else ""


def test_every_command_line_of_a_page_is_one() -> None:
    found = list(lines())
    assert len(found) > 100
    wrong = [f"{path}: {' '.join(words)}: {words_of}" for path, words in found if (words_of := complaint(words))]
    assert wrong == []


def test_a_command_that_is_none_is_found() -> None:
    assert complaint(["muster", "cluster", "explode", "x"]) == "there is no muster cluster explode"
    assert complaint(["muster", "list", "--frob", "x"]) == "muster list has no --frob"
    assert complaint(["muster", "run", "-q", "q", "--", "program", "--frob"]) == ""
