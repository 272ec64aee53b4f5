"""Colours and lines are for a terminal that wants them; who asks and who answers need one."""

import re

import pytest

from controlplane.cli.queues import BAR_CELLS, bar, budget_bar
from tests.api.bodies import QUEUES
from tests.cli.running import Muster
from tests.cli.terminal import on_a_terminal

ESCAPE = "\x1b["


def test_colours_and_lines_are_for_a_terminal_and_not_for_no_color(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=QUEUES)
    seen = on_a_terminal(muster, "queue list")
    assert seen.code == 0, seen.out
    assert ESCAPE in seen.out
    assert "├─ nlp" in seen.out
    assert "░" * BAR_CELLS in seen.out
    plain = on_a_terminal(muster, "queue list", told={"NO_COLOR": "1"})
    assert ESCAPE not in plain.out
    assert plain.out == muster.fine("queue list"), "as it stands in a file"
    assert plain.out.isascii()


def test_a_removal_says_what_lives_there_and_asks(muster: Muster) -> None:
    muster.fine("cluster create eu-west --token-file /dev/null")
    alone = muster("cluster remove eu-west")
    assert (alone.code, "--yes does it without asking" in alone.err) == (2, True)
    no = on_a_terminal(muster, "cluster remove eu-west", typed="n\n")
    assert no.code == 1
    assert "eu-west is created: 0 live attempts, 0 devices in use" in no.out
    assert "--work stop: " in no.out
    assert "Remove eu-west with --work refuse? [y/N]" in no.out
    assert muster("cluster show eu-west").code == 0
    assert "eu-west is gone" in on_a_terminal(muster, "cluster remove eu-west", typed="yes\n").out
    assert muster("cluster show eu-west").code == 3


@pytest.mark.parametrize(
    ("used", "drawn"), [(0, r"\.{20}"), (50, r"#{10}\.{10}"), (100, "#{20}"), (200, r"#{10}\+{10}")]
)
def test_a_bar_draws_what_is_spent_of_a_budget_and_what_it_was_passed_by(used: int, drawn: str) -> None:
    assert re.fullmatch(drawn, budget_bar({"flavor": "*", "used": used, "limit": 100}))


@pytest.mark.parametrize(
    ("nominal", "subtree", "used", "borrowed", "drawn"),
    [
        (16, 16, 0, 0, "...................."),
        (16, 16, 16, 0, "####################"),
        (1600, 1600, 1, 0, "#..................."),
        (16, 16, 24, 8, r"#{13}\+{6}\.?"),
        (None, 64, 32, 0, "##########.........."),
        (0, 0, 0, 0, ""),
        (8, 8, 12, 0, "####################"),
    ],
)
def test_a_bar_draws_own_borrowed_and_free(
    nominal: int | None, subtree: int, used: int, borrowed: int, drawn: str
) -> None:
    quota = {"flavor": "h100", "nominal": nominal, "subtree": subtree, "used": used, "borrowed": borrowed}
    assert re.fullmatch(drawn, bar(quota)) or bar(quota) == drawn
