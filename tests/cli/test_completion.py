"""What a shell is offered: commands, options, names that the plane knows; nothing, in silence, where it does not."""

import shlex
from collections.abc import Iterator
from socket import socket

import pytest

from controlplane.embedded.home import free_port
from tests.api.bodies import QUEUES, workload
from tests.cli.running import Muster


def offered(muster: Muster, line: str, **told: str) -> list[str]:
    """As bash asks: the last word is the one to complete."""
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    asked = {"_MUSTER_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    ran = muster("", **asked, **told)
    assert ran.err == ""
    return ran.out.split()


def test_commands_verbs_and_options_are_offered_without_a_plane(lonely: Muster) -> None:
    assert offered(lonely, "muster qu") == ["queue"]
    assert set(offered(lonely, "muster cluster ")) >= {"accept", "drain", "remove"}
    assert "--image" in offered(lonely, "muster run --im")
    assert offered(lonely, "muster cluster remove eu --work l") == ["lost"]
    assert set(offered(lonely, "muster list -o ")) == {"table", "json", "yaml", "name"}


def test_names_come_from_the_plane(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=QUEUES)
    muster.fine("submit -f -", stdin=str(workload()))
    muster.fine("cluster create eu-west --token-file /dev/null")
    assert offered(muster, "muster queue show research/") == ["research/nlp", "research/vision"]
    assert offered(muster, "muster run -q research/n") == ["research/nlp"]
    assert offered(muster, "muster describe ") == ["llama"]
    assert offered(muster, "muster cluster drain eu") == ["eu-west"]
    assert offered(muster, "muster token revoke ") == ["1"]


@pytest.mark.timeout(30)
def test_a_plane_that_is_away_or_never_answers_offers_nothing_in_silence(lonely: Muster, mute: str) -> None:
    for url in (f"http://127.0.0.1:{free_port()}", mute, "http://not-this-machine"):
        assert offered(lonely, "muster describe ", MUSTER_URL=url) == []
    assert offered(lonely, "muster context use ") == []


def test_scripts_for_three_shells_ask_the_command(lonely: Muster) -> None:
    for shell in ("bash", "zsh", "fish"):
        script = lonely.fine(f"completion {shell}")
        assert f"_MUSTER_COMPLETE=complete_{shell}" in script
    assert lonely("completion tcsh").code == 2


@pytest.fixture
def mute() -> Iterator[str]:
    """Takes connections and says nothing."""
    with socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
