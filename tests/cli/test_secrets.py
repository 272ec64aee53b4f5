"""Tokens are kept from where others look: not on a command line, not on a screen, not over a bare wire."""

import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from socket import socket

import pytest

from tests.cli.running import Muster

TOKEN = "mst_7." + "x" * 43


@pytest.mark.parametrize(
    "line", [f"list --token {TOKEN}", f"list --token={TOKEN}", f"whoami {TOKEN}", "list --token ?"]
)
def test_a_token_on_the_command_line_is_refused_with_the_reason_and_not_echoed(muster: Muster, line: str) -> None:
    ran = muster(line)
    assert (ran.code, ran.out) == (2, "")
    assert "for everybody on this machine to see" in ran.err
    assert "MUSTER_TOKEN_FILE" in ran.err
    assert TOKEN not in ran.err


def test_what_a_program_is_told_behind_two_dashes_is_its_own_affair(lonely: Muster) -> None:
    ran = lonely("run -q lab --image x -- python train.py --token abc")
    assert "for everybody" not in ran.err


def test_a_variable_of_the_caller_goes_by_its_name_alone(muster: Muster, tmp_path: Path) -> None:
    muster.fine(
        "apply -f -", stdin="apiVersion: muster.dev/v1\nkind: Queue\nmetadata: {name: q}\nspec: {namespace: q}\n"
    )
    made = muster("run -q q --image x --env API_KEY --env SEED=1 --detach -o json -- ./go.sh", API_KEY="secret").json
    container = made["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "API_KEY", "value": "secret"}, {"name": "SEED", "value": "1"}]
    assert made["name"].startswith("go-"), "named after its script"
    assert muster("run -q q --image x --env NOT_THERE --detach").code == 2


def test_no_command_offers_an_option_for_a_token(lonely: Muster) -> None:
    assert "--token " not in lonely("list --help").out
    assert lonely("list --tokens x").code == 2


def test_a_context_is_shown_without_its_token(lonely: Muster, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN, encoding="utf-8")
    lonely.fine(f"context set here --url https://plane.example --token-file {file}")
    shown = lonely.fine("context show")
    assert str(file) in shown
    assert TOKEN not in shown
    assert "MUSTER_TOKEN\n" in lonely("context show", MUSTER_TOKEN=TOKEN).out
    assert lonely("context set there --url http://plane.example").code == 2
    assert lonely("context show there").code == 3
    lonely.fine("context delete here")
    assert (lonely("context list").out, lonely("list").code) == ("", 2)


def test_a_token_goes_into_a_new_file_or_is_not_made(muster: Muster, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("precious", encoding="utf-8")
    refused = ((kept, "is there already"), (tmp_path / "no" / "folder", "cannot write"))
    for line, listed in (
        ("token create bob", "token list -o name"),
        ("cluster create eu-west", "cluster list -o name"),
    ):
        before = muster.fine(listed)
        for file, words in refused:
            ran = muster(f"{line} --token-file {file}")
            assert (ran.code, words in ran.err, str(file) in ran.err) == (2, True, True)
        assert muster.fine(listed) == before, "nothing was made"
        assert kept.read_text(encoding="utf-8") == "precious"


def test_a_token_that_was_refused_leaves_no_file(muster: Muster, tmp_path: Path) -> None:
    file = tmp_path / "token"
    assert muster(f"token create bob --expires-in nonsense --token-file {file}").code == 2
    assert not file.exists()


def test_a_certificate_that_nobody_vouches_for_is_refused(lonely: Muster, impostor: str) -> None:
    ran = lonely("list", MUSTER_URL=impostor, MUSTER_TOKEN=TOKEN)
    assert (ran.code, ran.out) == (5, "")
    assert "is not to be trusted" in ran.err
    assert "SSL_CERT_FILE" in ran.err


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[str]:
    """Somebody with a certificate of its own making; what it would read is never sent."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=_refuse_all, args=(listener, context))
        thread.start()
        yield f"https://localhost:{listener.getsockname()[1]}"
        with socket() as last:
            last.connect(listener.getsockname())
            last.sendall(b"end")
        thread.join(10)


def _refuse_all(listener: socket, context: ssl.SSLContext) -> None:
    while True:
        link, _ = listener.accept()
        with link:
            if link.recv(3, 2) == b"end":  # MSG_PEEK: a handshake begins otherwise
                return
            try:
                with context.wrap_socket(link, server_side=True) as wrapped:
                    assert not wrapped.recv(1), "nothing is sent to somebody who is not trusted"
            except OSError:
                continue
