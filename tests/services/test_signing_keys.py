"""The plane's key changes in steps: each offers what the next one needs, none can be done out of turn or by halves."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from joserfc.jwk import ECKey

from agents.identity import thumbprint, trusted_keys
from controlplane.services import signing_keys
from controlplane.services.errors import Conflict
from controlplane.services.signing import load_signer
from controlplane.services.signing_keys import KEY_FILE, NEXT_FILE, OLD_FILE, make_next, promote, retire

Step = Callable[[Path], object]


def test_at_every_step_the_key_that_signs_is_one_that_an_agent_of_the_step_before_trusts(tmp_path: Path) -> None:
    first = load_signer(tmp_path)
    pinned = trusted_keys([], first.public_keys())
    for step in (make_next, promote, retire):
        step(tmp_path)
        signer = load_signer(tmp_path)
        assert signer.thumbprint in [thumbprint(key) for key in pinned], "signed before the agent said hello again"
        pinned = trusted_keys(pinned, signer.public_keys())
        assert signer.thumbprint in [thumbprint(key) for key in pinned]
    assert signer.thumbprint != first.thumbprint
    assert [thumbprint(key) for key in pinned] == [signer.thumbprint], "the old one is forgotten"


def test_an_agent_that_was_away_all_the_while_believes_the_new_key_by_the_old_ones_word(tmp_path: Path) -> None:
    pinned = trusted_keys([], load_signer(tmp_path).public_keys())
    for step in (make_next, promote, retire):
        step(tmp_path)
    offered = load_signer(tmp_path).public_keys()
    assert [thumbprint(key) for key in trusted_keys(pinned, offered)] == [load_signer(tmp_path).thumbprint]


def test_a_key_of_somebody_else_is_not_believed(tmp_path: Path) -> None:
    pinned = trusted_keys([], load_signer(tmp_path / "ours").public_keys())
    load_signer(tmp_path / "theirs")
    make_next(tmp_path / "theirs")
    promote(tmp_path / "theirs")
    assert trusted_keys(pinned, load_signer(tmp_path / "theirs").public_keys()) == pinned


@pytest.mark.parametrize(
    ("done", "step", "words"),
    [
        ((), promote, "`next` comes first"),
        ((make_next,), retire, "`promote` comes first"),
        ((make_next, promote), make_next, "`retire` comes first"),
    ],
)
def test_no_step_is_done_out_of_turn(tmp_path: Path, done: tuple[Step, ...], step: Step, words: str) -> None:
    load_signer(tmp_path)
    for each in done:
        each(tmp_path)
    before = {file.name: file.read_text() for file in tmp_path.iterdir()}
    with pytest.raises(Conflict, match=words):
        step(tmp_path)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == before


def test_a_step_that_a_crash_left_undone_can_be_done_again(tmp_path: Path) -> None:
    """Promoting writes the old key's public half first: killed there, it begins again and ends the same."""
    load_signer(tmp_path)
    assert make_next(tmp_path) == make_next(tmp_path)
    before = load_signer(tmp_path)
    (tmp_path / OLD_FILE).write_text("what a crash left")
    upcoming = promote(tmp_path)
    assert load_signer(tmp_path).thumbprint == upcoming
    assert before.thumbprint in [key["kid"] for key in load_signer(tmp_path).public_keys()]
    retire(tmp_path)
    retire(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [KEY_FILE]


def test_private_halves_are_for_their_owner_only_and_are_never_shown(tmp_path: Path) -> None:
    load_signer(tmp_path)
    make_next(tmp_path)
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
    promote(tmp_path)
    assert "d" not in json.loads((tmp_path / OLD_FILE).read_text()), "the old private half is gone"
    shown = load_signer(tmp_path).public_keys()
    assert len(shown) == 2
    assert not [key for key in shown if "d" in key]


def test_many_who_make_the_key_at_once_keep_one(tmp_path: Path) -> None:
    file = tmp_path / KEY_FILE
    signing_keys.make_key(file)
    first = ECKey.import_key(json.loads(file.read_text())).thumbprint()
    signing_keys.make_key(file)
    assert ECKey.import_key(json.loads(file.read_text())).thumbprint() == first
    assert not (tmp_path / NEXT_FILE).exists()
