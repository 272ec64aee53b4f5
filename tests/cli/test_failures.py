"""How commands fail: one line on stderr, an exit code per kind of failure, no traceback, no token."""

import json
import stat
from pathlib import Path

import pytest

from controlplane.embedded.home import free_port
from tests.api.bodies import QUEUES, workload
from tests.cli.running import Muster


@pytest.mark.parametrize(
    ("line", "stdin", "code", "words"),
    [
        ("frobnicate", "", 2, "No such command"),
        ("submit", "", 2, "give either a file"),
        ("submit --name x", "", 2, "--queue and --image"),
        ("submit -f /nowhere", "", 2, "No such file"),
        ("submit -f /dev/zero", "", 2, "no regular file"),
        ("submit -f -", "kind: [", 2, "malformed-yaml"),
        ("submit -f -", json.dumps(workload(frobnicate=1)), 2, "/spec/frobnicate"),
        ("submit -f -", " " * 1_100_000, 2, "larger than 1024 KiB"),
        ("describe nope", "", 3, "no workload nope [not-found]\n`muster list --all` shows"),
        ("list --cluster nope", "", 3, "no cluster nope [not-found]\n`muster cluster list` shows"),
        ("list --submitted-after yesterday", "", 2, "submittedAfter"),
        ("list --label x", "", 2, "it is written key=value"),
        ("node show eu-west", "", 2, "a node is written CLUSTER/NODE"),
        ("device show x", "", 2, "x is no number of a device; `muster device list` shows them"),
        ("run -q q --image i --topology a:b", "", 2, "it is written required:LEVEL or preferred:LEVEL"),
        ("token create ada --role boss", "", 2, "'boss' is not one of"),
        ("queue show nope", "", 3, "not-found"),
        ("cancel nope", "", 3, "not-found"),
    ],
)
def test_a_mistake_ends_with_its_own_code(refused: Muster, line: str, stdin: str, code: int, words: str) -> None:
    ran = refused(line, stdin)
    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_what_is_refused_ends_with_4_and_the_token_is_never_shown(muster: Muster) -> None:
    wrong = "mst_" + "x" * 43
    ran = muster("whoami", MUSTER_TOKEN=wrong)
    assert (ran.code, "invalid-token" in ran.err) == (4, True)
    assert wrong not in ran.out + ran.err
    muster.fine("apply -f -", stdin=QUEUES)
    muster.fine("submit -f -", stdin=json.dumps(workload()))
    assert muster("submit -f -", stdin=json.dumps(workload())).code == 4


@pytest.mark.parametrize(
    ("raw", "words"),
    [(b"", "is empty"), (b"\n", "is empty"), (b"\xff\xfe", "holds no text"), (None, "No such file or directory")],
)
def test_a_tokens_file_that_holds_none_is_named(lonely: Muster, tmp_path: Path, raw: bytes | None, words: str) -> None:
    file = tmp_path / "token"
    if raw is not None:
        file.write_bytes(raw)
    ran = lonely("whoami", MUSTER_URL="https://plane.example", MUSTER_TOKEN_FILE=str(file))
    assert (ran.code, str(file) in ran.err, words in ran.err, "Errno" in ran.err) == (2, True, True, False)


def test_a_cluster_is_no_document_to_delete_and_the_way_is_said(muster: Muster) -> None:
    muster.fine("cluster create eu-west --token-file /dev/null")
    ran = muster("document delete Cluster eu-west")
    assert (ran.code, "`muster cluster remove NAME`" in ran.err) == (4, True)


def test_a_plane_that_is_away_ends_with_5(lonely: Muster) -> None:
    ran = lonely("list", MUSTER_URL=f"http://127.0.0.1:{free_port()}")
    assert (ran.code, "does not answer" in ran.err) == (5, True)


def test_a_process_ends_as_the_entry_point_does(muster: Muster) -> None:
    assert muster.process("whoami").out == "admin: platform-admin\n"
    ran = muster.process("describe nope")
    assert (ran.code, ran.out, "no workload nope" in ran.err) == (3, "", True)


def test_without_a_plane_it_says_how_to_get_one(lonely: Muster) -> None:
    ran = lonely("list")
    assert (ran.code, "muster up" in ran.err) == (2, True)


@pytest.mark.parametrize("url", ["http://plane.example", "ftp://plane.example", "plane.example", "http://"])
def test_an_address_that_is_none_or_not_encrypted_is_refused(lonely: Muster, url: str) -> None:
    assert lonely("list", MUSTER_URL=url).code == 2


def test_contexts_are_kept_in_a_private_file_that_names_the_tokens_file(muster: Muster, tmp_path: Path) -> None:
    token, told = tmp_path / "token", dict(muster.told)
    token.write_text(told["MUSTER_TOKEN"] + "\n", encoding="utf-8")
    by_file = Muster(tmp_path)
    assert by_file(f"context set here --url {told['MUSTER_URL']} --token-file {token}").code == 0
    assert by_file("context set there --url https://plane.example").code == 0
    assert by_file("whoami", MUSTER_CONTEXT="here").code == 0
    nobody = by_file("whoami", MUSTER_CONTEXT="here", MUSTER_TOKEN_FILE=str(tmp_path / "nothing"))
    assert (nobody.code, "cannot read the token" in nobody.err) == (2, True)  # and nobody else's token is taken instead
    config = tmp_path / "muster" / "config.yaml"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert told["MUSTER_TOKEN"] not in config.read_text(encoding="utf-8")
    assert by_file.fine("whoami") == "admin: platform-admin\n"
    lines = by_file.fine("context list").splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["*", "there"]
    assert "https://plane.example" in by_file.fine("context use there")
    assert by_file("whoami", MUSTER_CONTEXT="here").code == 0
    assert by_file("context use nowhere").code == 3
    config.chmod(0o644)
    assert "others can read" in by_file("context list").err


def test_no_command_takes_a_token_as_an_argument(lonely: Muster) -> None:
    assert lonely("list --token x").code == 2
    assert "--token " not in lonely("list --help").out
